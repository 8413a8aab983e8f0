// SPDX-License-Identifier: BSD-3-Clause
//
// recv.cc: the receiving and probing entries of the PML table. They return what goes to the error handler of
// the communicator: an MPI error class, as receives leave it in their status.
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/device.h"
#include "pml/bfo/glue/entry.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/one_thread.h"

namespace bfo::glue {
namespace {

RecvRequest* new_request(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
                         ompi_communicator_t* comm, bool persistent) {
  RecvRequest* req = recv_request_alloc();
  recv_request_init(*req, buffer, count, datatype, src, tag, comm, persistent);
  return req;
}

// Ends a receive from any source that need not end, after a process died: its caller is not to wait for the
// others. One that has a message by now gets it.
[[gnu::noinline]] void withdraw(ompi_request_t& request) {
  ompi_request_cancel(&request);
  while (!REQUEST_COMPLETE(&request)) opal_progress();
  if (!request.req_status._cancelled) return;
  request.req_status._cancelled = 0;
  request.req_status.MPI_ERROR = proc_failed_error();
}

void wait_receive(ompi_request_t& request) {
  wait_request(request);
  if constexpr (kTellsOfTheDead) {
    if (!REQUEST_COMPLETE(&request)) [[unlikely]]
      withdraw(request);
  }
}

// Waits for a blocking receive, copies its status and returns the request to its list.
int finish_blocking(RecvRequest& req, ompi_status_public_t* status) {
  ompi_request_t* handle = &req.base.req_base.req_ompi;
  wait_receive(*handle);
  const int rc = handle->req_status.MPI_ERROR;
  if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, handle->req_status, false);
  ompi_request_free(&handle);
  return rc;
}

void fill_status(const xfer::ProbeResult& result, ompi_status_public_t* status) {
  if (status == MPI_STATUS_IGNORE) return;
  status->MPI_SOURCE = result.source;
  status->MPI_TAG = result.tag;
  status->_ucount = result.length;
  status->_cancelled = 0;
}

Comm* comm_of(ompi_communicator_t* comm) {
  return static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm));
}

// Hands a probed message to a fresh request; consumes the handle. Its reference to the communicator goes when
// the request has one.
RecvRequest* start_matched(void* buffer, size_t count, ompi_datatype_t* datatype, ompi_message_t** message) {
  ompi_communicator_t* comm = (*message)->comm;
  auto* probed = static_cast<Engine::Message*>((*message)->req_ptr);
  RecvRequest* req = new_request(buffer, count, datatype, (*message)->peer, MPI_ANY_TAG, comm, false);
  ompi_message_return(*message);
  OBJ_RELEASE(comm);
  *message = MPI_MESSAGE_NULL;
  MCA_PML_BASE_RECV_START(&req->base);
  mca_pml_bfo_component.module->engine().imrecv(probed, req, recv_capacity(req->base.req_base));
  return req;
}

}  // namespace

int pml_irecv_init(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
                   ompi_communicator_t* comm, ompi_request_t** request) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  *request = &new_request(buffer, count, datatype, src, tag, comm, true)->base.req_base.req_ompi;
  return OMPI_SUCCESS;
}

int pml_irecv(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
              ompi_communicator_t* comm, ompi_request_t** request) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  RecvRequest* req = new_request(buffer, count, datatype, src, tag, comm, false);
  *request = &req->base.req_base.req_ompi;
  return recv_request_start(*mca_pml_bfo_component.module, *req);
}

int pml_recv(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
             ompi_communicator_t* comm, ompi_status_public_t* status) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  Module& module = *mca_pml_bfo_component.module;
  if (opal_using_threads()) [[unlikely]] {
    RecvRequest* req = new_request(buffer, count, datatype, src, tag, comm, false);
    recv_request_start(module, *req);
    return finish_blocking(*req, status);
  }
  // One thread: the same request serves one blocking receive after the other. A receive inside a callback of
  // another one finds it taken and uses a fresh one.
  RecvRequest* req = module.take_cached();
  if (req == nullptr) [[unlikely]]
    req = recv_request_alloc();
  recv_request_fill(*req, buffer, count, datatype, src, tag, comm);
  recv_request_start(module, *req);
  ompi_request_t& handle = req->base.req_base.req_ompi;
  wait_receive(handle);
  const int rc = handle.req_status.MPI_ERROR;
  if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, handle.req_status, false);
  handle.req_state = OMPI_REQUEST_INVALID;
  module.give_cached(req);
  return rc;
}

int pml_imrecv(void* buffer, size_t count, ompi_datatype_t* datatype, ompi_message_t** message,
               ompi_request_t** request) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  *request = &start_matched(buffer, count, datatype, message)->base.req_base.req_ompi;
  return OMPI_SUCCESS;
}

int pml_mrecv(void* buffer, size_t count, ompi_datatype_t* datatype, ompi_message_t** message,
              ompi_status_public_t* status) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  return finish_blocking(*start_matched(buffer, count, datatype, message), status);
}

int pml_iprobe(int src, int tag, ompi_communicator_t* comm, int* matched, ompi_status_public_t* status) {
  xfer::ProbeResult result;
  *matched = mca_pml_bfo_component.module->engine().iprobe(comm_of(comm), src, tag, result) ? 1 : 0;
  if (*matched != 0) {
    fill_status(result, status);
  } else {
    opal_progress();
  }
  return mpi_error(result.outcome, *comm, tag);
}

int pml_probe(int src, int tag, ompi_communicator_t* comm, ompi_status_public_t* status) {
  int matched = 0;
  int rc = OMPI_SUCCESS;
  while (rc == OMPI_SUCCESS && matched == 0) {
    rc = pml_iprobe(src, tag, comm, &matched, status);
    if (rc == OMPI_SUCCESS && matched == 0) rc = wait_error(*comm, src);
  }
  return rc;
}

int pml_improbe(int src, int tag, ompi_communicator_t* comm, int* matched, ompi_message_t** message,
                ompi_status_public_t* status) {
  xfer::ProbeResult result;
  Engine::Message* found = mca_pml_bfo_component.module->engine().improbe(comm_of(comm), src, tag, result);
  *matched = found != nullptr ? 1 : 0;
  if (found == nullptr) {
    *message = MPI_MESSAGE_NULL;
    opal_progress();
    return mpi_error(result.outcome, *comm, tag);
  }
  ompi_message_t* handle = ompi_message_alloc();
  OBJ_RETAIN(comm);  // the user may free it before the message is received
  handle->comm = comm;
  handle->req_ptr = found;
  handle->peer = result.source;
  handle->count = result.length;
  *message = handle;
  fill_status(result, status);
  return OMPI_SUCCESS;
}

int pml_mprobe(int src, int tag, ompi_communicator_t* comm, ompi_message_t** message,
               ompi_status_public_t* status) {
  int matched = 0;
  int rc = OMPI_SUCCESS;
  while (rc == OMPI_SUCCESS && matched == 0) {
    rc = pml_improbe(src, tag, comm, &matched, message, status);
    if (rc == OMPI_SUCCESS && matched == 0) rc = wait_error(*comm, src);
  }
  return rc;
}

}  // namespace bfo::glue
