// SPDX-License-Identifier: BSD-3-Clause
//
// btl_port.cc: memory, registration, and the rails' side of the Port.
#include "pml/bfo/glue/btl_port.h"

#include <algorithm>
#include <ctime>

#include "common/shown_text.h"
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/device.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/one_thread.h"
#include "pml/bfo/glue/request.h"
#include "pml/bfo/glue/help.h"

namespace bfo::glue {
namespace {

void* segment_alloc(void*, size_t* size) {
  return ::malloc(*size);
}
void segment_free(void*, void* segment) {
  ::free(segment);
}

// In front of every block of alloc(): where free() returns it.
struct BlockHeader {
  opal_free_list_item_t* small;  // nullptr: came from the allocator
  uint64_t pad;                  // keeps the payload 16-byte aligned
};

}  // namespace

bool BtlPort::init(const Params& params, bool threads) {
  const char* allocator = params.allocator == nullptr ? "" : params.allocator;  // as Open MPI stores ""
  mca_allocator_base_component_t* component = mca_allocator_component_lookup(allocator);
  if (component == nullptr) {
    show_help("no-allocator", shown(allocator).c_str());
    return false;
  }
  allocator_ = component->allocator_init(threads, segment_alloc, segment_free, nullptr);
  if (allocator_ == nullptr) return false;

  OBJ_CONSTRUCT(&frags_, opal_free_list_t);
  OBJ_CONSTRUCT(&small_, opal_free_list_t);
  ready_ = true;
  int rc = opal_free_list_init(&frags_, sizeof(FragRecord), opal_cache_line_size, OBJ_CLASS(bfo_pml_frag_t),
                               0, opal_cache_line_size, params.free_list_num, params.free_list_max,
                               params.free_list_inc, nullptr, 0, nullptr, nullptr, nullptr);
  if (rc != OPAL_SUCCESS) return false;
  // A short unexpected message is kept with its header in one record; 16 bytes hold a MATCH header.
  small_size_ = sizeof(xfer::Unexpected<BtlPort>) + 16 + static_cast<size_t>(params.unexpected_limit);
  rc = opal_free_list_init(&small_, sizeof(opal_free_list_item_t), opal_cache_line_size,
                           OBJ_CLASS(opal_free_list_item_t), sizeof(BlockHeader) + small_size_, 16,
                           params.free_list_num, -1, params.free_list_inc, nullptr, 0, nullptr, nullptr,
                           nullptr);
  return rc == OPAL_SUCCESS;
}

BtlPort::~BtlPort() {
  if (ready_) {
    OBJ_DESTRUCT(&frags_);
    OBJ_DESTRUCT(&small_);
  }
  if (allocator_ != nullptr) allocator_->alc_finalize(allocator_);
}

void* BtlPort::alloc(size_t size) {
  BlockHeader* block = nullptr;
  if (size <= small_size_) {
    if (opal_free_list_item_t* item = take_item(small_); item != nullptr) {
      block = static_cast<BlockHeader*>(item->ptr);
      block->small = item;
    }
  } else {
    block = static_cast<BlockHeader*>(allocator_->alc_alloc(allocator_, sizeof(BlockHeader) + size, 0));
    if (block != nullptr) block->small = nullptr;
  }
  return block != nullptr ? block + 1 : nullptr;
}

void BtlPort::free(void* memory) {
  if (memory == nullptr) return;
  BlockHeader* block = static_cast<BlockHeader*>(memory) - 1;
  if (block->small != nullptr) {
    give_item(small_, *block->small);
  } else {
    allocator_->alc_free(allocator_, block);
  }
}

Trail* BtlPort::make_trail(const Layout& layout) {
  void* const memory = alloc(sizeof(Trail));
  return memory != nullptr ? ::new (memory) Trail(layout) : nullptr;
}

void BtlPort::drop_trail(Trail*& trail) {
  if (trail != not_unpacked()) [[likely]] {
    trail->~Trail();
    free(trail);
  }
  trail = nullptr;
}

int BtlPort::end_trail(RecvRequest& req, int error) {
  const bool unpacked = req.trail != not_unpacked();
  drop_trail(req.trail);
  if (unpacked || error != MPI_SUCCESS) return error;
  return is_staged(req) ? MPI_ERR_OTHER : MPI_ERR_NO_MEM;
}

void BtlPort::unpack_failed(RecvRequest& req, bool staged) {
  const auto bytes = static_cast<unsigned long>(req.base.req_bytes_packed);
  if constexpr (kStagesDevices) req.staged = staged;  // end_trail() asks
  if (staged)
    show_help("device-unwritable", accelerator_name(), bytes, req.xfer.status.source);
  else
    show_help("no-memory-for-type", bytes, req.xfer.status.source);
  if (req.trail != nullptr) drop_trail(req.trail);
  req.trail = not_unpacked();
}

void BtlPort::unpack_scattered(RecvRequest& req, uint64_t offset, const void* bytes, size_t length) {
  if (req.trail == not_unpacked()) [[unlikely]]
    return;
  const mca_pml_base_request_t& base = req.base.req_base;
  const Layout layout(base.req_datatype->super, base.req_count, base.req_addr, is_staged(req));
  if (req.trail == nullptr && offset != 0 && !layout.one_block()) req.trail = make_trail(layout);
  if (req.trail == nullptr) {
    Cursor cursor;
    cursor.skip(layout, offset);
    if (!cursor.scatter(layout, bytes, length)) [[unlikely]]
      unpack_failed(req, is_staged(req));
    return;
  }
  const uint64_t end = offset + length;
  const bool wanted = !req.xfer.rndv->received.covers(end, end + 1);
  if (!req.trail->scatter(offset, bytes, length, wanted)) [[unlikely]]
    unpack_failed(req, is_staged(req));
}

// ---- messages of a process to itself

// MPI forbids buffers that overlap. Programs that have them all the same get what they sent, as over a rail.
void BtlPort::copy_piece(const void* bytes, RecvRequest& to, size_t length) {
  if (to.direct == nullptr) [[unlikely]]
    return unpack(to, 0, bytes, length);
  memmove(to.direct, bytes, length);
}

// From device to device in one piece, without the host. False: not one piece, nothing was done.
bool BtlPort::copy_staged(const Layout& from, const Layout& to, size_t length) {
  if (!from.one_block() || !to.one_block()) return false;
  return device_copy(reinterpret_cast<void*>(to.base), reinterpret_cast<const void*>(from.base), length,
                     true);
}

// Neither buffer need be contiguous: then the bytes are copied through a buffer on the stack.
void BtlPort::copy_scattered(const Layout& from, RecvRequest& to, size_t length) {
  if (to.direct != nullptr) {
    Cursor cursor;
    if (!cursor.gather(from, to.direct, length)) unpack_failed(to, from.device);
    return;
  }
  const mca_pml_base_request_t& base = to.base.req_base;
  const Layout layout(base.req_datatype->super, base.req_count, base.req_addr, is_staged(to));
  if (kStagesDevices && copy_staged(from, layout, length)) return;
  uint8_t part[16384];
  Cursor out;
  Cursor in;
  for (size_t done = 0; done < length;) {
    const size_t n = std::min(sizeof(part), length - done);
    if (!out.gather(from, part, n) || !in.scatter(layout, part, n))
      return unpack_failed(to, from.device || layout.device);
    done += n;
  }
}

void BtlPort::copy(SendRequest& from, RecvRequest& to, size_t length) {
  if (const void* bytes = contiguous(from); bytes != nullptr) [[likely]]
    return copy_piece(bytes, to, length);
  copy_scattered(Layout(from.base.req_base.req_convertor, is_staged(from)), to, length);
}

void BtlPort::copy(InlineSource& from, RecvRequest& to, size_t length) {
  const bool staged = is_staged(from);
  if (const void* bytes = staged ? nullptr : one_piece(from); bytes != nullptr) [[likely]]
    return copy_piece(bytes, to, length);
  copy_scattered(Layout(from.datatype->super, from.count, from.buffer, staged), to, length);
}

bool BtlPort::gather(SendRequest& from, void* to, size_t length) {
  if (const void* bytes = contiguous(from); bytes != nullptr) [[likely]] {
    memcpy(to, bytes, length);
    return true;
  }
  Cursor cursor;
  return cursor.gather(Layout(from.base.req_base.req_convertor, is_staged(from)), to, length);
}

bool BtlPort::gather(InlineSource& from, void* to, size_t length) {
  const bool staged = is_staged(from);
  if (const void* bytes = staged ? nullptr : one_piece(from); bytes != nullptr) [[likely]] {
    memcpy(to, bytes, length);
    return true;
  }
  Cursor cursor;
  return cursor.gather(Layout(from.datatype->super, from.count, from.buffer, staged), to, length);
}

bool BtlPort::send_converted(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                             InlineSource source, size_t length) {
  opal_convertor_t conv;
  construct(conv);
  opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &source.datatype->super, source.count,
                                           source.buffer, kDeviceKnown, &conv);
  const bool taken = sendi_convertor(rail, tag, hdr, hdr_size, &conv, length);
  opal_convertor_cleanup(&conv);
  return taken;
}

