// SPDX-License-Identifier: BSD-3-Clause
//
// send.h: posting into an endpoint's ring and taking completions out of it. This is the hot path: no
// allocation, no lock when Open MPI does not use threads, one work request and at most one signaled
// completion in signal_interval per small message.
#pragma once

#include <arpa/inet.h>

#include <cstdint>

#include "btl/verbs/engine/device/cq.h"
#include "btl/verbs/engine/rail/endpoint.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

/// What send(), put() and get() return.
enum class Accepted : int8_t {
  kPosted,   ///< with the device
  kQueued,   ///< queued: connecting, or no slot free
  kRefused,  ///< the rail is down: never sent, the caller keeps the fragment
};

/// Room in the ring for one more data work request. Under the lock.
inline bool ring_has_room(const SendRing& ring) {
  return ring.head - ring.tail < ring.limit;
}

/// True when work given now would be posted, not queued. A guess when other threads send too.
inline bool leaves_at_once(const Endpoint& endpoint) {
  return endpoint.usable && endpoint.queued.empty() && ring_has_room(endpoint.ring());
}

/// Where the payload of the next slot goes. Under the lock, ring_has_room() and length <= slot_bytes checked
/// by the caller.
inline char* ring_next_payload(SendRing& ring) {
  return ring.memory + static_cast<size_t>(ring.head & ring.mask) * ring.slot_bytes;
}

/// Posts one SEND of `length` bytes at `data`. Under the lock, with room. 0, or errno: then nothing was
/// posted and the endpoint is going to be closed.
int ring_post_send(SendRing& ring, Frag* frag, const void* data, uint32_t length, uint32_t lkey, Kind kind,
                   uint8_t tag, bool signaled);

/// Reserves the next slot for a payload of `length` bytes and returns its memory; nullptr when the message
/// cannot leave at once (not up, queue not empty, no room, too long). Takes the lock, which slot_commit() or
/// slot_cancel() releases.
/// `*ring` is the endpoint's, read under the lock: another thread may just have made it.
[[gnu::always_inline]] inline char* slot_reserve(Endpoint& endpoint, uint32_t length, SendRing** ring) {
  endpoint.port->lock().lock();
  SendRing& own = endpoint.ring();
  *ring = &own;
  if (endpoint.usable && length <= own.slot_bytes && ring_has_room(own) && endpoint.queued.empty())
      [[likely]] {
    return ring_next_payload(own);
  }
  endpoint.port->lock().unlock();
  return nullptr;
}

/// Posts the reserved slot. True when the device took it; false: nothing was sent, the rail is going to be
/// closed.
[[gnu::always_inline]] inline bool slot_commit(SendRing& ring, char* payload, uint32_t length, uint8_t tag) {
  Port& port = *ring.port;
  const int rc = ring_post_send(ring, nullptr, payload, length, ring.lkey, Kind::kSendi, tag, false);
  if (rc == 0) ++port.accounting().accepted[BFO_KIND_SENDI];
  port.lock().unlock();
  return rc == 0;
}
inline char* slot_reserve(Endpoint& endpoint, uint32_t length) {
  SendRing* ring;
  return slot_reserve(endpoint, length, &ring);
}
inline bool slot_commit(Endpoint& endpoint, char* payload, uint32_t length, uint8_t tag) {
  return slot_commit(endpoint.ring(), payload, length, tag);
}
inline void slot_cancel(Endpoint& endpoint) {
  endpoint.port->lock().unlock();
}

/// Sends `frag` (kind kSend or kSendi). kRefused leaves it with the caller; otherwise Host::frag_done ends
/// it, once.
Accepted send(Endpoint& endpoint, Frag* frag);

/// A successful completion of the work request `seq`: everything up to it is delivered. Progress function
/// only.
void ring_retire(Endpoint& endpoint, uint64_t seq);

/// Posts queued fragments while there is room. Progress function only.
void post_queued(Endpoint& endpoint);

/// Posts a signaled zero-byte write behind everything posted, when only unsignaled work is left. Never before
/// queued work, which ends in the order it was given: the ring is full then, and something in it is signaled.
/// Under the lock.
void ring_mark(Endpoint& endpoint);
/// The same when nothing at all is under way, too: something completes, or the rail is dead. Under the lock.
void ring_test(Endpoint& endpoint);
/// The same when no more work will be given to the epoch, but its queue pairs still work. Under the lock.
void ring_mark_last(Endpoint& endpoint);

/// Empties the ring: its epoch is over, and all of its work has ended. What it carried stays counted. Under
/// the lock.
inline void ring_forget(Endpoint& endpoint) {
  endpoint.ended_before += endpoint.ring().head;
  endpoint.ring() = SendRing{};
}

/// What ring_reserve() would take of the port's Stock.
size_t ring_needs(const Endpoint& endpoint);
/// Finds memory for the ring of the next epoch. False with errno.
bool ring_reserve(Endpoint& endpoint);

/// Prepares the ring of a new epoch on the endpoint's data queue pair. Under the lock. False when memory is
/// short.
bool ring_open(Endpoint& endpoint);

/// Work accepted and not yet ended. Under the lock.
inline uint64_t outstanding(const Endpoint& endpoint) {
  return endpoint.ring().head - endpoint.ring().tail + endpoint.queued.size();
}

/// What the endpoint took since it exists, and how much of it, from the oldest on, has ended. Marks
/// unsignaled work. Under the lock.
struct Work {
  uint64_t taken;
  uint64_t ended;
};
Work work(Endpoint& endpoint);

// ---- inline bodies

/// The out-of-line end of a refused post. Under the lock.
int ring_post_failed(Endpoint& endpoint, int rc);

[[gnu::always_inline]] inline int ring_post_send(SendRing& ring, Frag* frag, const void* data,
                                                 uint32_t length, uint32_t lkey, Kind kind, uint8_t tag,
                                                 bool signaled) {
  const Port& port = *ring.port;
  const uint64_t seq = ring.head;
  ibv_sge sge = {reinterpret_cast<uint64_t>(data), length, lkey};
  ibv_send_wr wr;
  wr.wr_id = work_id(WorkKind::kSend, seq);
  wr.next = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  // The tag travels as immediate data: the payload starts aligned in the receive buffer and no header byte of
  // ours is copied.
  wr.imm_data = htonl(tag);
  const bool signal = signaled || ring.since_signal + 1 >= port.config().signal_interval;
  wr.send_flags = (signal ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                  (length <= ring.max_inline ? unsigned{IBV_SEND_INLINE} : 0u);
  ibv_send_wr* bad;
  const int rc = ibv_post_send(ring.qp, &wr, &bad);
  if (rc != 0) [[unlikely]]
    return ring_post_failed(*ring.endpoint, rc);
  SendSlot& slot = ring.slots[seq & ring.mask];
  slot.frag = frag;
  slot.length = length;
  slot.send_no = ++ring.sends_posted;
  slot.kind = kind;
  slot.tag = tag;
  slot.in_slot = frag == nullptr;
  ring.head = seq + 1;
  if (signal) {
    ring.signaled_end = seq + 1;
    ring.since_signal = 0;
  } else {
    ++ring.since_signal;
  }
  ring.port->note_posted();
  bfo_accounting_t& accounting = ring.port->accounting();
  ++accounting.posted[static_cast<size_t>(kind)];
  accounting.bytes_posted += length;
  return 0;
}

}  // namespace bfo::engine
