// SPDX-License-Identifier: BSD-3-Clause
//
// forge.cc: headers that no correct peer would send now: of unknown types, of another type than their tag,
// cut short, with names that were never issued, and true messages of one process that claim to come from
// another. The PML must drop and count each (P5).
//
// P1..P8: contrib/doc/design.md

#include <cstring>

#include "pml/bfo/core/wire.h"
#include "test/stack/world.h"

namespace bfo::stack {

namespace {

constexpr size_t kHeard = 32;      // messages that each process remembers
constexpr size_t kForged = 1280;   // bytes at most
constexpr uint8_t kNoType = 0x60;  // the first of those that are no type of the PML

constexpr uint8_t tag_of(core::MsgType t) {
  return static_cast<uint8_t>(t);
}
/// Messages that are matched: the first words say the communicator and the rank of the sender.
bool opens(uint8_t tag) {
  return tag == tag_of(core::MsgType::kMatch) || tag == tag_of(core::MsgType::kRndv) ||
         tag == tag_of(core::MsgType::kRget);
}
/// Any type but `type`.
uint8_t other_type(uint8_t type, sim::Prng& d) {
  const uint8_t other = core::kAllTypes[d.below(sizeof core::kAllTypes)];
  return other != type ? other : static_cast<uint8_t>(type ^ 0x80);
}

}  // namespace

Link* Process::link_up(uint32_t peer, uint32_t first) {
  for (uint32_t i = 0; i < nics_.size(); ++i) {
    Link* const l = link(peer, (first + i) % static_cast<uint32_t>(nics_.size()));
    if (l->engine_rail != nullptr && engine::is_up(l->endpoint.phase)) return l;
  }
  return nullptr;
}

/// Kept for replays, if any of this run are told to come.
void Process::hear(const Link& from, uint8_t tag, const char* data, uint32_t length) {
  Heard& at = heard_[n_heard_++ % kHeard];
  at.from = from.peer;
  at.tag = tag;
  at.bytes.assign(data, length);
}

void Process::expect_forged() {
  heard_.resize(kHeard);
}

void Process::forged(const Fault& f) {
  Link* const l = link(f.q, f.r);
  if (f.q == id_ || l->engine_rail == nullptr || !engine::is_up(l->endpoint.phase)) return;
  sim::Prng d(sim::mix(f.n, f.t));
  if (d.chance(60)) return replayed(*l, d);
  uint8_t bytes[kForged];
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(d.next() >> 56);
  const uint8_t tag = core::kAllTypes[d.below(sizeof core::kAllTypes)];
  size_t size = d.below(sizeof bytes);
  bytes[0] = tag;
  if (tag == tag_of(core::MsgType::kPeerLost)) return;  // the peer's own word, which names its connection
  if (opens(tag))
    size = d.below(sizeof(core::MatchHdr));  // cut within the header
  else if (tag == tag_of(core::MsgType::kSeqSync) || d.chance(30))
    size = d.below(12);  // likewise
  uint8_t said = tag;
  if (d.chance(10)) said = static_cast<uint8_t>(d.range(kNoType, kNoType + 15));
  if (d.chance(30)) {  // whole, but for another reader
    said = other_type(tag, d);
    size = 1 + d.below(sizeof bytes);
  }
  inject(*l, said, bytes, size, true);
}

/// A true message again: with another tag; from its own sender, stale by now or a duplicate; or from another
/// process, which may only name what is its own.
void Process::replayed(Link& l, sim::Prng& d) {
  const Heard m = heard_[d.below(kHeard)];  // it may be overwritten while it is played
  if (m.bytes.empty()) return;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(m.bytes.data());
  const bool own = m.from == l.peer;
  SIM_TRACE(world_.ctx, "forge %u: a message of type 0x%x from %u once more, as from %u", id_, m.tag, m.from,
            l.peer);
  if (d.chance(20)) return inject(l, other_type(m.tag, d), bytes, m.bytes.size(), true);
  if (m.tag == tag_of(core::MsgType::kPeerLost)) return;
  if (opens(m.tag) && !own && !speaks_for_another(l, bytes)) return;
  inject(l, m.tag, bytes, m.bytes.size(), !own);
}

/// Does the message name a communicator that is there, and a rank in it that is not the peer's? One for a
/// communicator that is gone waits for one with its number; it is never delivered.
bool Process::speaks_for_another(const Link& l, const uint8_t* bytes) const {
  core::MatchHdr m;
  std::memcpy(&m, bytes, sizeof m);
  bool known = false;
  for (uint32_t i = 0; i < comms_.size(); ++i) {
    if (comms_[i].comm == nullptr || comms_[i].comm->ctx != m.ctx) continue;
    known = world_.book.proc(i, m.src) != l.peer;
  }
  return known;
}

void Process::inject(Link& l, uint8_t tag, const uint8_t* bytes, size_t size, bool must_count) {
  const auto counted = [this] {
    const xfer::Counters& c = engine_->counters();
    return c.malformed + c.stale + c.ignored + c.duplicates;
  };
  const uint64_t before = counted();
  ++world_.result.forged;
  engine_->on_message(l.engine_rail, l.endpoint.epoch, tag, bytes, size);
  if (must_count && counted() == before)
    world_.ctx.fail("P5: a forged header of type 0x%x, %zu bytes, was not counted", tag, size);
}

}  // namespace bfo::stack
