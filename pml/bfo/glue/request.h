// SPDX-License-Identifier: BSD-3-Clause
//
// request.h: MPI requests of this PML: Open MPI's base request first, the engine's state behind it.
#pragma once

#include "common/compat/ompi_includes.h"
#include "pml/bfo/glue/btl_port.h"

namespace bfo::glue {

/// The two events after which a request goes back to its free list; whichever comes second returns it.
enum : int32_t { kEngineDone = 1, kUserFreed = 2 };

struct SendRequest {
  mca_pml_base_send_request_t base;  ///< must be first: debuggers and libmpi see only this
  int32_t ends;                      ///< kEngineDone | kUserFreed
  bool staged;                       ///< its buffer is a device's (device.h)
  Trail* trail;                      ///< while a rendezvous gathers its bytes, else nullptr
  xfer::SendState<BtlPort> xfer;
};

struct RecvRequest {
  mca_pml_base_recv_request_t base;  ///< must be first
  int32_t ends;
  bool staged;  ///< the buffer of a matched message is a device's (device.h)
  uint8_t*
      direct;  ///< first byte of the user's buffer while a matched message fits it in one piece, else nullptr
  Trail* trail;  ///< while a rendezvous scatters its bytes, else nullptr
  xfer::RecvState<BtlPort> xfer;
};

/// Record of one posted fragment.
struct FragRecord {
  opal_free_list_item_t super;  ///< must be first
  Module* module;
  alignas(8) uint8_t remote_handle[core::kMaxHandle];  ///< must outlive a queued put or get
  xfer::FragState<BtlPort> xfer;
};

/// Is its buffer, of a message that is not empty, a device's?
template <class Request>
bool is_staged(const Request& req) {
  return kStagesDevices && req.staged;
}

/// Takes a request from its free list, growing it; nullptr only when the user's limit is reached and nothing
/// comes back (the caller waits with progress).
SendRequest* send_request_alloc();
RecvRequest* recv_request_alloc();

/// Fills the base request and its convertor. `proc` is the destination.
void send_request_init(SendRequest& req, const void* buffer, size_t count, ompi_datatype_t* datatype, int dst,
                       int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_proc_t* proc,
                       bool persistent);
/// The receive's fields without references to communicator and data type: for a blocking call, which keeps
/// both alive itself.
void recv_request_fill(RecvRequest& req, void* buffer, size_t count, ompi_datatype_t* datatype, int src,
                       int tag, ompi_communicator_t* comm);
void recv_request_init(RecvRequest& req, void* buffer, size_t count, ompi_datatype_t* datatype, int src,
                       int tag, ompi_communicator_t* comm, bool persistent);

/// Starts a request that was initialised: sets it active and hands it to the engine. Returns OMPI_SUCCESS or
/// the error of a buffered send that found no buffer.
int send_request_start(Module& module, SendRequest& req);
int recv_request_start(Module& module, RecvRequest& req);

/// Copies the payload of a buffered send and completes it for the user. A carrier sends the message of a
/// persistent one; that of another one is still to be sent. Returns OMPI_SUCCESS or the error as above.
int start_buffered_mode(Module& module, SendRequest& req);

/// The engine is done with it: set the status, wake the waiters, give it back when the user has freed it.
void send_request_done(SendRequest& req, int mpi_error);
/// The receive's status is already in the request.
void recv_request_done(RecvRequest& req);

/// Bytes the posted receive can take.
uint64_t recv_capacity(const mca_pml_base_request_t& base);

/// Gives a receive back to its free list, with its references.
void give_back(RecvRequest& req);

/// req_start of both kinds: MPI_Start and MPI_Startall.
int start_requests(size_t count, ompi_request_t** requests);

/// Initialises libmpi's two global request lists with our types. Returns OMPI_SUCCESS or an error.
int request_lists_init(const Params& params);

}  // namespace bfo::glue

typedef bfo::glue::SendRequest bfo_pml_send_request_t;
typedef bfo::glue::RecvRequest bfo_pml_recv_request_t;
typedef bfo::glue::FragRecord bfo_pml_frag_t;
extern "C" {
OBJ_CLASS_DECLARATION(bfo_pml_send_request_t);
OBJ_CLASS_DECLARATION(bfo_pml_recv_request_t);
OBJ_CLASS_DECLARATION(bfo_pml_frag_t);
}
