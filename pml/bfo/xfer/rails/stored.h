// SPDX-License-Identifier: BSD-3-Clause
//
// stored.h: messages whose bytes are kept until they are delivered, because no state of a request gives them
// back. They wait in the backlog of their peer, each with a fragment record; while none is free the bytes
// wait in memory, and get their record later (H23). Records and memory are the port's. Used under the
// engine's lock.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

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
  std::size_t size;
  Rail<P>* rail = nullptr;
  std::uint32_t epoch = 0;
};

template <class P>
class StoredMessages {
 public:
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;

  explicit StoredMessages(P& port) : port_(port) {}

  /// Puts `m` behind what waits for `p`. False: no memory. `record` is its record; nullptr: it has none yet.
  bool keep(PeerT& p, const Storable<P>& m, Frag*& record);
  /// Makes `f` the record of `m`, without putting it anywhere. False: no memory.
  bool fill(PeerT& p, Frag& f, const Storable<P>& m);
  /// Gives records to those of `p` that have none. False: there is no more record, or no memory.
  bool record_waiting(PeerT& p);
  /// No message of `p` is sent any more.
  void drop(PeerT& p);

 private:
  P& port_;
};

template <class P>
bool StoredMessages<P>::keep(PeerT& p, const Storable<P>& m, Frag*& record) {
  record = p.backlog.unrecorded.empty() ? port_.frag_alloc() : nullptr;
  if (record) {
    if (fill(p, *record, m)) {
      p.backlog.stored.push_back(record);
      return true;
    }
    port_.frag_free(*std::exchange(record, nullptr));
    return false;
  }
  void* const memory = port_.alloc(sizeof(Unrecorded<P>) + m.size);
  if (!memory) return false;
  auto* const s = ::new (memory) Unrecorded<P>;
  s->rail = m.rail;
  s->epoch = m.epoch;
  s->size = m.size;
  std::memcpy(static_cast<void*>(s + 1), m.bytes, m.size);
  p.backlog.unrecorded.push_back(s);
  return true;
}

template <class P>
bool StoredMessages<P>::fill(PeerT& p, Frag& f, const Storable<P>& m) {
  auto& x = f.xfer;
  x.next = x.prev = nullptr;
  x.linked = false;
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
  x.type = *static_cast<const std::uint8_t*>(m.bytes);
  x.stored_len = static_cast<std::uint32_t>(m.size);
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
  while (Unrecorded<P>* s = p.backlog.unrecorded.front()) {
    Frag* const f = port_.frag_alloc();
    if (!f) return false;
    if (!fill(p, *f, {s->bytes(), s->size, s->rail, s->epoch})) {
      port_.frag_free(*f);
      return false;
    }
    p.backlog.stored.push_back(f);
    p.backlog.unrecorded.remove(s);
    port_.free(s);
  }
  return true;
}

template <class P>
[[gnu::cold]] void StoredMessages<P>::drop(PeerT& p) {
  while (Frag* f = p.backlog.stored.pop_front()) {
    if (f->xfer.grant == kPing) p.watch.set_pinging(false);
    if (f->xfer.buffer) port_.free(f->xfer.buffer);
    port_.frag_free(*f);
  }
  while (Unrecorded<P>* w = p.backlog.unrecorded.pop_front()) port_.free(w);
}

}  // namespace bfo::xfer
