// SPDX-License-Identifier: BSD-3-Clause
//
// closure_finalize.cc: the transitions of model M4.
#include "test/sim/closure_finalize.h"

#include <cstring>

namespace bfo::closure::finalize {

namespace {
constexpr int kRails = 2;
constexpr uint8_t bit(int rail) {
  return static_cast<uint8_t>(1u << rail);
}
void clear(uint8_t& mask, int rail) {
  mask = static_cast<uint8_t>(mask & ~bit(rail));
}
void post(Message& m, int rail) {
  m.posted = 1;
  m.lost = 0;
  m.flying = static_cast<uint8_t>(m.flying | bit(rail));
}
}  // namespace

State Finalize::initial() const {
  State s;
  std::memset(&s, 0, sizeof s);
  s.process[1].phase = kReceive;
  return s;
}

std::string Finalize::describe(const State& s) const {
  static constexpr const char* kNames[] = {"sends",  "waits",  "in the barrier", "settles", "in the fence",
                                           "drains", "leaves", "gone",           "failed",  "dead"};
  std::string t;
  for (int x = 0; x < 2; ++x) {
    const Process& p = s.process[x];
    t += std::string(x ? "; B " : "A ") + kNames[p.phase];
    for (const Message& m : p.message)
      if (m.posted)
        t += " message" + std::string(m.flying ? " flying" : "") + (m.queued ? " queued" : "") +
             (m.lost ? " lost" : "") + (m.known ? " known" : "") + (m.got ? " received" : "");
  }
  return t;
}

template <class Change>
void Finalize::step(const State& from, std::vector<Next>& out, const char* what, int x, Change&& change,
                    bool fault) {
  c_ = from;
  change(c_.process[x]);
  if (fault) ++c_.faults;
  if (std::memcmp(&c_, &from, sizeof c_) != 0) out.push_back(Next{c_, what, x, fault});
}

void Finalize::successors(const State& from, std::vector<Next>& out) {
  for (int x = 0; x < 2; ++x) {
    traffic(from, out, x);
    if (from.process[x].phase >= kGone) continue;
    program(from, out, x);
    last_steps(from, out, x);
    faults(from, out, x);
  }
}

/// Does the process run progress?
bool Finalize::polls(const Process& p) const {
  if (p.phase == kFence) return ending_ == Ending::kFence && !off(Without::kProgressInFence);
  return p.phase != kSend && p.phase < kGone;
}

/// Everything it sent is known to have arrived.
bool Finalize::quiet(const Process& p) const {
  for (const Message& m : p.message)
    if (m.posted && !m.known) return false;
  return true;
}

/// Its last message was received or sent: it finalizes.
void Finalize::after_receive(Process& p) const {
  p.phase = ending_ == Ending::kFence ? kFence : ending_ == Ending::kBarrier ? kBarrier : kDrain;
}

void Finalize::program(const State& from, std::vector<Next>& out, int x) {
  const Process& p = from.process[x];
  const Process& peer = from.process[1 - x];
  const bool a = x == 0;
  for (int r = 0; r < kRails; ++r) {
    if (from.dead_rails >> r & 1) continue;
    if (p.phase == kSend)
      step(from, out, "sends its last message", x, [&](Process& c) {
        post(c.message[0], r);
        if (a)
          c.phase = kReceive;
        else
          after_receive(c);
      });
    if (p.phase == kBarrier && !p.message[1].posted)
      step(from, out, "enters the barrier", x, [&](Process& c) { post(c.message[1], r); });
  }
  const int waits_for = p.phase == kReceive ? 0 : p.phase == kBarrier && p.message[1].posted ? 1 : -1;
  if (waits_for < 0) return;
  const Message& m = peer.message[waits_for];
  if (m.got)
    step(from, out, "has what it waited for", x, [&](Process& c) {
      if (c.phase == kBarrier)
        c.phase = kSettle;
      else if (a)
        after_receive(c);
      else
        c.phase = kSend;
    });
  // The park time: nothing comes any more.
  if (!m.got && !m.queued && peer.phase >= kGone)
    step(from, out, "the park time is over", x, [&](Process& c) {
      if (peer.phase == kGone) broken("a process waits for a message of one that has left");
      c.phase = kFailed;
    });
}

void Finalize::leave(int x) {
  Process& p = c_.process[x];
  Process& peer = c_.process[1 - x];
  p.phase = kGone;
  for (Message& m : peer.message) m.queued = 0;  // its queue pairs are gone
}

void Finalize::last_steps(const State& from, std::vector<Next>& out, int x) {
  const Process& p = from.process[x];
  const Process& peer = from.process[1 - x];
  const bool over = peer.phase == kDead || peer.phase == kFailed;
  // What is left when nobody answers: the bound of the drain.
  const bool bound = !off(Without::kBound) && peer.phase >= kGone && !p.bye;
  if (p.phase == kSettle && (quiet(p) || bound || off(Without::kDrainBeforeFence)))
    step(from, out, "enters the fence", x, [](Process& c) { c.phase = kFence; });
  if (p.phase == kFence &&
      (over || peer.phase == kFence || peer.phase == kDrain || peer.phase == kLeave || peer.phase == kGone))
    step(from, out, "leaves the fence", x, [](Process& c) { c.phase = kDrain; });
  if (p.phase == kLeave) {
    // The peer has answered, or has said BYE itself; or it answers nothing any more.
    const bool heard = p.left || peer.phase >= kGone;
    if (heard || off(Without::kAnswer) || off(Without::kBye))
      return step(from, out, "leaves", x, [&](Process&) { leave(x); });
    if (!peer.bye) step(from, out, "says it again", x, [&](Process&) { c_.process[1 - x].bye = 1; });
    return;
  }
  if (p.phase != kDrain) return;
  if (quiet(p) || off(Without::kDrain))
    return step(from, out, "says goodbye", x, [&](Process& c) {
      c.phase = kLeave;
      if (!off(Without::kBye) && !c.left && peer.phase < kGone) c_.process[1 - x].bye = 1;
    });
  if (bound)
    step(from, out, "leaves after the bound", x, [&](Process& c) {
      if (peer.phase == kGone && from.faults == 0)
        broken("the drain waits for its bound, and nothing was lost");
      for (const Message& m : c.message)
        if (m.posted && !m.got && peer.phase == kGone) broken("a message was lost although both are alive");
      leave(x);
    });
  if (off(Without::kSilent) && peer.phase == kGone)
    step(from, out, "a rail ends", x, [&](Process& c) {
      broken("an error after the fence, and nobody died");
      c.phase = kFailed;
    });
}

/// Messages of x, and what it learns of them.
void Finalize::traffic(const State& from, std::vector<Next>& out, int x) {
  const Process& p = from.process[x];
  const Process& peer = from.process[1 - x];
  const bool there = peer.phase < kGone;
  const bool drains = p.phase == kDrain || p.phase == kSettle;
  if (p.bye && polls(p))
    step(from, out, "gets BYE", x, [&](Process& c) {
      c.bye = 0;
      c.left = 1;
      c_.process[1 - x].left = 1;  // the answer; one that is lost is asked for again
      for (Message& m : c.message) {
        if (m.acked && !off(Without::kByeCount)) m.known = 1;
        if (m.known) m.flying = m.acked = m.lost = 0;
      }
    });
  if (drains && peer.phase == kGone && !p.bye && !p.left && !off(Without::kMarker))
    for (const Message& m : p.message)
      if (m.posted && !m.known && (m.flying | m.acked))
        step(from, out, "a marker fails", x, [&](Process& c) {
          broken("a rail counts as lost, and its peer has left in order");
          c.phase = kFailed;
        });
  for (int i = 0; i < 2; ++i) {
    const Message& m = p.message[i];
    for (int r = 0; r < kRails; ++r) {
      const bool up = !(from.dead_rails >> r & 1);
      if (up && there && (m.flying & bit(r)) && p.phase < kGone)
        step(from, out, "a message arrives from", x, [&](Process& c) {
          clear(c.message[i].flying, r);
          c.message[i].queued = static_cast<uint8_t>(c.message[i].queued | bit(r));
          c.message[i].acked = static_cast<uint8_t>(c.message[i].acked | bit(r));
        });
      if ((m.queued & bit(r)) && polls(peer))
        step(from, out, "a message is received from", x, [&](Process& c) {
          clear(c.message[i].queued, r);
          c.message[i].got = 1;
        });
      if (!polls(p) || m.known) continue;
      // The marker behind it comes back: the peer's queue pair must still be there.
      if (up && there && (m.acked & bit(r)) && drains && !off(Without::kMarker))
        step(from, out, "a marker says that it arrived from", x, [&](Process& c) {
          c.message[i].known = 1;
          c.message[i].flying = c.message[i].acked = c.message[i].lost = 0;
        });
      if (m.lost && up && there && !p.left && !(off(Without::kResendInDrain) && p.phase == kDrain))
        step(from, out, "sends again", x, [&](Process& c) { post(c.message[i], r); });
    }
  }
}

void Finalize::faults(const State& from, std::vector<Next>& out, int x) {
  if (from.faults == faults_) return;
  step(
      from, out, "DIES:", x,
      [&](Process& c) {
        c.phase = kDead;
        for (Message& m : c.message) m.flying = 0;
        for (Message& m : c_.process[1 - x].message) m.queued = 0;
      },
      true);
  if (from.process[x].bye)
    step(
        from, out, "BYE IS LOST to", x, [](Process& c) { c.bye = 0; }, true);
  for (int r = 0; r < kRails && x == 0 && from.dead_rails == 0; ++r)
    step(
        from, out, "A RAIL DIES", x,
        [&](Process&) {
          c_.dead_rails = bit(r);
          for (Process& p : c_.process)
            for (Message& m : p.message) {
              if (!m.known && ((m.flying | m.acked) & bit(r))) m.lost = 1;
              clear(m.flying, r);
              clear(m.acked, r);
            }
        },
        true);
}

}  // namespace bfo::closure::finalize
