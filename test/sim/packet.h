// SPDX-License-Identifier: BSD-3-Clause
//
// packet.h: one work request and what travels for it. It is referred to by the sender's queue pair until its
// completion is reported, by the fabric until it is executed or lost, by the receiver's completion queue
// until it is delivered, and by the sender's slots as long as a gap could still be filled from them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "test/sim/scenario.h"

namespace bfo::sim {

struct Frag;

enum class WrKind : std::uint8_t { kSend, kSendi, kPut, kGet };

/// What a fault does to one packet.
enum class PacketFate : std::uint8_t {
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
  std::uint64_t posted_ns = 0;
  std::uint64_t tx_ns = 0;      ///< leaves the send queue
  std::uint64_t arrive_ns = 0;  ///< reaches the receiver's HCA
  std::uint64_t remote = 0;     ///< kPut, kGet: address in the peer's memory
  std::uint64_t local = 0;      ///< kGet: address in ours
  std::uint32_t key = 0;        ///< kPut, kGet: the peer's region
  std::uint32_t local_key = 0;  ///< kPut, kGet: our region
  std::uint32_t length = 0;
  std::uint32_t epoch = 0;
  std::uint32_t ordinal = 0;  ///< in its connection
  WrKind kind = WrKind::kSend;
  std::uint8_t tag = 0;
  std::uint8_t refs = 0;
  bool given = false;  ///< to the HCA (not: waiting for a handshake)
  PacketFate fate = PacketFate::kNone;
  std::uint8_t bytes[kMaxPacket];
};

/// Packets in slabs that live as long as the pool: no allocation per packet.
class PacketPool {
 public:
  Packet* get() {
    if (free_ == nullptr) grow();
    Packet* const p = free_;
    free_ = p->next_wqe;
    std::memset(static_cast<void*>(p), 0, offsetof(Packet, bytes));
    p->refs = 1;
    ++out_;
    return p;
  }
  void ref(Packet* p) { ++p->refs; }
  void unref(Packet* p) {
    if (--p->refs != 0) return;
    p->next_wqe = free_;
    free_ = p;
    --out_;
  }
  std::uint64_t out() const { return out_; }

 private:
  static constexpr std::size_t kSlab = 128;
  void grow() {
    slabs_.push_back(std::make_unique<Packet[]>(kSlab));
    for (std::size_t i = 0; i < kSlab; ++i) {
      slabs_.back()[i].next_wqe = free_;
      free_ = &slabs_.back()[i];
    }
  }
  std::vector<std::unique_ptr<Packet[]>> slabs_;
  Packet* free_ = nullptr;
  std::uint64_t out_ = 0;
};

/// First in, first out, through one of a packet's links.
template <Packet* Packet::*Link>
class PacketFifo {
 public:
  bool empty() const { return head_ == nullptr; }
  Packet* front() const { return head_; }
  static Packet* next(Packet* p) { return p->*Link; }
  std::uint32_t size() const { return n_; }
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
    std::uint32_t kept = 0;
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
  std::uint32_t n_ = 0;
};

}  // namespace bfo::sim
