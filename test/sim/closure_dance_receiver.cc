// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance_receiver.cc: the receiver's hands in model M1, as in closure_dance_sender.cc.
#include "test/sim/closure_dance.h"

namespace bfo::closure {

void Dance::open_round() {
  State& s = c_;
  s.r_todo = 0;
  if (mode_ == Mode::kCopy) {
    s.r_answer = 1;
    return;
  }
  s.r_todo = static_cast<uint8_t>(all_ & ~s.have);
  s.total = s.r_todo;
}

void Dance::r_event(RE ev, const Entry* m, int rail) {
  State& s = c_;
  const auto& cell = t_.recv[s.r_phase][static_cast<unsigned>(ev)];
  ++recv_used[s.r_phase][static_cast<unsigned>(ev)];
  if (cell.kind == core::CellKind::kIgnore) return;
  if (cell.kind != core::CellKind::kGo) return broken("receiver reached a cell marked bug");
  s.r_phase = static_cast<uint8_t>(cell.next);
  const uint32_t a = cell.actions;
  const int range = m ? m->arg & 1 : 0;
  if ((a & core::kRecvStore) && m && !(s.have >> range & 1)) {
    s.cell[range] = m->id == kForged ? 2 : 1;
    s.have = static_cast<uint8_t>(s.have | 1 << range);
  }
  if ((a & core::kRecvUseGrant) && m && s.led[range] && s.led_id[range] == m->id) {
    if (s.led[range] == 1 + rail || off(Without::kForeignFin)) {
      s.have = static_cast<uint8_t>(s.have | 1 << range);
      s.led[range] = 0;
    } else {
      s.led_fin[range] = 1;
      r_fence(s.led[range] - 1);
    }
  }
  if ((a & core::kRecvDropGrant) && m && s.led[range] && s.led_id[range] == m->id) {
    s.refused = static_cast<uint8_t>(s.refused | 1 << (s.led[range] - 1));
    s.led[range] = 0;
    if (static_cast<RP>(s.r_phase) == RP::kReceiving) {
      s.r_todo = static_cast<uint8_t>(s.r_todo | 1 << range);
      bool any = false;
      for (int x = 0; x < rails_; ++x) any = any || (up(1, x) && !(s.refused >> x & 1));
      if (!any) return r_event(RE::kAsk);
    }
  }
  if ((a & core::kRecvCountRead) && m) s.have = static_cast<uint8_t>(s.have | 1 << range);
  if ((a & core::kRecvReopen) && m) {
    s.keys = m->arg;
    open_round();
  }
  if (a & core::kRecvAnswer) {
    if (mode_ == Mode::kCopy) s.r_answer = 1;
    if (m && m->type == kOpen) {
      s.keys = m->arg;
      if (mode_ == Mode::kPut)
        for (int i = 0; i < kRanges; ++i)
          if (s.led[i] && !s.led_fin[i]) s.led_owed[i] = 1;
    }
  }
  if (a & core::kRecvAsk) {
    s.r_ask = 1;
    s.r_answer = 0;
  }
  if ((a & core::kRecvQuiesce) && m) quiesce(*m);
  if (a & core::kRecvNewRound) {
    ++s.r_round;
    s.r_todo = s.doubtful = s.refused = s.next_id = s.r_answer = s.r_ask = 0;
  }
  if (a & core::kRecvRestartAck) {
    s.r_quiet = 1;
    s.r_answer = s.r_ask = 0;
  }
  if (a & core::kRecvSenderDone) {
    s.have = static_cast<uint8_t>(s.have | s.doubtful);
    s.doubtful = 0;
    for (int i = 0; i < kRanges; ++i)
      if (s.led[i] && s.led_sent[i]) s.led_fin[i] = 1;
  }
  if (a & core::kRecvFinishOk) {
    if (mode_ == Mode::kCopy && s.r_answer) s.r_stored_ack = s.r_round;
    if (mode_ == Mode::kGet && off(Without::kFinBehindGate)) s.r_stored_fin = s.r_round;
    s.r_answer = s.r_ask = s.r_quiet = s.r_todo = 0;
  }
  if (a & core::kRecvAnswerNack) {
    if (mode_ == Mode::kGet && r_ledger())
      s.nack_pending = 1;
    else
      s.r_stored_nack = s.r_round;
  }
  if (a & core::kRecvFail) {
    s.r_bad = 1;
    s.r_answer = s.r_ask = s.r_quiet = s.r_todo = 0;
    for (int i = 0; i < kRanges; ++i)
      if (s.led[i]) r_fence(s.led[i] - 1);
    if (s.r_done) return;  // the last READ to end opened the gate
  }
  if (a & core::kRecvComplete) return r_over(s.r_bad);
  r_check();
}

/// The receive is complete in MPI.
void Dance::r_over(bool bad) {
  State& s = c_;
  s.r_done = 1;
  if (s.r_round == 0) s.r_round = 1;  // never matched: given up
  if (s.nack_pending)
    s.r_stored_nack = s.r_round;
  else if (mode_ == Mode::kGet && !bad && !off(Without::kFinBehindGate))
    s.r_stored_fin = s.r_round;
  s.nack_pending = 0;
  if (off(Without::kAnswerDuplicate)) s.r_told = s.r_round;
  for (int i = 0; i < ranges_ && !bad; ++i)
    if (s.cell[i] != 1) broken("a receive completed with wrong bytes");
}

/// A finished receive is asked: the answer is NACK, however often.
void Dance::r_nack_again(int round) {
  State& s = c_;
  if (off(Without::kAnswerDuplicate)) {
    if (round <= s.r_told) return;
    s.r_told = static_cast<uint8_t>(round);
  }
  s.r_stored_nack = s.r_round;
}

void Dance::r_check() {
  State& s = c_;
  const RP p = static_cast<RP>(s.r_phase);
  if (s.r_done || s.stored == 0 || p == RP::kIdle) return;
  if (p == RP::kReceiving || p == RP::kAsking || p == RP::kQuiescing) {
    if (s.have == all_) return r_event(RE::kCovered);
  }
  bool clear = s.r_flight == 0 && !r_ledger();
  if (p == RP::kQuiescing && s.r_looks == 0 && (clear || off(Without::kFenceInQuiesce))) {
    if (off(Without::kFenceInQuiesce)) std::memset(s.led, 0, sizeof s.led);
    return r_event(RE::kQuiesced);
  }
  if (off(Without::kGateAtReceiver)) clear = true;
  if (p == RP::kClosing && clear) r_event(RE::kGateOpen);
}

void Dance::quiesce(const Entry& m) {
  State& s = c_;
  if (static_cast<RP>(s.r_phase) == RP::kQuiescing) {
    s.r_answer = s.r_ask = s.r_todo = 0;
    s.r_looks = mode_ == Mode::kCopy;  // for how long is left open, as it is when the FRAGs are lost
  }
  for (int i = 0; i < kRanges; ++i) {
    if (!s.led[i]) continue;
    const int x = s.led[i] - 1;
    if (mode_ != Mode::kPut) continue;  // READs end by themselves
    const bool clean = m.arg >> x & 1;
    if (off(Without::kUnionOfRanges) && clean) s.have = static_cast<uint8_t>(s.have | 1 << i);
    if (clean || off(Without::kFenceNamedByPeer)) {
      s.led[i] = 0;
      continue;
    }
    r_fence(x);
    if (off(Without::kSynchronousFence)) s.led[i] = 0;
  }
}

void Dance::r_complete(const Entry& e, int x, bool ok) {
  State& s = c_;
  const int range = e.arg & 1;
  switch (e.type) {
    case kRead: {
      --s.r_flight;
      if (s.r_done) return;
      if (ok) {
        s.led[range] = 0;
        r_event(RE::kReadDone, &e, x);
        if (!s.r_done) r_check();
        return;
      }
      s.led[range] = 0;
      if (s.side[x][1] != kClosed) s.dead_reads[range] = static_cast<uint8_t>(s.dead_reads[range] | 1 << x);
      if (static_cast<RP>(s.r_phase) == RP::kReceiving) {
        s.r_todo = static_cast<uint8_t>(s.r_todo | 1 << range);
        if (key_up()) return;
      }
      r_event(RE::kReadLost, &e, x);
      if (!s.r_done) r_check();
      return;
    }
    case kAck:
      if (!ok && e.id == 1) {
        s.r_stored_ack = e.round;
        return;
      }
      [[fallthrough]];
    case kPut:
    case kRack:
    case kRerr:
      if (!ok && !s.r_done && e.round == s.r_round && !off(Without::kPendingAnswer))
        r_event(RE::kControlLost);
      return;
    case kNack:
      if (!ok) s.r_stored_nack = e.round;
      return;
    case kFinGet:
      if (!ok) s.r_stored_fin = e.round;
      return;
    case kLost:
      if (!ok) s.r_tell = 1;
      return;
    default:
      return;
  }
}

void Dance::r_deliver(const Entry& e, int x) {
  State& s = c_;
  show(x);
  if (e.type == kLost) {
    if (s.r_done) return;
    if (static_cast<RP>(s.r_phase) != RP::kIdle) return r_event(RE::kGiveUp);
    s.stored = s.r_bad = 1;
    return r_over(true);
  }
  if (e.type == kOpen) {
    if (!s.stored && !s.r_done) {
      s.stored = 1;  // unmatched
      s.keys = e.arg;
      return;
    }
    if (s.r_done) return r_nack_again(e.round);
    if (static_cast<RP>(s.r_phase) == RP::kIdle) {
      s.keys = e.arg;  // still unmatched: the newer header counts
      if (off(Without::kNackProof)) s.r_stored_nack = 1;
      return;
    }
    if (e.round != s.r_round) return;
    r_event(e.round > 1 ? RE::kReopen : RE::kOpenAgain, &e, x);
    return;
  }
  if (e.type == kNotify) {
    if (s.r_done) return r_nack_again(e.round);
    if (e.round == s.r_round + 1) r_event(RE::kNotify, &e, x);
    if (e.round == s.r_round && !off(Without::kAnswerDuplicate)) r_event(RE::kNotifyAgain, &e, x);
    return;
  }
  if (s.r_done || static_cast<RP>(s.r_phase) == RP::kIdle) return;
  if (e.type == kDone) return r_event(e.arg ? RE::kSendFailed : RE::kSendDone, &e, x);
  if (e.round != s.r_round && !off(Without::kRoundInFrag)) return;
  if (e.type == kFrag) r_event(RE::kFrag, &e, x);
  if (e.type == kFin) r_event(RE::kFin, &e, x);
  if (e.type == kFinFail) r_event(RE::kFinRefused, &e, x);
}

/// What R may hand to rail x.
void Dance::r_posts(const State& from, std::vector<Next>& out, int x) {
  const RP rp = static_cast<RP>(from.r_phase);
  const auto r_post = [&](uint8_t type, int round, int arg, int id, auto&& after, const char* what) {
    c_ = from;
    post(x, 1, type, round, arg, id);
    after(c_);
    go(from, out, what, x);
  };
  c_ = from;
  if (up(1, x) && room(x, 1)) {
    if (from.r_ask)
      r_post(
          kRerr, from.r_round, 0, 0, [](State& s) { s.r_ask = 0; }, "R posts RECVERR");
    if (from.r_quiet)
      r_post(
          kRack, from.r_round, from.have, 0, [](State& s) { s.r_quiet = 0; }, "R posts RESTARTACK");
    if (from.r_answer && mode_ == Mode::kCopy)
      r_post(
          kAck, from.r_round, 0, 0, [](State& s) { s.r_answer = 0; }, "R posts ACK");
    if (from.r_stored_ack)
      r_post(
          kAck, from.r_stored_ack, 0, 1, [](State& s) { s.r_stored_ack = 0; }, "R posts last ACK");
    if (from.r_stored_nack)
      r_post(
          kNack, from.r_stored_nack, from.r_bad, 0, [](State& s) { s.r_stored_nack = 0; }, "R posts NACK");
    if (from.r_tell == 1)
      r_post(
          kLost, 0, 0, 0, [](State& s) { s.r_tell = 2; }, "R says it gave up");
    if (from.r_stored_fin)
      r_post(
          kFinGet, from.r_stored_fin, 0, 0, [](State& s) { s.r_stored_fin = 0; }, "R posts FIN");
    for (int i = 0; i < kRanges; ++i) {
      if ((from.r_todo >> i & 1) && rp == RP::kReceiving && mode_ == Mode::kGet && (from.keys >> x & 1) &&
          from.led[i] == 0)
        r_post(
            kRead, from.r_round, i, 0,
            [&](State& s) {
              s.r_todo = static_cast<uint8_t>(s.r_todo & ~(1 << i));
              s.led[i] = static_cast<uint8_t>(1 + x);
              ++s.r_flight;
            },
            "R posts READ");
      if ((from.r_todo >> i & 1) && rp == RP::kReceiving && mode_ == Mode::kPut && from.led[i] == 0 &&
          !(from.refused >> x & 1) && from.next_id < 8)
        r_post(
            kPut, from.r_round, i | x << 1 | from.total << 4, from.next_id,
            [&](State& s) {
              s.r_todo = static_cast<uint8_t>(s.r_todo & ~(1 << i));
              s.led[i] = static_cast<uint8_t>(1 + x);
              s.led_id[i] = s.next_id++;
              s.led_sent[i] = 1;
            },
            "R posts PUT");
      if (from.led[i] == 1 + x && from.led_owed[i] && rp == RP::kReceiving && mode_ == Mode::kPut)
        r_post(
            kPut, from.r_round, i | x << 1 | from.total << 4, from.led_id[i],
            [&](State& s) { s.led_owed[i] = 0; }, "R repeats PUT");
    }
  }
}

}  // namespace bfo::closure
