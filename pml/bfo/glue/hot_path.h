// SPDX-License-Identifier: BSD-3-Clause
//
// hot_path.h: the functions of the glue that every short message calls. They are inline, so that the compiler
// merges them with the engine's code. Included by module.h only.
#pragma once

#include "common/copy.h"
#include "pml/bfo/glue/deaths.h"
#include "pml/bfo/glue/device.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {

/// Sets one end and returns what was set before. Plain when the process has one thread.
inline int32_t add_end(int32_t& ends, int32_t end) {
  if (opal_using_threads()) return __atomic_fetch_or(&ends, end, __ATOMIC_ACQ_REL);
  return std::exchange(ends, ends | end);
}

/// sendi with the payload described by a convertor that stands at its beginning.
inline bool sendi_convertor(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                            opal_convertor_t* conv, size_t length) {
  if (rail.btl->btl_sendi == nullptr) return stock_send().send_copy(rail, tag, hdr, hdr_size, conv, length);
  if (rail.btl->btl_sendi(rail.btl, rail.ep, conv, const_cast<void*>(hdr), hdr_size, length, MCA_BTL_NO_ORDER,
                          MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, tag,
                          nullptr) == OPAL_SUCCESS) [[likely]]
    return true;
  // Its buffer for such messages is full (vader: 4 KiB). A BTL with the contract has no other way either.
  return rail.failover == nullptr && stock_send().send_copy(rail, tag, hdr, hdr_size, conv, length);
}

/// sendi of `size` bytes that are all in the header: no convertor is prepared or called.
inline bool sendi_header(const RailHandle& rail, uint8_t tag, const void* whole, size_t size) {
  opal_convertor_t none;
  none.flags = CONVERTOR_HOMOGENEOUS;  // some BTLs look at them even with no payload
  return sendi_convertor(rail, tag, whole, size, &none, 0);
}

/// OBJ_CONSTRUCT without the walk through the classes: what a convertor needs before it is prepared.
inline void construct(opal_convertor_t& conv) {
  conv.pStack = conv.static_stack;
  conv.stack_size = DT_STATIC_STACK_SIZE;
  conv.partial_length = 0;
  copy_as_usual(conv);
}

/// Do `count` elements lie one behind the other? Open MPI's function takes an int, and distinguishes one from
/// more only.
inline bool is_dense(const opal_datatype_t& type, size_t count) {
  return opal_datatype_is_contiguous_memory_layout(&type, count == 1 ? 1 : 2) != 0;
}

inline bool is_staged(const InlineSource& source) {
  return is_staged(source.buffer, source.datatype->super);
}

/// Byte 0 of a buffer that is one piece, else nullptr. The buffer is not staged.
inline const void* one_piece(const InlineSource& from) {
  const opal_datatype_t& type = from.datatype->super;
  if (!is_dense(type, from.count)) return nullptr;
  return static_cast<const uint8_t*>(from.buffer) + type.true_lb;
}

[[gnu::always_inline]] inline bool BtlPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr,
                                                  size_t hdr_size, const InlineSource& source,
                                                  size_t length) {
  if (length != 0 && is_staged(source)) [[unlikely]]
    return send_staged(rail, tag, hdr, hdr_size,
                       Layout(source.datatype->super, source.count, source.buffer, true), length);
  if (rail.failover != nullptr) [[likely]] {
    const void* const bytes = length == 0 ? nullptr : one_piece(source);
    if (bytes != nullptr || length == 0) [[likely]]
      return rail.failover->send_bytes(rail.btl, rail.ep, tag, hdr, hdr_size, bytes, length) == OPAL_SUCCESS;
    return send_scattered(rail, tag, hdr, hdr_size, source, length);
  }
  if (length == 0) return sendi_header(rail, tag, hdr, hdr_size);
  const void* const bytes = one_piece(source);
  const size_t always = bytes != nullptr ? StockSend::kAlwaysSendi : StockSend::kAlwaysScattered;
  const bool sendi = length <= always && rail.btl->btl_sendi != nullptr;
  if (!sendi && stock_.wants_fragment(rail, length)) [[unlikely]] {
    if (bytes != nullptr) return stock_.send_piece(rail, tag, hdr, hdr_size, bytes, length);
    return stock_.send_gathered(rail, tag, hdr, hdr_size, source, length);
  }
  if (bytes == nullptr && rail.whole_in_header) [[unlikely]]
    return send_scattered(rail, tag, hdr, hdr_size, source, length);
  if (length <= StockSend::kAlwaysSendi && rail.whole_in_header) {
    alignas(16) char whole[sizeof(core::MatchHdr) + StockSend::kAlwaysSendi];
    BFO_DCHECK(hdr_size == sizeof(core::MatchHdr));
    copy_joined(whole, hdr, sizeof(core::MatchHdr), bytes, length);
    return sendi_header(rail, tag, whole, hdr_size + length);
  }
  return send_converted(rail, tag, hdr, hdr_size, source, length);
}

inline void BtlPort::matched(RecvRequest& req, int32_t, int32_t, uint64_t length) {
  mca_pml_base_request_t& base = req.base.req_base;
  req.base.req_bytes_packed = length;
  if (length == 0 || base.req_count == 0) return;
  const opal_datatype_t& type = base.req_datatype->super;
  if constexpr (kStagesDevices) req.staged = is_staged(base.req_addr, type);
  if (!is_staged(req) && is_dense(type, base.req_count)) [[likely]] {
    req.direct = static_cast<uint8_t*>(base.req_addr) + type.true_lb;
    return;
  }
  req.direct = nullptr;
}

