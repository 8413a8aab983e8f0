// SPDX-License-Identifier: BSD-3-Clause
//
// packet.h: one work request and what travels for it. It is referred to by the sender's queue pair until its
// completion is reported, by the fabric until it is executed or lost, by the receiver's completion queue
// until it is delivered, and by the sender's slots as long as a gap could still be filled from them.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "common/check.h"
#include "test/sim/scenario.h"

namespace bfo::sim {

struct Frag;

enum class WrKind : uint8_t { kSend, kSendi, kPut, kGet };

/// What a fault does to one packet.
enum class PacketFate : uint8_t {
  kNone,
  kDrop,      ///< lost before the wire, with everything behind it; the sender times out
  kNoAck,     ///< executed, but no acknowledgement from it on ever returns; the sender times out
  kErrorNow,  ///< never sent: its queue pair breaks at once
  kErrorDone  ///< executed, and its queue pair breaks at once all the same
};

struct Packet {
  Packet* next_wqe = nullptr;
  Packet* next_fabric = nullptr;
  Packet* next_cq = nullptr;
  Packet* next_kept = nullptr;
  Frag* frag = nullptr;  ///< kSend, kPut, kGet
  uint64_t posted_ns = 0;
  uint64_t tx_ns = 0;      ///< leaves the send queue
  uint64_t arrive_ns = 0;  ///< reaches the receiver's HCA
  uint64_t remote = 0;     ///< kPut, kGet: address in the peer's memory
  uint64_t local = 0;      ///< kGet: address in ours
  uint32_t key = 0;        ///< kPut, kGet: the peer's region
  uint32_t local_key = 0;  ///< kPut, kGet: our region
  uint32_t length = 0;
  uint32_t epoch = 0;
  uint32_t ordinal = 0;  ///< in its connection
  WrKind kind = WrKind::kSend;
  uint8_t tag = 0;
  uint8_t refs = 0;
  uint8_t size = 0;    ///< the pool's
  bool given = false;  ///< to the HCA (not: waiting for a handshake)
  PacketFate fate = PacketFate::kNone;
  /// Header and payload, behind the packet: as many bytes as the pool was asked for.
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(this + 1); }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(this + 1); }
};

/// Packets of the size they need, in slabs that live as long as the pool. The slots of completed sends (H4)
/// hold most packets of a run until its end: small ones keep a run within the processor's cache, and giving
/// all of them back at once keeps it from reading them all again.
class PacketPool {
 public:
  Packet* get(size_t bytes) {
    BFO_CHECK(bytes <= kMaxPacket);
    const size_t size = (sizeof(Packet) + bytes + kStep - 1) / kStep;
    Packet* p = free_[size];
    if (p != nullptr)
      free_[size] = p->next_wqe;
    else
      p = reinterpret_cast<Packet*>(carve(size * kStep));
    ::new (static_cast<void*>(p)) Packet;
    p->size = static_cast<uint8_t>(size);
    p->refs = 1;
    return p;
  }
  void ref(Packet* p) { ++p->refs; }
  void unref(Packet* p) {
    if (--p->refs != 0) return;
    p->next_wqe = free_[p->size];
    free_[p->size] = p;
  }
  /// The run is over: no packet is in use any more, whoever held it.
  void clear() {
    for (Packet*& f : free_) f = nullptr;
    slab_ = used_ = 0;
  }

 private:
  static constexpr size_t kStep = 64;
  static constexpr size_t kSlab = 256 * 1024;
  static constexpr size_t kSizes = (sizeof(Packet) + kMaxPacket) / kStep + 2;
  struct alignas(kStep) Slab {
    std::byte bytes[kSlab];
  };

  std::byte* carve(size_t n) {
    if (slab_ < slabs_.size() && used_ + n > kSlab) {
      ++slab_;
      used_ = 0;
    }
    if (slab_ == slabs_.size()) slabs_.push_back(std::make_unique_for_overwrite<Slab>());
    std::byte* const at = slabs_[slab_]->bytes + used_;
    used_ += n;
    return at;
  }

  std::vector<std::unique_ptr<Slab>> slabs_;
  size_t slab_ = 0;  ///< the one being carved, and how much of it is
  size_t used_ = 0;
  Packet* free_[kSizes] = {};  ///< by size in steps
};

/// First in, first out, through one of a packet's links.
template <Packet* Packet::*Link>
class PacketFifo {
 public:
  bool empty() const { return head_ == nullptr; }
  Packet* front() const { return head_; }
  static Packet* next(Packet* p) { return p->*Link; }
  uint32_t size() const { return n_; }
  void push(Packet* p) {
    p->*Link = nullptr;
    (tail_ ? tail_->*Link : head_) = p;
    tail_ = p;
    ++n_;
  }
  Packet* pop() {
    Packet* const p = head_;
    if (p == nullptr) return nullptr;
    head_ = p->*Link;
    if (head_ == nullptr) tail_ = nullptr;
    --n_;
    return p;
  }
  /// Remove and return everything from the first packet for which `pred` holds to the end.
  template <class Pred>
  PacketFifo cut_from(Pred pred) {
    PacketFifo rest;
    Packet* before = nullptr;
    uint32_t kept = 0;
    for (Packet* p = head_; p != nullptr; before = p, p = p->*Link, ++kept) {
      if (!pred(p)) continue;
      rest.head_ = p;
      rest.tail_ = tail_;
      rest.n_ = n_ - kept;
      n_ = kept;
      tail_ = before;
      (before ? before->*Link : head_) = nullptr;
      break;
    }
    return rest;
  }

 private:
  Packet* head_ = nullptr;
  Packet* tail_ = nullptr;
  uint32_t n_ = 0;
};

}  // namespace bfo::sim
