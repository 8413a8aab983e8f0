// SPDX-License-Identifier: BSD-3-Clause
//
// request.cc: MPI requests: initialisation, start, completion, cancel, free.
#include "pml/bfo/glue/request.h"

#include <sched.h>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/one_thread.h"

namespace bfo::glue {

// MCA_PML_BASE_RECV_REQUEST_FINI without the convertor: that of a receive is never prepared (layout.h), and
// to clean it up two more lines of memory would be touched for each message.
void give_back(RecvRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  OMPI_REQUEST_FINI(&base.req_ompi);
  OBJ_RELEASE(base.req_comm);
  OMPI_DATATYPE_RELEASE(base.req_datatype);
  opal_free_list_return(&mca_pml_base_recv_requests, &req.base.req_base.req_ompi.super);
}

namespace {

void give_back(SendRequest& req) {
  MCA_PML_BASE_SEND_REQUEST_FINI(&req.base);
  give_item(mca_pml_base_send_requests, req.base.req_base.req_ompi.super);
}

template <class Request>
int free_request(ompi_request_t** handle) {
  Request& req = *reinterpret_cast<Request*>(*handle);
  req.base.req_base.req_free_called = true;
  if (add_end(req.ends, kUserFreed) & kEngineDone) give_back(req);
  *handle = MPI_REQUEST_NULL;
  return OMPI_SUCCESS;
}

// libmpi cancels what a process has to do with that died, again and again while it waits: the request ends
// here, or when its buffer is out of reach.
void end_of_dead() {
  if (survives_deaths()) settle_deaths(*mca_pml_bfo_component.module);
}

// Sends are not cancelled. MPI allows that, and a message that may be matched already cannot be withdrawn.
int cancel_send(ompi_request_t*, int) {
  end_of_dead();
  return OMPI_SUCCESS;
}

int cancel_recv(ompi_request_t* request, int) {
  RecvRequest& req = *reinterpret_cast<RecvRequest*>(request);
  if (REQUEST_COMPLETE(request)) return OMPI_SUCCESS;
  if (!mca_pml_bfo_component.module->engine().cancel(&req)) {
    end_of_dead();
    return OMPI_SUCCESS;
  }
  request->req_status._cancelled = true;
  // libmpi does not free one that it told to be pending.
  if (is_pending(request->req_status.MPI_ERROR)) request->req_status.MPI_ERROR = MPI_SUCCESS;
  recv_request_done(req);
  return OMPI_SUCCESS;
}

void send_constructor(bfo_pml_send_request_t* req) {
  ompi_request_t& ompi = req->base.req_base.req_ompi;
  new (&req->xfer) xfer::SendState<BtlPort>();
  req->ends = 0;
  req->staged = false;
  req->trail = nullptr;
  req->base.req_base.req_type = MCA_PML_REQUEST_SEND;
  ompi.req_start = start_requests;
  ompi.req_free = free_request<SendRequest>;
  ompi.req_cancel = cancel_send;
}

void recv_constructor(bfo_pml_recv_request_t* req) {
  ompi_request_t& ompi = req->base.req_base.req_ompi;
  new (&req->xfer) xfer::RecvState<BtlPort>();
  req->ends = 0;
  req->staged = false;
  req->trail = nullptr;
  req->base.req_base.req_type = MCA_PML_REQUEST_RECV;
  ompi.req_start = start_requests;
  ompi.req_free = free_request<RecvRequest>;
  ompi.req_cancel = cancel_recv;
}

void frag_constructor(bfo_pml_frag_t* frag) {
  new (&frag->xfer) xfer::FragState<BtlPort>();
}

// Completes the MPI request with the outcome of the send. This wakes the threads that wait for it.
void complete_for_user(SendRequest& req, int mpi_error) {
  mca_pml_base_request_t& base = req.base.req_base;
  ompi_status_public_t& status = base.req_ompi.req_status;
  status.MPI_SOURCE = base.req_comm->c_my_rank;
  status.MPI_TAG = base.req_tag;
  status.MPI_ERROR = mpi_error;
  status._ucount = req.base.req_bytes_packed;
  complete_request(base.req_ompi);
}

// Copies the payload into the attached buffer, with which the user's part is over; the engine goes on with
// it.
int start_buffered(Module& module, SendRequest& req) {
  if (const int rc = module.buffered().take(req, module.params().buffer_wait); rc != OMPI_SUCCESS) return rc;
  complete_for_user(req, MPI_SUCCESS);
  return OMPI_SUCCESS;
}

// A persistent request that is buffered is done before its message is: a request of its own carries each
// message, so that the user's can be started again, under the handle he may have copied.
int start_buffered_persistent(Module& module, SendRequest& req) {
  const mca_pml_base_request_t& base = req.base.req_base;
  SendRequest* carrier = send_request_alloc();
  send_request_init(*carrier, base.req_addr, base.req_count, base.req_datatype, base.req_peer, base.req_tag,
                    MCA_PML_BASE_SEND_BUFFERED, base.req_comm, base.req_proc, false);
  ompi_request_t* handle = &carrier->base.req_base.req_ompi;
  const int rc = send_request_start(module, *carrier);
  ompi_request_free(&handle);
  req.base.req_base.req_pml_complete = true;
  req.ends = kEngineDone;
  if (rc == OMPI_SUCCESS) complete_for_user(req, MPI_SUCCESS);
  return rc;
}

// Completing a request is two steps (send_request_done): MPI first, then its end. A thread that was woken by
// the first may start a persistent request again before the second: it waits for the other thread to come
// there, because the handle must stay what it is. nullptr: it is active, or this is its own completion
// callback.
template <class Request>
Request* startable(ompi_request_t* handle) {
  constexpr int kPatience = 1'000'000;
  Request* req = reinterpret_cast<Request*>(handle);
  for (int i = 0; (__atomic_load_n(&req->ends, __ATOMIC_ACQUIRE) & kEngineDone) == 0; ++i) {
    if (!opal_using_threads() || i == kPatience) return nullptr;
    sched_yield();
  }
  return req;
}

int start(Module& module, SendRequest& req) {
  return send_request_start(module, req);
}

int start(Module& module, RecvRequest& req) {
  return recv_request_start(module, req);
}

template <class Request>
int start_again(Module& module, ompi_request_t* handle) {
  Request* req = startable<Request>(handle);
  return req == nullptr ? MPI_ERR_REQUEST : start(module, *req);
}

}  // namespace

RecvRequest* recv_request_alloc() {
  return reinterpret_cast<RecvRequest*>(opal_free_list_wait(&mca_pml_base_recv_requests));
}

void recv_request_init(RecvRequest& req, void* buffer, size_t count, ompi_datatype_t* datatype, int src,
                       int tag, ompi_communicator_t* comm, bool persistent) {
  req.ends = persistent ? kEngineDone : 0;
  req.direct = nullptr;
  MCA_PML_BASE_RECV_REQUEST_INIT(&req.base, buffer, count, datatype, src, tag, comm, persistent);
  req.base.req_base.req_pml_complete = persistent;
}

int start_buffered_mode(Module& module, SendRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  const int rc =
      base.req_ompi.req_persistent ? start_buffered_persistent(module, req) : start_buffered(module, req);
  if (rc == OMPI_SUCCESS) return rc;
  base.req_ompi.req_state = OMPI_REQUEST_INACTIVE;
  base.req_ompi.req_complete = REQUEST_COMPLETED;
  req.ends = kEngineDone;
  return rc;
}

void send_request_done(SendRequest& req, int mpi_error) {
  mca_pml_base_request_t& base = req.base.req_base;
  if (req.base.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) {
    mca_pml_bfo_component.module->buffered().give(req);
  } else {
    // First wake, then mark: a user who frees the request in between leaves its return to the line below.
    complete_for_user(req, mpi_error);
  }
  base.req_pml_complete = true;
  if (add_end(req.ends, kEngineDone) & kUserFreed) give_back(req);
}

// libmpi returns what it gets from here to the user as it is, and ignores it in MPI_Startall: the error
// handler has to be called here, with an error of MPI. The requests behind a bad one are started all the
// same, because the user may wait for them.
int start_requests(size_t count, ompi_request_t** requests) {
  Module& module = *mca_pml_bfo_component.module;
  int first_error = MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) {
    ompi_request_t* request = requests[i];
    if (request == nullptr || request->req_type != OMPI_REQUEST_PML) continue;
    int rc = MPI_ERR_REQUEST;
    switch (reinterpret_cast<mca_pml_base_request_t*>(request)->req_type) {
      case MCA_PML_REQUEST_SEND:
        rc = start_again<SendRequest>(module, request);
        break;
      case MCA_PML_REQUEST_RECV:
        rc = start_again<RecvRequest>(module, request);
        break;
      default:
        break;
    }
    if (rc == OMPI_SUCCESS) [[likely]]
      continue;
    const int error = ompi_errcode_get_mpi_code(rc);
    ompi_communicator_t* comm = request->req_mpi_object.comm;
    ompi_errhandler_invoke(comm->error_handler, comm, static_cast<int>(comm->errhandler_type), error,
                           count == 1 ? "MPI_Start" : "MPI_Startall");
    if (first_error == MPI_SUCCESS) first_error = error;
  }
  return first_error;
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
