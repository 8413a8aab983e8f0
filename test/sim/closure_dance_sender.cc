// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance_sender.cc: the sender's hands in model M1. They say in one bit per range what restart.h,
// rndv_copy.h, rget.h and rput.h do in bytes.
#include "test/sim/closure_dance.h"

namespace bfo::closure {

void Dance::s_event(SE ev, const Entry* m, int rail) {
  State& s = c_;
  const auto& cell = t_.send[s.s_phase][static_cast<unsigned>(ev)];
  ++send_used[s.s_phase][static_cast<unsigned>(ev)];
  if (cell.kind == core::CellKind::kIgnore) return;
  if (cell.kind != core::CellKind::kGo) return broken("sender reached a cell marked bug");
  s.s_phase = static_cast<uint8_t>(cell.next);
  const uint32_t a = cell.actions;
  if (a & (core::kSendStart | core::kSendWrite)) s.s_open = 0;
  if (a & core::kSendStart) {
    if (s.s_round == 1) s.s_todo = all_;
    s.s_undel = s.s_todo;
    s.s_data = 1;
    s_check();
  }
  if ((a & core::kSendWrite) && m) {
    const int range = m->arg & 1;
    if (!s.s_put) {
      s.s_put = 1;
      s.s_todo = 0;
      s.s_undel = static_cast<uint8_t>(m->arg >> 4);
      s.s_seen = 0;
    }
    if (!(s.s_seen >> m->id & 1)) {
      s.s_seen = static_cast<uint8_t>(s.s_seen | 1 << m->id);
      const int x = m->arg >> 1 & 3;
      if (up(0, x)) {
        s.s_grant[range] = static_cast<uint8_t>(1 + x);
        s.s_gid[range] = m->id;
      } else {
        s.s_fail[range] = s.s_round;
        s.s_fail_id[range] = m->id;
      }
    }
  }
  if (a & core::kSendNewRound) {
    if (s.s_round == 15) return broken("rounds without end");
    ++s.s_round;
    s.s_todo = s.s_undel = s.s_put = s.s_seen = 0;
    std::memset(s.s_grant, 0, sizeof s.s_grant);
  }
  if (a & core::kSendNotify) s.s_notify = 1;
  if ((a & core::kSendPlan) && m) {
    s.s_todo = static_cast<uint8_t>(all_ & ~m->arg);
    s.s_dirty = 0;
    s.s_notify = 0;
  }
  if (a & core::kSendOpen) s.s_open = 1;
  if (a & core::kSendDrain) {
    s.s_todo = s.s_undel = s.s_open = s.s_data = 0;
    std::memset(s.s_grant, 0, sizeof s.s_grant);
    if (s.s_flight == 0 || off(Without::kDrainBeforeNotify)) s_event(SE::kDrained);
  }
  if (a & (core::kSendFinishOk | core::kSendFail)) {
    s.s_open = s.s_data = s.s_notify = s.s_todo = s.s_undel = 0;
    std::memset(s.s_grant, 0, sizeof s.s_grant);
    if (a & core::kSendFail) {
      s.s_bad = 1;
      s_recall();
    }
    s_check();
  }
  if (a & core::kSendAnswerDone) s.s_stored_done = 1;
  if (a & core::kSendComplete) s.s_done = 1;
  (void)rail;
}

/// S ends with an error while R may still read: its rails are fenced before the gate opens.
void Dance::s_recall() {
  if (mode_ != Mode::kGet) return;
  for (int x = 0; x < rails_; ++x)
    if (c_.side[x][0] != kClosed) c_.s_ledger = static_cast<uint8_t>(c_.s_ledger | 1 << x);
  for (int x = 0; x < rails_; ++x) lose(x, 0);
}

void Dance::s_check() {
  State& s = c_;
  const SP p = static_cast<SP>(s.s_phase);
  bool grants = false;
  for (int i = 0; i < kRanges; ++i) grants = grants || s.s_grant[i];
  if (p == SP::kSending && s.s_flight == 0 && s.s_undel == 0 && !grants) return s_event(SE::kAllDelivered);
  if (p == SP::kDraining && s.s_flight == 0) return s_event(SE::kDrained);
  if (p == SP::kClosing && s.s_flight == 0 && s.s_ledger == 0) s_event(SE::kGateOpen);
}

/// One of S's own fragments ended.
void Dance::s_complete(const Entry& e, int x, bool ok) {
  State& s = c_;
  switch (e.type) {
    case kFrag:
    case kWrite:
      --s.s_flight;
      if (ok) {
        if (e.round == s.s_round) s.s_undel = static_cast<uint8_t>(s.s_undel & ~(1 << (e.arg & 1)));
        if (e.type == kWrite && !off(Without::kFinResendRule)) {
          s.s_fin[e.arg & 1] = e.round;
          s.s_fin_id[e.arg & 1] = e.id;
          s.s_fin_rail[e.arg & 1] = static_cast<uint8_t>(x);
        }
      } else {
        if (e.type == kWrite) {
          s.s_dirty = static_cast<uint8_t>(s.s_dirty | 1 << x);
          if (s.side[x][0] != kClosed) s.s_ledger = static_cast<uint8_t>(s.s_ledger | 1 << x);
        }
        if (!s.s_done && !(off(Without::kDrainBeforeNotify) && e.round != s.s_round)) s_event(SE::kDataLost);
      }
      if (!s.s_done) s_check();
      break;
    case kOpen:
    case kNotify:
      if (!ok && !s.s_done && e.round == s.s_round && !off(Without::kPendingRequest))
        s_event(SE::kControlLost);
      break;
    case kFin:
      if (!ok && e.round >= s.s_fin[e.arg & 1]) {  // one of an older round is dropped by R anyway
        s.s_fin[e.arg & 1] = e.round;
        s.s_fin_id[e.arg & 1] = e.id;
        s.s_fin_rail[e.arg & 1] = static_cast<uint8_t>(x);
      }
      break;
    case kFinFail:
      if (!ok && e.round >= s.s_fail[e.arg & 1]) {
        s.s_fail[e.arg & 1] = e.round;
        s.s_fail_id[e.arg & 1] = e.id;
      }
      break;
    case kDone:
      if (!ok) s.s_stored_done = 1;
      break;
    case kLost:
      if (!ok) s.s_tell = 1;
      break;
    default:
      break;
  }
}

/// A message from R.
void Dance::s_deliver(const Entry& e, int x) {
  State& s = c_;
  if (s.s_done) {
    if (e.type == kRerr && !off(Without::kSendDone)) s.s_stored_done = 1;
    return;
  }
  const bool now = e.round == s.s_round;
  switch (e.type) {
    case kAck:
      if (now) s_event(SE::kAck, &e, x);
      break;
    case kPut:
      if (now) s_event(SE::kPut, &e, x);
      break;
    case kFinGet:
      if (now) s_event(SE::kFin, &e, x);
      break;
    case kRack:
      if (now) s_event(SE::kRestartAck, &e, x);
      break;
    case kNack:
      s_event(e.arg ? SE::kNackFailed : SE::kNack, &e, x);
      break;
    case kLost:
      s_event(SE::kGiveUp);
      break;
    case kRerr:
      s_event(now ? SE::kRecvErr : SE::kRecvErrOld, &e, x);
      break;
    default:
      break;
  }
}

/// What S may hand to rail x.
void Dance::s_posts(const State& from, std::vector<Next>& out, int x) {
  const auto s_post = [&](uint8_t type, int round, int arg, int id, auto&& after, const char* what) {
    c_ = from;
    post(x, 0, type, round, arg, id);
    after(c_);
    go(from, out, what, x);
  };
  c_ = from;
  int alive = 0;
  for (int y = 0; y < rails_; ++y) alive |= up(0, y) << y;
  if (up(0, x) && room(x, 0)) {
    if (from.s_notify)
      s_post(
          kNotify, from.s_round, ~from.s_dirty & 7, 0, [](State& s) { s.s_notify = 0; }, "S posts NOTIFY");
    if (from.s_open)
      s_post(
          kOpen, from.s_round, mode_ == Mode::kGet ? alive : 0, 0, [](State& s) { s.s_open = 0; },
          "S posts OPEN");
    if (from.s_stored_done)
      s_post(
          kDone, from.s_round, from.s_bad, 0, [](State& s) { s.s_stored_done = 0; }, "S posts SENDDONE");
    if (from.s_tell == 1)
      s_post(
          kLost, 0, 0, 0, [](State& s) { s.s_tell = 2; }, "S says it gave up");
    for (int i = 0; i < kRanges; ++i) {
      if ((from.s_todo >> i & 1) && static_cast<SP>(from.s_phase) == SP::kSending && !from.s_put)
        s_post(
            kFrag, from.s_round, i, 0,
            [&](State& s) {
              s.s_todo = static_cast<uint8_t>(s.s_todo & ~(1 << i));
              ++s.s_flight;
            },
            "S posts FRAG");
      if (from.s_grant[i] == 1 + x && static_cast<SP>(from.s_phase) == SP::kSending)
        s_post(
            kWrite, from.s_round, i, from.s_gid[i],
            [&](State& s) {
              s.s_grant[i] = 0;
              ++s.s_flight;
              if (off(Without::kFinResendRule)) {
                s.s_fin[i] = s.s_round;
                s.s_fin_id[i] = s.s_gid[i];
                s.s_fin_rail[i] = static_cast<uint8_t>(x);
              }
            },
            "S posts write");
      c_ = from;
      const bool pinned = from.s_fin[i] && up(0, from.s_fin_rail[i]);
      if (from.s_fin[i] && (!pinned || from.s_fin_rail[i] == x))
        s_post(
            kFin, from.s_fin[i], i, from.s_fin_id[i], [&](State& s) { s.s_fin[i] = 0; }, "S posts FIN");
      if (from.s_fail[i])
        s_post(
            kFinFail, from.s_fail[i], i, from.s_fail_id[i], [&](State& s) { s.s_fail[i] = 0; },
            "S posts FIN(fail)");
    }
  }
  for (int i = 0; i < kRanges; ++i) {
    c_ = from;
    if (from.s_grant[i] == 1 + x && !up(0, x)) {
      c_.s_grant[i] = 0;
      c_.s_fail[i] = from.s_round;
      c_.s_fail_id[i] = from.s_gid[i];
      go(from, out, "S refuses a grant", x);
    }
  }
}

}  // namespace bfo::closure
