// SPDX-License-Identifier: BSD-3-Clause
//
// forge.cc: headers that no correct peer would send now: of unknown types, of another type than their tag,
// cut short, with names that were never issued, and true messages of one process that claim to come from
// another. The engine must drop and count each (P5).
//
// P1..P8: contrib/doc/design.md

#include <cstring>

#include "pml/bfo/core/wire.h"
#include "test/sim/process.h"

namespace bfo::sim {

namespace {

/// Any type but `type`.
uint8_t other_type(uint8_t type, Prng& d) {
  const uint8_t other = core::kAllTypes[d.below(sizeof core::kAllTypes)];
  return other != type ? other : static_cast<uint8_t>(type ^ 0x80);
}

}  // namespace

void Process::forged(const Fault& f) {
  Half& h = fabric_.half(id_, f.q, f.r);
  if (!h.engine_rail || h.link != Link::kUp) return;
  Prng d(mix(f.n, f.t));
  if (d.chance(60)) return replayed(h, d);
  uint8_t bytes[kMaxPacket];
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(d.next() >> 56);
  const uint8_t tag = core::kAllTypes[d.below(sizeof core::kAllTypes)];
  size_t size = d.below(sizeof bytes);
  bytes[0] = tag;
  if (tag == 0x58) return;  // the peer's own word, which names its connection
  const bool opens = tag == 0x41 || tag == 0x42 || tag == 0x43;
  if (opens)
    size = d.below(14);  // cut within the header
  else if (tag == 0x57 || d.chance(30))
    size = d.below(12);  // likewise
  uint8_t said = tag;
  if (d.chance(10)) said = static_cast<uint8_t>(d.range(0x60, 0x6f));  // not a type of ours
  if (d.chance(30)) {                                                  // whole, but for another reader
    said = other_type(tag, d);
    size = 1 + d.below(sizeof bytes);
  }
  inject(h, said, bytes, size, true);
}

/// A true message again: with another tag; from its own sender, stale by now or a duplicate; or from another
/// process, which may only name what is its own.
void Process::replayed(Half& h, Prng& d) {
  const uint32_t at = static_cast<uint32_t>(d.below(Context::kRecent));
  const Packet* const p = ctx_.recent[id_][at];
  if (!p) return;
  const bool own = ctx_.recent_from[id_][at] == h.peer;
  SIM_TRACE(ctx_, "forge %u: a message of type 0x%x from %u once more, as from %u", id_, p->tag,
            ctx_.recent_from[id_][at], h.peer);
  if (d.chance(20)) return inject(h, other_type(p->tag, d), p->bytes(), p->length, true);
  if (p->tag == 0x58) return;
  // A foreign message for a communicator that is gone waits for one with its number; it is never delivered.
  const bool opens = p->tag == 0x41 || p->tag == 0x42 || p->tag == 0x43;
  if (opens && !own) {
    core::MatchHdr m;
    std::memcpy(&m, p->bytes(), sizeof m);
    bool known = false;
    for (uint32_t i = 0; i < comms_.size(); ++i) {
      const CommState& c = comms_[i];
      if (!c.live || c.over || !c.comm || c.comm->ctx != m.ctx) continue;
      known = book_.proc(i, m.src) != h.peer;  // else it is the peer's own word about itself
    }
    if (!known) return;
  }
  inject(h, p->tag, p->bytes(), p->length, !own);
}

void Process::inject(Half& h, uint8_t tag, const uint8_t* bytes, size_t size, bool must_count) {
  const xfer::Counters before = engine_->counters();
  engine_->on_message(static_cast<EngineRail*>(h.engine_rail), h.epoch, tag, bytes, size);
  const xfer::Counters& after = engine_->counters();
  const bool counted = after.malformed + after.stale + after.ignored + after.duplicates !=
                       before.malformed + before.stale + before.ignored + before.duplicates;
  if (must_count && !counted)
    ctx_.fail("P5: a forged header of type 0x%x, %zu bytes, was not counted", tag, size);
}

}  // namespace bfo::sim