bool BtlPort::send_staged(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                          const Layout& layout, size_t length) {
  if (rail.failover == nullptr) return stock_.send_gathered(rail, tag, hdr, hdr_size, layout, length);
  if (length > kStaged) return false;
  uint8_t packed[kStaged];
  Cursor cursor;
  if (!cursor.gather(layout, packed, length)) return false;
  return rail.failover->send_bytes(rail.btl, rail.ep, tag, hdr, hdr_size, packed, length) == OPAL_SUCCESS;
}

// A convertor is prepared and called for longer than it takes to copy a short payload twice.
bool BtlPort::send_scattered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                             InlineSource source, size_t length) {
  if (length > kGathered) return send_converted(rail, tag, hdr, hdr_size, source, length);
  uint8_t whole[sizeof(core::MatchHdr) + kGathered];
  BFO_DCHECK(hdr_size == sizeof(core::MatchHdr));
  uint8_t* const packed = whole + hdr_size;
  Cursor cursor;
  if (!cursor.gather(Layout(source.datatype->super, source.count, source.buffer), packed, length))
      [[unlikely]]
    return false;
  if (rail.failover != nullptr)
    return rail.failover->send_bytes(rail.btl, rail.ep, tag, hdr, hdr_size, packed, length) == OPAL_SUCCESS;
  // In the header: vader puts no payload into its box that a convertor has to pack.
  memcpy(whole, hdr, hdr_size);
  return sendi_header(rail, tag, whole, hdr_size + length);
}

