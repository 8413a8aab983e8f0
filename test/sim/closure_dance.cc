// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance.cc: what may happen next in a state of model M1: the sum of its parts.
#include "test/sim/closure_dance.h"

namespace bfo::closure {

void Dance::go(const State& from, std::vector<Next>& out, const char* what, int rail, bool fault) {
  for (int x = 0; x < rails_; ++x) {
    tidy(x, 0);
    tidy(x, 1);
  }
  normalise();
  if (std::memcmp(&c_, &from, sizeof c_) != 0) out.push_back(Next{c_, what, rail, fault});
}

bool Dance::any_up(int who) const {
  for (int x = 0; x < rails_; ++x)
    if (up(who, x)) return true;
  return false;
}

/// One side gives the other up: as a fault, or because it has no rail left and the park time is over.
void Dance::give_ups(const State& from, std::vector<Next>& out) {
  const bool fault = from.gave_up < extra_.give_ups;
  c_ = from;
  if (!from.s_done && !from.s_bad && (fault || !any_up(0))) {
    if (any_up(0)) ++c_.gave_up;
    c_.s_tell = 1;
    s_event(SE::kGiveUp);
    go(from, out, "S GIVES UP", -1, any_up(0));
  }
  c_ = from;
  if (!from.r_done && !from.r_bad && (fault || !any_up(1))) {
    if (any_up(1)) ++c_.gave_up;
    c_.r_tell = 1;
    if (static_cast<RP>(from.r_phase) != RP::kIdle) {
      r_event(RE::kGiveUp);
    } else {
      c_.stored = c_.r_bad = 1;
      r_over(true);
    }
    go(from, out, "R GIVES UP", -1, any_up(1));
  }
}

/// Headers nobody sent, in the phases in which a true one of this round cannot come. They must change
/// nothing.
void Dance::forgeries(const State& from, std::vector<Next>& out) {
  if (from.forged) return;
  const auto tried = [&](const char* what) {
    if (std::memcmp(&c_, &from, sizeof c_) == 0) return;
    c_.forged = 1;
    go(from, out, what, -1, true);
  };
  Entry m{};
  m.id = kForged;
  if (!from.s_done && static_cast<SP>(from.s_phase) == SP::kNotified)
    for (SE e : {SE::kAck, SE::kPut, SE::kFin, SE::kRecvErr}) {
      c_ = from;
      m.arg = 1 << 4;
      m.id = 0;
      s_event(e, &m, 0);
      tried("FORGED message to S");
    }
  m = Entry{};
  m.id = kForged;
  if (!from.r_done && static_cast<RP>(from.r_phase) == RP::kQuiesced)
    for (RE e : {RE::kFrag, RE::kFin, RE::kFinRefused, RE::kNotify, RE::kOpenAgain, RE::kSendDone}) {
      c_ = from;
      r_event(e, &m, 0);
      tried("FORGED message to R");
    }
}

void Dance::successors(const State& from, std::vector<Next>& out) {
  if (extra_.give_ups > 0) give_ups(from, out);
  if (extra_.forged) forgeries(from, out);
  const RP rp = static_cast<RP>(from.r_phase);
  // a receive is posted
  if (from.stored && rp == RP::kIdle && !from.r_done) {
    c_ = from;
    c_.r_phase = static_cast<uint8_t>(RP::kReceiving);
    c_.r_round = 1;
    open_round();
    go(from, out, "match", -1);
  }
  // NOTIFY has overtaken no FRAG any more, or R has waited long enough
  c_ = from;
  if (from.r_looks && rp == RP::kQuiescing) {
    c_.r_looks = 0;
    r_check();
    go(from, out, "R has looked", -1);
  }
  // a READ without usable key
  c_ = from;
  if (mode_ == Mode::kGet && from.r_todo && !from.r_done && !key_up() && rp == RP::kReceiving) {
    r_event(RE::kAsk);
    go(from, out, "no key", -1);
  }
  for (int x = 0; x < rails_; ++x) {
    s_posts(from, out, x);
    r_posts(from, out, x);
    network(from, out, x);
    deaths(from, out, x);
  }
}

}  // namespace bfo::closure