inline void BtlPort::unpack(RecvRequest& req, uint64_t offset, const void* bytes, size_t length) {
  if (req.direct != nullptr) [[likely]] {
    memcpy(req.direct + offset, bytes, length);
    return;
  }
  if (length > 0) unpack_scattered(req, offset, bytes, length);
}

inline uint64_t recv_capacity(const mca_pml_base_request_t& base) {
  size_t size = 0;
  opal_datatype_type_size(&base.req_datatype->super, &size);
  return static_cast<uint64_t>(size) * base.req_count;
}

inline void recv_request_done(RecvRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  ompi_request_complete(&base.req_ompi, true);
  base.req_pml_complete = true;
  if (add_end(req.ends, kEngineDone) & kUserFreed) give_back(req);
}

/// What MPI calls it: of a request of `comm` with `tag`, see lost_error().
inline int mpi_error(Outcome outcome, ompi_communicator_t& comm, int tag) {
  if (outcome == Outcome::kOk) [[likely]]
    return MPI_SUCCESS;
  return outcome == Outcome::kTruncated ? MPI_ERR_TRUNCATE : lost_error(outcome, comm, tag, false);
}

inline void BtlPort::complete_recv(RecvRequest& req, const xfer::RecvStatus& status) {
  int error = mpi_error(status.outcome, *req.base.req_base.req_comm, req.base.req_base.req_tag);
  if (req.trail != nullptr) [[unlikely]]
    error = end_trail(req, error);
  ompi_status_public_t& out = req.base.req_base.req_ompi.req_status;
  out.MPI_SOURCE = status.source;
  out.MPI_TAG = status.tag;
  out._ucount = status.length;
  out.MPI_ERROR = error;
  recv_request_done(req);
}

inline xfer::SendMode mode_of(mca_pml_base_send_mode_t mode) {
  if (mode == MCA_PML_BASE_SEND_STANDARD) [[likely]]
    return xfer::SendMode::kStandard;
  if (mode == MCA_PML_BASE_SEND_SYNCHRONOUS) return xfer::SendMode::kSync;
  return mode == MCA_PML_BASE_SEND_READY ? xfer::SendMode::kReady : xfer::SendMode::kStandard;
}

inline SendRequest* send_request_alloc() {
  return reinterpret_cast<SendRequest*>(opal_free_list_wait(&mca_pml_base_send_requests));
}

inline void send_request_init(SendRequest& req, const void* buffer, size_t count, ompi_datatype_t* datatype,
                              int dst, int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm,
                              ompi_proc_t* proc, bool persistent) {
  req.base.req_base.req_proc = proc;
  req.ends = persistent ? kEngineDone : 0;
  MCA_PML_BASE_SEND_REQUEST_INIT(&req.base, buffer, count, datatype, dst, tag, comm, mode, persistent,
                                 kDeviceKnown);
  if constexpr (kStagesDevices)
    req.staged = req.base.req_bytes_packed != 0 && is_staged(buffer, datatype->super);
  req.base.req_base.req_pml_complete = persistent;
}

inline int send_request_start(Module& module, SendRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  req.ends = 0;
  base.req_pml_complete = false;
  base.req_ompi.req_complete = REQUEST_PENDING;
  base.req_ompi.req_state = OMPI_REQUEST_ACTIVE;
  base.req_ompi.req_status._cancelled = 0;
  base.req_ompi.req_status.MPI_ERROR = MPI_SUCCESS;  // of an earlier start of a persistent request
  if (req.base.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) [[unlikely]] {
    const bool persistent = base.req_ompi.req_persistent;  // such a request may be the user's again then
    const int rc = start_buffered_mode(module, req);
    if (rc != OMPI_SUCCESS || persistent) return rc;
  }
  xfer::SendArgs<BtlPort> args;
  args.comm = static_cast<Comm*>(static_cast<void*>(base.req_comm->c_pml_comm));
  args.dst = base.req_peer;
  args.tag = base.req_tag;
  args.length = req.base.req_bytes_packed;
  args.mode = mode_of(req.base.req_send_mode);
  module.engine().isend(&req, args);
  if (module.engine().waits_for_rails()) [[unlikely]]
    module.connect_on();
  return OMPI_SUCCESS;
}

inline void recv_request_fill(RecvRequest& req, void* buffer, size_t count, ompi_datatype_t* datatype,
                              int src, int tag, ompi_communicator_t* comm) {
  mca_pml_base_request_t& base = req.base.req_base;
  req.ends = 0;
  req.direct = nullptr;
  base.req_ompi.req_persistent = false;
  base.req_ompi.req_complete_cb = nullptr;
  base.req_ompi.req_mpi_object.comm = comm;
  base.req_addr = buffer;
  base.req_count = count;
  base.req_datatype = datatype;
  base.req_peer = src;
  base.req_tag = tag;
  base.req_comm = comm;
  base.req_proc = nullptr;
  base.req_free_called = false;
}

inline int recv_request_start(Module& module, RecvRequest& req) {
  mca_pml_base_request_t& base = req.base.req_base;
  req.ends = 0;
  MCA_PML_BASE_RECV_START(&req.base);
  xfer::RecvArgs<BtlPort> args;
  args.comm = static_cast<Comm*>(static_cast<void*>(base.req_comm->c_pml_comm));
  args.src = base.req_peer;
  args.tag = base.req_tag;
  args.capacity = recv_capacity(base);
  // osc pt2pt, a layer inside Open MPI, would take the buffer for a message.
  args.keeps_waiting = base.req_ompi.req_complete_cb != nullptr;
  module.engine().irecv(&req, args);
  return OMPI_SUCCESS;
}

}  // namespace bfo::glue

#include "pml/bfo/glue/long_path.h"
