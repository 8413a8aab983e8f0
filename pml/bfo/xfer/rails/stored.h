// SPDX-License-Identifier: BSD-3-Clause
//
// stored.h: messages whose bytes are kept until they are delivered, because no state of a request gives them
// back. They wait in the backlog of their peer, the first ones each with a fragment record; those behind
// them, and those for which no record is free, wait in memory and get their record later (H23). Records and
// memory are the port's. Used under the engine's lock.
//
// What a peer can cause is bounded. Of the answers about one message the newest waits. A peer that does not
// take so many that no honest one can wait for them is declared failed: it would not ask again, so none may
// be dropped.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// A message to be stored. `rail`: it is sent over this one only, while `epoch` of it lives.
template <class P>
struct Storable {
  const void* bytes;
  size_t size;
  Rail<P>* rail = nullptr;
  uint32_t epoch = 0;
};

template <class P>
class StoredMessages {
 public:
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;

  explicit StoredMessages(P& port) : port_(port) {}

  enum class Kept : uint8_t { kYes, kTooMany, kNoMemory };
  /// Puts `m` behind what waits for `p`, or in the place of an older answer. `record` is its record; nullptr:
  /// it has none yet.
  Kept keep(PeerT& p, const Storable<P>& m, Frag*& record);
  /// Makes `f` the record of `m`, without putting it anywhere. False: no memory.
  bool fill(PeerT& p, Frag& f, const Storable<P>& m);
  /// Gives records to those of `p` that have none, as many as may have one. False: there is no more record,
  /// or no memory.
  bool record_waiting(PeerT& p);
  /// Answers that an honest peer can wait for. Each concerns a rendezvous of the two processes, which has
  /// some ends and some grants that are open at once, or an eager message that a rail has handed back and
  /// that came again as a rendezvous.
  static uint64_t most_answers(const PeerT& p) {
    constexpr uint64_t kPerRendezvous = 64;
    constexpr uint64_t kHandedBack = 4 * uint64_t{kSeqWindow};
    constexpr uint64_t kNames = uint64_t{Name::kSlotMask} + 1;
    return kHandedBack + std::min(kPerRendezvous * p.rendezvous, kNames);
  }
  /// No message of `p` is sent any more.
  void drop(PeerT& p);

 private:
  P& port_;
};

template <class P>
typename StoredMessages<P>::Kept StoredMessages<P>::keep(PeerT& p, const Storable<P>& m, Frag*& record) {
  record = nullptr;
  if (Unrecorded<P>* const older = p.backlog.older(port_, m.bytes)) {
    std::memcpy(older->bytes(), m.bytes, m.size);
    return Kept::kYes;
  }
  if (is_answer(m.bytes) && p.backlog.answers() >= most_answers(p)) return Kept::kTooMany;
  if (!p.backlog.unrecorded() && p.backlog.takes_record()) record = port_.frag_alloc();
  if (record) {
    if (fill(p, *record, m)) {
      p.backlog.store(record);
      return Kept::kYes;
    }
    port_.frag_free(*std::exchange(record, nullptr));
    return Kept::kNoMemory;
  }
  void* const memory = port_.alloc(sizeof(Unrecorded<P>) + m.size);
  if (!memory) return Kept::kNoMemory;
  auto* const s = ::new (memory) Unrecorded<P>;
  s->rail = m.rail;
  s->epoch = m.epoch;
  s->size = static_cast<uint32_t>(m.size);
  std::memcpy(s->bytes(), m.bytes, m.size);
  p.backlog.store(port_, s);
  return Kept::kYes;
}

template <class P>
bool StoredMessages<P>::fill(PeerT& p, Frag& f, const Storable<P>& m) {
  auto& x = f.xfer;
  x.next = x.prev = nullptr;
  x.linked = false;
  x.counted = false;
  x.kind = FragKind::kStored;
  x.to_sender = false;
  x.pinned = m.rail != nullptr;
  x.rail = m.rail;
  x.epoch = m.epoch;
  x.name = Name();
  x.send = nullptr;
  x.peer = &p;
  x.offset = x.length = 0;
  x.grant = 0;
  x.type = *static_cast<const uint8_t*>(m.bytes);
  x.stored_len = static_cast<uint32_t>(m.size);
  x.completing_turn = 0;
  x.buffer = nullptr;
  if (m.size > sizeof x.stored) {
    x.buffer = port_.alloc(m.size);
    if (!x.buffer) return false;
  }
  std::memcpy(x.buffer ? x.buffer : x.stored, m.bytes, m.size);
  return true;
}

template <class P>
bool StoredMessages<P>::record_waiting(PeerT& p) {
  while (p.backlog.takes_record()) {
    Unrecorded<P>* const s = p.backlog.unrecorded();
    if (!s) return true;
    Frag* const f = port_.frag_alloc();
    if (!f) return false;
    if (!fill(p, *f, {s->bytes(), s->size, s->rail, s->epoch})) {
      port_.frag_free(*f);
      return false;
    }
    p.backlog.store(f);
    p.backlog.remove(port_, s);
    port_.free(s);
  }
  return true;
}

template <class P>
[[gnu::cold]] void StoredMessages<P>::drop(PeerT& p) {
  while (Frag* f = p.backlog.take_stored()) {
    if (f->xfer.grant >= kPing) p.backlog.ping_ends(f->xfer.grant - kPing);
    if (f->xfer.buffer) port_.free(f->xfer.buffer);
    port_.frag_free(*f);
  }
  while (Unrecorded<P>* s = p.backlog.unrecorded()) {
    p.backlog.remove(port_, s);
    port_.free(s);
  }
}

}  // namespace bfo::xfer
