// SPDX-License-Identifier: BSD-3-Clause
//
// send.cc: the sending entries of the PML table.
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/device.h"
#include "pml/bfo/glue/entry.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/one_thread.h"

namespace bfo::glue {
namespace {

// One eager message without a request: header and payload go to the BTL in one call, nothing is kept.
bool send_inline(Module& module, const void* buffer, size_t count, ompi_datatype_t* datatype, int dst,
                 int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, bool blocking) {
  if (mode == MCA_PML_BASE_SEND_SYNCHRONOUS || mode == MCA_PML_BASE_SEND_BUFFERED) return false;
  size_t size = 0;
  opal_datatype_type_size(&datatype->super, &size);
  xfer::SendArgs<BtlPort> args;
  args.comm = static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm));
  args.dst = dst;
  args.tag = tag;
  args.length = size * count;
  args.blocking = blocking;
  InlineSource source = {buffer, count, datatype};
  return module.engine().send_inline(args, source);
}

inline SendRequest* new_request(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
                                mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, bool persistent) {
  SendRequest* req = send_request_alloc();
  send_request_init(*req, buffer, count, datatype, dst, tag, mode, comm, ompi_comm_peer_lookup(comm, dst),
                    persistent);
  return req;
}

}  // namespace

int pml_isend_init(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
                   mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** request) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  SendRequest* req = new_request(buffer, count, datatype, dst, tag, mode, comm, true);
  *request = &req->base.req_base.req_ompi;
  return OMPI_SUCCESS;
}

int pml_isend(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
              mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** request) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  Module& module = *mca_pml_bfo_component.module;
  if (send_inline(module, buffer, count, datatype, dst, tag, mode, comm, false)) {
    *request = &ompi_request_empty;
    return OMPI_SUCCESS;
  }
  SendRequest* req = new_request(buffer, count, datatype, dst, tag, mode, comm, false);
  const int rc = send_request_start(module, *req);
  ompi_request_t* handle = &req->base.req_base.req_ompi;
  if (rc != OMPI_SUCCESS) {
    ompi_request_free(&handle);
    return rc;
  }
  *request = handle;
  return OMPI_SUCCESS;
}

namespace {

[[gnu::noinline]] int send_with_request(Module& module, const void* buffer, size_t count,
                                        ompi_datatype_t* datatype, int dst, int tag,
                                        mca_pml_base_send_mode_t mode, ompi_communicator_t* comm) {
  SendRequest* req = new_request(buffer, count, datatype, dst, tag, mode, comm, false);
  ompi_request_t* handle = &req->base.req_base.req_ompi;
  int rc = send_request_start(module, *req);
  if (rc == OMPI_SUCCESS) {
    wait_request(*handle);
    rc = handle->req_status.MPI_ERROR;
  }
  ompi_request_free(&handle);
  return rc;
}

}  // namespace

[[gnu::flatten]] int pml_send(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
                              mca_pml_base_send_mode_t mode, ompi_communicator_t* comm) {
  if (const int rc = check_buffer(buffer, count, *datatype); rc != MPI_SUCCESS) return rc;
  Module& module = *mca_pml_bfo_component.module;
  if (send_inline(module, buffer, count, datatype, dst, tag, mode, comm, true)) [[likely]]
    return OMPI_SUCCESS;
  return send_with_request(module, buffer, count, datatype, dst, tag, mode, comm);
}

}  // namespace bfo::glue
