// SPDX-License-Identifier: BSD-3-Clause
//
// request.cc: life of MPI requests: initialisation, start, completion, cancel, free.
#include "pml/bfo/glue/request.h"

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {

void give_back(RecvRequest& req) {
  MCA_PML_BASE_RECV_REQUEST_FINI(&req.base);
  opal_free_list_return(&mca_pml_base_recv_requests, &req.base.req_base.req_ompi.super);
}

namespace {

void give_back(SendRequest& req) {
  MCA_PML_BASE_SEND_REQUEST_FINI(&req.base);
  opal_free_list_return(&mca_pml_base_send_requests, &req.base.req_base.req_ompi.super);
}

template <class Request>
int free_request(ompi_request_t** handle) {
  Request& req = *reinterpret_cast<Request*>(*handle);
  req.base.req_base.req_free_called = true;
  if (add_end(req.ends, kUserFreed) & kEngineDone) give_back(req);
  *handle = MPI_REQUEST_NULL;
  return OMPI_SUCCESS;
}

// Sends are not cancelled: MPI allows that, and a message that may already be matched cannot be taken back.
int cancel_send(ompi_request_t*, int) {
  return OMPI_SUCCESS;
}

int cancel_recv(ompi_request_t* request, int) {
  RecvRequest& req = *reinterpret_cast<RecvRequest*>(request);
  if (REQUEST_COMPLETE(request) || !mca_pml_bfo_component.module->engine().cancel(&req)) return OMPI_SUCCESS;
  request->req_status._cancelled = true;
  recv_request_done(req);
  return OMPI_SUCCESS;
}

void send_constructor(bfo_pml_send_request_t* req) {
  ompi_request_t& ompi = req->base.req_base.req_ompi;
  new (&req->xfer) xfer::SendState<BtlPort>();
  req->ends = 0;
  req->base.req_base.req_type = MCA_PML_REQUEST_SEND;
  ompi.req_start = start_requests;
  ompi.req_free = free_request<SendRequest>;
  ompi.req_cancel = cancel_send;
}

void recv_constructor(bfo_pml_recv_request_t* req) {
  ompi_request_t& ompi = req->base.req_base.req_ompi;
  new (&req->xfer) xfer::RecvState<BtlPort>();
  req->ends = 0;
  req->base.req_base.req_type = MCA_PML_REQUEST_RECV;
  ompi.req_start = start_requests;
  ompi.req_free = free_request<RecvRequest>;
  ompi.req_cancel = cancel_recv;
}

void frag_constructor(bfo_pml_frag_t* frag) {
  new (&frag->xfer) xfer::FragState<BtlPort>();
}

xfer::SendMode mode_of(mca_pml_base_send_mode_t mode) {
  switch (mode) {
    case MCA_PML_BASE_SEND_SYNCHRONOUS:
      return xfer::SendMode::kSync;
    case MCA_PML_BASE_SEND_READY:
      return xfer::SendMode::kReady;
    default:
      return xfer::SendMode::kStandard;
  }
}

// Copies the payload into the attached buffer; MPI is done with the request from here on, the engine is not.
int start_buffered(SendRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  if (base.req_ompi.req_persistent && base.req_count > 0) {
    // An earlier start left the convertor on its copy.
    opal_convertor_cleanup(&base.req_convertor);
    opal_convertor_copy_and_prepare_for_send(base.req_proc->super.proc_convertor, &base.req_datatype->super,
                                             base.req_count, base.req_addr, 0, &base.req_convertor);
  }
  return mca_pml_base_bsend_request_start(&base.req_ompi);
}

// A request that MPI has finished but the engine has not (a buffered send) cannot be used again yet: a fresh
// one takes its place in the caller's array.
template <class Request>
Request* replacement(Request& old);

template <>
SendRequest* replacement(SendRequest& old) {
  SendRequest* req = send_request_alloc();
  const mca_pml_base_request_t& base = old.base.req_base;
  send_request_init(*req, base.req_addr, base.req_count, base.req_datatype, base.req_peer, base.req_tag,
                    old.base.req_send_mode, base.req_comm, base.req_proc, true);
  return req;
}

template <>
RecvRequest* replacement(RecvRequest& old) {
  RecvRequest* req = recv_request_alloc();
  const mca_pml_base_request_t& base = old.base.req_base;
  recv_request_init(*req, base.req_addr, base.req_count, base.req_datatype, base.req_peer, base.req_tag,
                    base.req_comm, true);
  return req;
}

template <class Request>
Request* startable(ompi_request_t** handle) {
  Request* req = reinterpret_cast<Request*>(*handle);
  if (OPAL_LIKELY(__atomic_load_n(&req->ends, __ATOMIC_ACQUIRE) & kEngineDone)) return req;
  Request* fresh = replacement(*req);
  ompi_request_t& to = fresh->base.req_base.req_ompi;
  to.req_complete_cb = (*handle)->req_complete_cb;
  to.req_complete_cb_data = (*handle)->req_complete_cb_data;
  ompi_request_free(handle);
  *handle = &to;
  return fresh;
}

}  // namespace

SendRequest* send_request_alloc() {
  return reinterpret_cast<SendRequest*>(opal_free_list_wait(&mca_pml_base_send_requests));
}

RecvRequest* recv_request_alloc() {
  return reinterpret_cast<RecvRequest*>(opal_free_list_wait(&mca_pml_base_recv_requests));
}

void send_request_init(SendRequest& req, const void* buffer, size_t count, ompi_datatype_t* datatype, int dst,
                       int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_proc_t* proc,
                       bool persistent) {
  req.base.req_base.req_proc = proc;
  req.ends = persistent ? kEngineDone : 0;
  MCA_PML_BASE_SEND_REQUEST_INIT(&req.base, buffer, count, datatype, dst, tag, comm, mode, persistent, 0);
  req.base.req_base.req_pml_complete = persistent;
}

void recv_request_init(RecvRequest& req, void* buffer, size_t count, ompi_datatype_t* datatype, int src,
                       int tag, ompi_communicator_t* comm, bool persistent) {
  req.ends = persistent ? kEngineDone : 0;
  req.direct = nullptr;
  MCA_PML_BASE_RECV_REQUEST_INIT(&req.base, buffer, count, datatype, src, tag, comm, persistent);
  req.base.req_base.req_pml_complete = persistent;
}

int send_request_start(Module& module, SendRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  req.ends = 0;
  base.req_pml_complete = false;
  base.req_ompi.req_complete = REQUEST_PENDING;
  base.req_ompi.req_state = OMPI_REQUEST_ACTIVE;
  base.req_ompi.req_status._cancelled = 0;
  if (req.base.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) {
    if (const int rc = start_buffered(req); rc != OMPI_SUCCESS) {
      base.req_ompi.req_state = OMPI_REQUEST_INACTIVE;
      base.req_ompi.req_complete = REQUEST_COMPLETED;
      req.ends = kEngineDone;
      return rc;
    }
    ompi_status_public_t& status = base.req_ompi.req_status;
    status.MPI_SOURCE = base.req_comm->c_my_rank;
    status.MPI_TAG = base.req_tag;
    status.MPI_ERROR = MPI_SUCCESS;
    status._ucount = req.base.req_bytes_packed;
    ompi_request_complete(&base.req_ompi, true);
  }
  xfer::SendArgs<BtlPort> args;
  args.comm = static_cast<Comm*>(static_cast<void*>(base.req_comm->c_pml_comm));
  args.dst = base.req_peer;
  args.tag = base.req_tag;
  args.length = req.base.req_bytes_packed;
  args.mode = mode_of(req.base.req_send_mode);
  module.engine().isend(&req, args);
  return OMPI_SUCCESS;
}

void send_request_done(SendRequest& req, int mpi_error) {
  mca_pml_base_request_t& base = req.base.req_base;
  if (req.base.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) {
    mca_pml_base_bsend_request_fini(&base.req_ompi);
  } else {
    ompi_status_public_t& status = base.req_ompi.req_status;
    status.MPI_SOURCE = base.req_comm->c_my_rank;
    status.MPI_TAG = base.req_tag;
    status.MPI_ERROR = mpi_error;
    status._ucount = req.base.req_bytes_packed;
    // First wake, then mark: a user who frees the request in between leaves its return to the line below.
    ompi_request_complete(&base.req_ompi, true);
  }
  base.req_pml_complete = true;
  if (add_end(req.ends, kEngineDone) & kUserFreed) give_back(req);
}

int start_requests(size_t count, ompi_request_t** requests) {
  Module& module = *mca_pml_bfo_component.module;
  for (size_t i = 0; i < count; ++i) {
    ompi_request_t* request = requests[i];
    if (request == nullptr || request->req_type != OMPI_REQUEST_PML) continue;
    int rc = OMPI_ERR_REQUEST;
    switch (reinterpret_cast<mca_pml_base_request_t*>(request)->req_type) {
      case MCA_PML_REQUEST_SEND:
        rc = send_request_start(module, *startable<SendRequest>(&requests[i]));
        break;
      case MCA_PML_REQUEST_RECV:
        rc = recv_request_start(module, *startable<RecvRequest>(&requests[i]));
        break;
      default:
        break;
    }
    if (rc != OMPI_SUCCESS) return rc;
  }
  return OMPI_SUCCESS;
}

int request_lists_init(const Params& params) {
  int rc =
      opal_free_list_init(&mca_pml_base_send_requests, sizeof(SendRequest), opal_cache_line_size,
                          OBJ_CLASS(bfo_pml_send_request_t), 0, opal_cache_line_size, params.free_list_num,
                          params.free_list_max, params.free_list_inc, nullptr, 0, nullptr, nullptr, nullptr);
  if (rc != OPAL_SUCCESS) return rc;
  return opal_free_list_init(&mca_pml_base_recv_requests, sizeof(RecvRequest), opal_cache_line_size,
                             OBJ_CLASS(bfo_pml_recv_request_t), 0, opal_cache_line_size, params.free_list_num,
                             params.free_list_max, params.free_list_inc, nullptr, 0, nullptr, nullptr,
                             nullptr);
}

}  // namespace bfo::glue

extern "C" {
OBJ_CLASS_INSTANCE(bfo_pml_send_request_t, mca_pml_base_send_request_t, bfo::glue::send_constructor, nullptr);
OBJ_CLASS_INSTANCE(bfo_pml_recv_request_t, mca_pml_base_recv_request_t, bfo::glue::recv_constructor, nullptr);
OBJ_CLASS_INSTANCE(bfo_pml_frag_t, opal_free_list_item_t, bfo::glue::frag_constructor, nullptr);
}