// ---- MPI

void BtlPort::complete_send(SendRequest& req, Outcome outcome) {
  if (req.trail != nullptr) [[unlikely]]
    drop_trail(req.trail);
  int error = MPI_SUCCESS;
  if (outcome != Outcome::kOk) [[unlikely]] {
    const mca_pml_base_request_t& base = req.base.req_base;
    const bool refused = outcome == Outcome::kPeerLost && !req.xfer.proc->peer->standing.failed();
    error = lost_error(outcome, *base.req_comm, base.req_tag, refused);
  }
  send_request_done(req, error);
}

void* BtlPort::resolve(const CommHandle& comm, int32_t rank) {
  return module_.peer(ompi_comm_peer_lookup(comm.comm, rank));
}

void* BtlPort::known(const CommHandle& comm, int32_t rank) const {
  ompi_proc_t* proc = ompi_group_peer_lookup_existing(comm.comm->c_remote_group, rank);
  return proc != nullptr ? proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] : nullptr;
}

// ---- rails

void BtlPort::fence(const RailHandle& rail, uint32_t epoch) {
  rail.failover->fence(rail.btl, rail.ep, epoch);
}

void BtlPort::connect(const RailHandle& rail) {
  rail.failover->connect(rail.btl, rail.ep);
}

void BtlPort::peer_down(const RailHandle& rail, const RailName& name, int32_t cause) {
  const bfo_rail_name_t wire = {name.conn, name.epoch, 0};
  if (rail.failover == nullptr)
    return;  // forged: such a rail has no epochs, and no process sends this about it
  rail.failover->peer_down(rail.btl, rail.ep, &wire, cause);
}

void BtlPort::peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered) {
  const bfo_rail_name_t wire = {name.conn, name.epoch, 0};
  if (rail.failover == nullptr) return;
  rail.failover->peer_closed(rail.btl, rail.ep, &wire, delivered);
}

xfer::WorkCount BtlPort::work(const RailHandle& rail) {
  xfer::WorkCount count;
  rail.failover->work(rail.btl, rail.ep, &count.taken, &count.ended);
  return count;
}

// ---- clock and log

uint64_t BtlPort::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace bfo::glue
