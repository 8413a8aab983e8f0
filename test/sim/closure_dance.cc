// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance.cc: the transitions of model M1. Functions named s_ are the sender's hands, r_ the
// receiver's; they say in one bit per range what restart.h, rndv_copy.h, rget.h and rput.h do in bytes.
#include "test/sim/closure_dance.h"

#include <algorithm>

namespace bfo::closure {

std::string Dance::describe(const State& s) const {
  std::string t = std::string("S ") + (s.s_done ? "done" : core::kSendPhaseNames[s.s_phase]) + " round " +
                  std::to_string(s.s_round) + " todo " + std::to_string(s.s_todo) + " undelivered " +
                  std::to_string(s.s_undel) + " in flight " + std::to_string(s.s_flight) + " ledger " +
                  std::to_string(s.s_ledger) + "; R " +
                  (s.r_done ? "done" : core::kRecvPhaseNames[s.r_phase]) + " round " +
                  std::to_string(s.r_round) + " have " + std::to_string(s.have) + " todo " +
                  std::to_string(s.r_todo) + " ledger";
  for (int i = 0; i < kRanges; ++i) t += " " + std::to_string(s.led[i]) + (s.led_fin[i] ? "f" : "");
  t += "; owed " + std::to_string(s.s_open) + std::to_string(s.s_notify) + std::to_string(s.s_raw_done) +
       " " + std::to_string(s.r_answer) + std::to_string(s.r_ask) + std::to_string(s.r_quiet);
  for (int x = 0; x < rails_; ++x)
    t += "; rail " + std::to_string(s.side[x][0]) + std::to_string(s.side[x][1]) + " q " +
         std::to_string(s.q[x][0].n) + " " + std::to_string(s.q[x][1].n);
  return t;
}

namespace {
int rails_of(int mask, const int* rail) {
  int m = 0;
  for (int x = 0; x < kRails; ++x)
    if (mask >> x & 1) m |= 1 << rail[x];
  return m;
}
int ranges_of(int mask, bool swap) {
  return swap ? (mask >> 1 & 1) | (mask & 1) << 1 : mask;
}
}  // namespace

State Dance::renamed(const State& s, const int* rail, bool swap) const {
  State t = s;
  const auto b = [](int v) { return static_cast<std::uint8_t>(v); };
  for (int x = 0; x < rails_; ++x)
    for (int dir = 0; dir < 2; ++dir) {
      t.side[rail[x]][dir] = s.side[x][dir];
      Fifo& q = t.q[rail[x]][dir];
      q = s.q[x][dir];
      for (int i = 0; i < q.n; ++i) {
        Entry& e = q.e[i];
        const int range = (e.arg & 1) ^ (swap ? 1 : 0);
        switch (e.type) {
          case kFrag:
          case kWrite:
          case kFin:
          case kFinFail:
          case kRead:
            e.arg = b(range);
            break;
          case kOpen:
          case kNotify:
            e.arg = b(rails_of(e.arg, rail));
            break;
          case kRack:
            e.arg = b(ranges_of(e.arg, swap));
            break;
          case kPut:
            e.arg = b(range | rail[e.arg >> 1 & 3] << 1 | ranges_of(e.arg >> 4, swap) << 4);
            break;
          default:
            break;
        }
      }
    }
  t.s_dirty = b(rails_of(s.s_dirty, rail));
  t.s_ledger = b(rails_of(s.s_ledger, rail));
  t.keys = b(rails_of(s.keys, rail));
  t.refused = b(rails_of(s.refused, rail));
  for (std::uint8_t State::*m :
       {&State::s_todo, &State::s_undel, &State::have, &State::r_todo, &State::doubtful, &State::total})
    t.*m = b(ranges_of(s.*m, swap));
  for (int i = 0; i < kRanges; ++i) {
    const int k = swap ? 1 - i : i;
    t.s_grant[k] = b(s.s_grant[i] ? 1 + rail[s.s_grant[i] - 1] : 0);
    t.s_gid[k] = s.s_gid[i];
    t.s_fin[k] = s.s_fin[i];
    t.s_fin_id[k] = s.s_fin_id[i];
    t.s_fin_rail[k] = b(s.s_fin[i] ? rail[s.s_fin_rail[i]] : 0);
    t.s_fail[k] = s.s_fail[i];
    t.s_fail_id[k] = s.s_fail_id[i];
    t.led[k] = b(s.led[i] ? 1 + rail[s.led[i] - 1] : 0);
    t.led_id[k] = s.led_id[i];
    t.led_fin[k] = s.led_fin[i];
    t.led_owed[k] = s.led_owed[i];
    t.led_sent[k] = s.led_sent[i];
    t.cell[k] = s.cell[i];
    t.dead_reads[k] = b(rails_of(s.dead_reads[i], rail));
    t.hidden[k] = b(s.hidden[i] ? 1 + rail[s.hidden[i] - 1] : 0);
    t.hidden_value[k] = s.hidden_value[i];
  }
  return t;
}

namespace {
/// What of a rail does not depend on names of rails or ranges.
std::uint64_t looks_of(const State& s, int x) {
  std::uint64_t k = static_cast<std::uint64_t>(s.side[x][0] * 3 + s.side[x][1]);
  for (const Fifo& q : s.q[x])
    for (int i = 0; i < kDepth; ++i) {
      const Entry& e = q.e[i];
      const int flags = e.executed | e.delivered << 1 | e.completed << 2;
      k = k * 0x9e3779b97f4a7c15u +
          static_cast<std::uint64_t>(e.type | e.round << 4 | e.id << 8 | flags << 12);
    }
  return k;
}
/// The same for a range.
std::uint64_t looks_of_range(const State& s, int i) {
  std::uint64_t k = 0;
  for (std::uint8_t v : {s.s_todo, s.s_undel, s.have, s.r_todo, s.doubtful, s.total})
    k = k << 1 | (v >> i & 1);
  for (std::uint8_t v : {s.led_id[i], s.s_gid[i], s.s_fin[i], s.s_fail[i], s.led_fin[i], s.cell[i]})
    k = k << 4 | v;
  return k << 4 | (s.led[i] != 0) << 3 | (s.s_grant[i] != 0) << 2 | (s.hidden[i] != 0) << 1 |
         (s.dead_reads[i] != 0);
}
}  // namespace

/// Only renamings that sort rails and ranges by their looks are tried.
State Dance::canonical(const State& s) const {
  static constexpr int kOrders[6][kRails] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                             {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  std::uint64_t looks[kRails] = {};
  for (int x = 0; x < rails_; ++x) looks[x] = looks_of(s, x);
  const std::uint64_t first = looks_of_range(s, 0);
  const std::uint64_t second = ranges_ == 1 ? first + 1 : looks_of_range(s, 1);
  State best;
  bool any = false;
  const int orders = rails_ == 3 ? 6 : 2;
  for (int o = 0; o < orders; ++o) {
    std::uint64_t sorted[kRails] = {};
    for (int x = 0; x < rails_; ++x) sorted[kOrders[o][x]] = looks[x];
    if (!std::is_sorted(sorted, sorted + rails_)) continue;
    for (bool swap : {false, true}) {
      if (swap ? first < second : second < first) continue;
      const State t = renamed(s, kOrders[o], swap);
      if (!any || std::memcmp(&t, &best, sizeof t) < 0) best = t;
      any = true;
    }
  }
  return best;
}

/// Forget what no transition looks at any more.
void Dance::normalise() {
  State& s = c_;
  for (int i = 0; i < kRanges; ++i) {
    if (!s.led[i]) s.led_id[i] = s.led_fin[i] = s.led_owed[i] = s.led_sent[i] = 0;
    if (!s.s_grant[i]) s.s_gid[i] = 0;
    if (!s.s_fin[i]) s.s_fin_id[i] = s.s_fin_rail[i] = 0;
    if (!s.s_fail[i]) s.s_fail_id[i] = 0;
  }
  if (mode_ != Mode::kGet) s.keys = 0;
  if (mode_ != Mode::kPut) s.total = 0;
  if (s.s_done) s.s_seen = s.s_dirty = s.s_put = s.s_phase = 0;
  if (s.r_done && !off(Without::kGateAtReceiver)) {
    s.have = s.next_id = s.refused = s.doubtful = s.total = s.keys = s.r_phase = 0;
    std::memset(s.cell, 0, sizeof s.cell);
  }
}

void Dance::post(int x, int dir, std::uint8_t type, int round, int arg, int id) {
  Fifo& q = c_.q[x][dir];
  Entry& e = q.e[q.n++];
  std::memset(&e, 0, sizeof e);
  e.type = type;
  e.round = static_cast<std::uint8_t>(round);
  e.arg = static_cast<std::uint8_t>(arg);
  e.id = static_cast<std::uint8_t>(id);
  // Where every rail may die, a queue pair in ERR takes nothing new: otherwise two half-dead rails, one in
  // each direction, could carry round after round while nobody notices.
  e.bad = extra_.give_ups > 0 && c_.side[x][1 - dir] != kUp;
}

/// Entries that nothing can happen to any more leave.
void Dance::tidy(int x, int dir) {
  Fifo& q = c_.q[x][dir];
  const bool gone = c_.side[x][1 - dir] == kClosed;  // the receiving side is closed: nothing executes
  int n = 0;
  for (int i = 0; i < q.n; ++i) {
    const Entry& e = q.e[i];
    const bool memory_only = e.type == kWrite || e.type == kRead;
    // a READ also needs its own side: the response lands there
    const bool cannot_run = gone || (e.type == kRead && c_.side[x][dir] == kClosed);
    const bool over = e.completed && (cannot_run || e.bad || (e.executed && (memory_only || e.delivered)));
    if (!over) q.e[n++] = e;
  }
  for (int i = n; i < kDepth; ++i) std::memset(&q.e[i], 0, sizeof(Entry));
  q.n = static_cast<std::uint8_t>(n);
}

// ---- sender

void Dance::s_event(SE ev, const Entry* m, int rail) {
  State& s = c_;
  const auto& cell = t_.send[s.s_phase][static_cast<unsigned>(ev)];
  ++send_used[s.s_phase][static_cast<unsigned>(ev)];
  if (cell.kind == core::CellKind::kIgnore) return;
  if (cell.kind != core::CellKind::kGo) return broken("sender reached a cell marked bug");
  s.s_phase = static_cast<std::uint8_t>(cell.next);
  const std::uint32_t a = cell.actions;
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
      s.s_undel = static_cast<std::uint8_t>(m->arg >> 4);
      s.s_seen = 0;
    }
    if (!(s.s_seen >> m->id & 1)) {
      s.s_seen = static_cast<std::uint8_t>(s.s_seen | 1 << m->id);
      const int x = m->arg >> 1 & 3;
      if (up(0, x)) {
        s.s_grant[range] = static_cast<std::uint8_t>(1 + x);
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
    s.s_todo = static_cast<std::uint8_t>(all_ & ~m->arg);
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
  if (a & core::kSendAnswerDone) s.s_raw_done = 1;
  if (a & core::kSendComplete) s.s_done = 1;
  (void)rail;
}

/// S ends with an error while R may still read: its rails are fenced before the gate opens.
void Dance::s_recall() {
  if (mode_ != Mode::kGet) return;
  for (int x = 0; x < rails_; ++x)
    if (c_.side[x][0] != kClosed) c_.s_ledger = static_cast<std::uint8_t>(c_.s_ledger | 1 << x);
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
        if (e.round == s.s_round) s.s_undel = static_cast<std::uint8_t>(s.s_undel & ~(1 << (e.arg & 1)));
        if (e.type == kWrite && !off(Without::kFinResendRule)) {
          s.s_fin[e.arg & 1] = e.round;
          s.s_fin_id[e.arg & 1] = e.id;
          s.s_fin_rail[e.arg & 1] = static_cast<std::uint8_t>(x);
        }
      } else {
        if (e.type == kWrite) {
          s.s_dirty = static_cast<std::uint8_t>(s.s_dirty | 1 << x);
          if (s.side[x][0] != kClosed) s.s_ledger = static_cast<std::uint8_t>(s.s_ledger | 1 << x);
        }
        if (!s.s_done && !(off(Without::kDrainBeforeNotify) && e.round != s.s_round)) s_event(SE::kDataLost);
      }
      if (!s.s_done) s_check();
      break;
    case kOpen:
    case kNotify:
      if (!ok && !s.s_done && e.round == s.s_round && !off(Without::kOwedRequest)) s_event(SE::kControlLost);
      break;
    case kFin:
      if (!ok && e.round >= s.s_fin[e.arg & 1]) {  // one of an older round is dropped by R anyway
        s.s_fin[e.arg & 1] = e.round;
        s.s_fin_id[e.arg & 1] = e.id;
        s.s_fin_rail[e.arg & 1] = static_cast<std::uint8_t>(x);
      }
      break;
    case kFinFail:
      if (!ok && e.round >= s.s_fail[e.arg & 1]) {
        s.s_fail[e.arg & 1] = e.round;
        s.s_fail_id[e.arg & 1] = e.id;
      }
      break;
    case kDone:
      if (!ok) s.s_raw_done = 1;
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
    if (e.type == kRerr && !off(Without::kSendDone)) s.s_raw_done = 1;
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

// ---- receiver

void Dance::open_round() {
  State& s = c_;
  s.r_todo = 0;
  if (mode_ == Mode::kCopy) {
    s.r_answer = 1;
    return;
  }
  s.r_todo = static_cast<std::uint8_t>(all_ & ~s.have);
  s.total = s.r_todo;
}

void Dance::r_event(RE ev, const Entry* m, int rail) {
  State& s = c_;
  const auto& cell = t_.recv[s.r_phase][static_cast<unsigned>(ev)];
  ++recv_used[s.r_phase][static_cast<unsigned>(ev)];
  if (cell.kind == core::CellKind::kIgnore) return;
  if (cell.kind != core::CellKind::kGo) return broken("receiver reached a cell marked bug");
  s.r_phase = static_cast<std::uint8_t>(cell.next);
  const std::uint32_t a = cell.actions;
  const int range = m ? m->arg & 1 : 0;
  if ((a & core::kRecvStore) && m && !(s.have >> range & 1)) {
    s.cell[range] = m->id == kForged ? 2 : 1;
    s.have = static_cast<std::uint8_t>(s.have | 1 << range);
  }
  if ((a & core::kRecvUseGrant) && m && s.led[range] && s.led_id[range] == m->id) {
    if (s.led[range] == 1 + rail || off(Without::kForeignFin)) {
      s.have = static_cast<std::uint8_t>(s.have | 1 << range);
      s.led[range] = 0;
    } else {
      s.led_fin[range] = 1;
      r_fence(s.led[range] - 1);
    }
  }
  if ((a & core::kRecvDropGrant) && m && s.led[range] && s.led_id[range] == m->id) {
    s.refused = static_cast<std::uint8_t>(s.refused | 1 << (s.led[range] - 1));
    s.led[range] = 0;
    if (static_cast<RP>(s.r_phase) == RP::kReceiving) {
      s.r_todo = static_cast<std::uint8_t>(s.r_todo | 1 << range);
      bool any = false;
      for (int x = 0; x < rails_; ++x) any = any || (up(1, x) && !(s.refused >> x & 1));
      if (!any) return r_event(RE::kAsk);
    }
  }
  if ((a & core::kRecvCountRead) && m) s.have = static_cast<std::uint8_t>(s.have | 1 << range);
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
  if (a & core::kRecvQuiet) {
    s.r_quiet = 1;
    s.r_answer = s.r_ask = 0;
  }
  if (a & core::kRecvSenderDone) {
    s.have = static_cast<std::uint8_t>(s.have | s.doubtful);
    s.doubtful = 0;
    for (int i = 0; i < kRanges; ++i)
      if (s.led[i] && s.led_sent[i]) s.led_fin[i] = 1;
  }
  if (a & core::kRecvFinishOk) {
    if (mode_ == Mode::kCopy && s.r_answer) s.r_raw_ack = s.r_round;
    if (mode_ == Mode::kGet && off(Without::kFinBehindGate)) s.r_raw_fin = s.r_round;
    s.r_answer = s.r_ask = s.r_quiet = s.r_todo = 0;
  }
  if (a & core::kRecvAnswerNack) {
    if (mode_ == Mode::kGet && r_ledger())
      s.nack_owed = 1;
    else
      s.r_raw_nack = s.r_round;
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
  if (s.nack_owed)
    s.r_raw_nack = s.r_round;
  else if (mode_ == Mode::kGet && !bad && !off(Without::kFinBehindGate))
    s.r_raw_fin = s.r_round;
  s.nack_owed = 0;
  if (off(Without::kAnswerDuplicate)) s.r_told = s.r_round;
  for (int i = 0; i < ranges_ && !bad; ++i)
    if (s.cell[i] != 1) broken("a receive completed with wrong bytes");
}

/// A finished receive is asked: the answer is NACK, however often.
void Dance::r_nack_again(int round) {
  State& s = c_;
  if (off(Without::kAnswerDuplicate)) {
    if (round <= s.r_told) return;
    s.r_told = static_cast<std::uint8_t>(round);
  }
  s.r_raw_nack = s.r_round;
}

void Dance::r_check() {
  State& s = c_;
  const RP p = static_cast<RP>(s.r_phase);
  if (s.r_done || s.stored == 0 || p == RP::kIdle) return;
  if (p == RP::kReceiving || p == RP::kAsking || p == RP::kQuiescing) {
    if (s.have == all_) return r_event(RE::kCovered);
  }
  bool clear = s.r_flight == 0 && !r_ledger();
  if (p == RP::kQuiescing && (clear || off(Without::kFenceInQuiesce))) {
    if (off(Without::kFenceInQuiesce)) std::memset(s.led, 0, sizeof s.led);
    return r_event(RE::kQuiesced);
  }
  if (off(Without::kGateAtReceiver)) clear = true;
  if (p == RP::kClosing && clear) r_event(RE::kGateOpen);
}

void Dance::quiesce(const Entry& m) {
  State& s = c_;
  if (static_cast<RP>(s.r_phase) == RP::kQuiescing) s.r_answer = s.r_ask = s.r_todo = 0;
  for (int i = 0; i < kRanges; ++i) {
    if (!s.led[i]) continue;
    const int x = s.led[i] - 1;
    if (mode_ != Mode::kPut) continue;  // READs end by themselves
    const bool clean = m.arg >> x & 1;
    if (off(Without::kUnionOfRanges) && clean) s.have = static_cast<std::uint8_t>(s.have | 1 << i);
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
      if (s.side[x][1] != kClosed)
        s.dead_reads[range] = static_cast<std::uint8_t>(s.dead_reads[range] | 1 << x);
      if (static_cast<RP>(s.r_phase) == RP::kReceiving) {
        s.r_todo = static_cast<std::uint8_t>(s.r_todo | 1 << range);
        if (key_up()) return;
      }
      r_event(RE::kReadLost, &e, x);
      if (!s.r_done) r_check();
      return;
    }
    case kAck:
      if (!ok && e.id == 1) {
        s.r_raw_ack = e.round;
        return;
      }
      [[fallthrough]];
    case kPut:
    case kRack:
    case kRerr:
      if (!ok && !s.r_done && e.round == s.r_round && !off(Without::kOwedAnswer)) r_event(RE::kControlLost);
      return;
    case kNack:
      if (!ok) s.r_raw_nack = e.round;
      return;
    case kFinGet:
      if (!ok) s.r_raw_fin = e.round;
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
      if (off(Without::kNackProof)) s.r_raw_nack = 1;
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

// ---- rails

/// How many of the oldest open fragments may have been reported as delivered just before the rail dies.
int Dance::leading_ok(int x, int who) const {
  const Fifo& q = c_.q[x][who];
  int n = 0;
  for (int i = 0; i < q.n; ++i) {
    if (q.e[i].completed) continue;
    if (!atomic(q.e[i].type) || !q.e[i].executed || q.e[i].bad) break;
    ++n;
  }
  return n;
}

/// Rail x dies for side `who` (0 = S): its own fragments end in order, the first `ok` well, the others with
/// unknown fate.
void Dance::lose(int x, int who, int ok) {
  if (c_.side[x][who] != kUp) return;
  c_.side[x][who] = kDown;
  Entry lost[kDepth];
  int n = 0;
  Fifo& q = c_.q[x][who];
  for (int i = 0; i < q.n; ++i)
    if (!q.e[i].completed) {
      q.e[i].completed = 1;
      if (ok > 0)
        --ok;
      else
        lost[n++] = q.e[i];
    }
  for (int i = 0; i < n; ++i) who == 0 ? s_complete(lost[i], x, false) : r_complete(lost[i], x, false);
}

/// The rail is fenced at side `who`.
void Dance::close(int x, int who) {
  State& s = c_;
  s.side[x][who] = kClosed;
  if (who == 1) {
    show(x);
    for (int i = 0; i < kRanges; ++i)
      s.dead_reads[i] = static_cast<std::uint8_t>(s.dead_reads[i] & ~(1 << x));
  }
  tidy(x, 0);
  tidy(x, 1);
  // the counts are compared (H4): what was acknowledged and not handed over is sent again
  std::uint8_t& told = who == 0 ? s.s_tell : s.r_tell;
  if (told == 2) told = 1;
  if (who == 0) {
    if (s.s_done) return;
    s.s_ledger = static_cast<std::uint8_t>(s.s_ledger & ~(1 << x));
    if (!off(Without::kOwedRequest)) s_event(SE::kRailClosed);
    if (!s.s_done) s_check();
    return;
  }
  if (s.r_done || static_cast<RP>(s.r_phase) == RP::kIdle) return;
  bool unused = false;
  for (int i = 0; i < kRanges; ++i) {
    if (s.led[i] != 1 + x) continue;
    if (mode_ == Mode::kPut) {
      if (s.led_fin[i]) {
        s.have = static_cast<std::uint8_t>(s.have | 1 << i);
      } else if (!s.led_sent[i]) {
        s.r_todo = static_cast<std::uint8_t>(s.r_todo | 1 << i);
      } else {
        s.doubtful = static_cast<std::uint8_t>(s.doubtful | 1 << i);
        unused = true;
      }
    }
    s.led[i] = 0;
  }
  if (unused)
    r_event(RE::kAsk);
  else if (!off(Without::kOwedAnswer))
    r_event(RE::kRailClosed);
  if (!s.r_done) r_check();
}

/// What was written over rail x is visible to R: a later message of the rail was polled, or the rail is
/// closed.
void Dance::show(int x) {
  State& s = c_;
  for (int i = 0; i < kRanges; ++i) {
    if (s.hidden[i] != 1 + x) continue;
    if (s.r_done) broken("memory was written after its receive completed");
    s.cell[i] = s.hidden_value[i];
    s.hidden[i] = s.hidden_value[i] = 0;
  }
}

/// The first posted entry of a queue reaches the other HCA.
void Dance::execute(int x, int dir) {
  State& s = c_;
  Fifo& q = s.q[x][dir];
  for (int i = 0; i < q.n; ++i) {
    Entry& e = q.e[i];
    if (e.executed) continue;
    if (e.bad) return;
    e.executed = 1;
    if (e.type == kWrite || e.type == kRead) {
      const int range = e.arg & 1;
      const std::uint8_t value = s.s_done ? 2 : 1;
      if (s.r_done) broken("memory was written after its receive completed");
      if (e.type == kRead) {
        s.cell[range] = value;
      } else {
        s.hidden[range] = static_cast<std::uint8_t>(1 + x);
        s.hidden_value[range] = value;
      }
    }
    return;
  }
}

// ---- successors

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
  if (!from.r_done && static_cast<RP>(from.r_phase) == RP::kQuiet)
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
    c_.r_phase = static_cast<std::uint8_t>(RP::kReceiving);
    c_.r_round = 1;
    open_round();
    go(from, out, "match", -1);
  }
  // a READ without usable key
  c_ = from;
  if (mode_ == Mode::kGet && from.r_todo && !from.r_done && !key_up() && rp == RP::kReceiving) {
    r_event(RE::kAsk);
    go(from, out, "no key", -1);
  }
  for (int x = 0; x < rails_; ++x) {
    // S posts
    const auto s_post = [&](std::uint8_t type, int round, int arg, int id, auto&& after, const char* what) {
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
      if (from.s_raw_done)
        s_post(
            kDone, from.s_round, from.s_bad, 0, [](State& s) { s.s_raw_done = 0; }, "S posts SENDDONE");
      if (from.s_tell == 1)
        s_post(
            kLost, 0, 0, 0, [](State& s) { s.s_tell = 2; }, "S says it gave up");
      for (int i = 0; i < kRanges; ++i) {
        if ((from.s_todo >> i & 1) && static_cast<SP>(from.s_phase) == SP::kSending && !from.s_put)
          s_post(
              kFrag, from.s_round, i, 0,
              [&](State& s) {
                s.s_todo = static_cast<std::uint8_t>(s.s_todo & ~(1 << i));
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
                  s.s_fin_rail[i] = static_cast<std::uint8_t>(x);
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
    // R posts
    const auto r_post = [&](std::uint8_t type, int round, int arg, int id, auto&& after, const char* what) {
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
      if (from.r_raw_ack)
        r_post(
            kAck, from.r_raw_ack, 0, 1, [](State& s) { s.r_raw_ack = 0; }, "R posts last ACK");
      if (from.r_raw_nack)
        r_post(
            kNack, from.r_raw_nack, from.r_bad, 0, [](State& s) { s.r_raw_nack = 0; }, "R posts NACK");
      if (from.r_tell == 1)
        r_post(
            kLost, 0, 0, 0, [](State& s) { s.r_tell = 2; }, "R says it gave up");
      if (from.r_raw_fin)
        r_post(
            kFinGet, from.r_raw_fin, 0, 0, [](State& s) { s.r_raw_fin = 0; }, "R posts FIN");
      for (int i = 0; i < kRanges; ++i) {
        if ((from.r_todo >> i & 1) && rp == RP::kReceiving && mode_ == Mode::kGet && (from.keys >> x & 1) &&
            from.led[i] == 0)
          r_post(
              kRead, from.r_round, i, 0,
              [&](State& s) {
                s.r_todo = static_cast<std::uint8_t>(s.r_todo & ~(1 << i));
                s.led[i] = static_cast<std::uint8_t>(1 + x);
                ++s.r_flight;
              },
              "R posts READ");
        if ((from.r_todo >> i & 1) && rp == RP::kReceiving && mode_ == Mode::kPut && from.led[i] == 0 &&
            !(from.refused >> x & 1) && from.next_id < 8)
          r_post(
              kPut, from.r_round, i | x << 1 | from.total << 4, from.next_id,
              [&](State& s) {
                s.r_todo = static_cast<std::uint8_t>(s.r_todo & ~(1 << i));
                s.led[i] = static_cast<std::uint8_t>(1 + x);
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
    // the network: execute, complete, deliver, each in order
    for (int dir = 0; dir < 2; ++dir) {
      const Fifo& q = from.q[x][dir];
      const Side there = static_cast<Side>(from.side[x][1 - dir]);
      const Side here = static_cast<Side>(from.side[x][dir]);
      for (int i = 0; i < q.n; ++i) {
        if (q.e[i].executed) continue;
        if (!atomic(q.e[i].type) && !q.e[i].bad && there != kClosed &&
            !(q.e[i].type == kRead && here == kClosed)) {
          c_ = from;
          execute(x, dir);
          go(from, out, dir == 0 ? "network executes at R" : "network executes at S", x);
        }
        break;
      }
      if (q.n == kDepth && here == kUp && !q.e[0].completed && q.e[0].executed && atomic(q.e[0].type)) {
        c_ = from;
        c_.q[x][dir].e[0].completed = 1;
        go(from, out, "the oldest completes", x);
      }
      for (int i = 0; i < q.n; ++i) {
        if (q.e[i].completed || atomic(q.e[i].type)) continue;
        if (q.e[i].executed && here == kUp) {
          c_ = from;
          for (int k = 0; k <= i; ++k) c_.q[x][dir].e[k].completed = 1;  // RC completes in order
          dir == 0 ? s_complete(q.e[i], x, true) : r_complete(q.e[i], x, true);
          go(from, out, dir == 0 ? "completion at S" : "completion at R", x);
        }
        break;
      }
      for (int i = 0; i < q.n; ++i) {
        const Entry& e = q.e[i];
        if (e.delivered) continue;
        if (e.bad) break;
        if (e.type == kWrite || e.type == kRead) {
          if (e.executed) continue;
          break;
        }
        if ((e.executed || atomic(e.type)) && there != kClosed) {
          c_ = from;
          c_.q[x][dir].e[i].executed = 1;
          c_.q[x][dir].e[i].delivered = 1;
          dir == 0 ? r_deliver(e, x) : s_deliver(e, x);
          go(from, out, dir == 0 ? "R receives" : "S receives", x);
        }
        break;
      }
    }
    // rails: a death at one side is a fault, the other side follows, both close
    for (int who = 0; who < 2; ++who) {
      c_ = from;
      if (from.side[x][who] == kUp) {
        const bool follows = from.side[x][1 - who] != kUp;
        int living = 0;
        for (int y = 0; y < rails_; ++y) living += from.side[y][0] == kUp && from.side[y][1] == kUp;
        const int most = leading_ok(x, who);
        for (int ok = 0; ok <= most; ++ok) {
          c_ = from;
          if (follows) {
            lose(x, who, ok);
            go(from, out, who == 0 ? "rail dies at S too" : "rail dies at R too", x);
          } else if (from.deaths < max_deaths_ && (living > 1 || extra_.give_ups > 0)) {
            ++c_.deaths;
            lose(x, who, ok);
            go(from, out, who == 0 ? "RAIL DIES at S" : "RAIL DIES at R", x, true);
            if (ok != 0 || split_ || from.side[x][1 - who] != kUp) continue;
            // its device dies: control messages it has acknowledged are lost with it (H4, H11)
            c_ = from;
            ++c_.deaths;
            bool any = false;
            Fifo& in = c_.q[x][1 - who];
            for (int i = 0; i < in.n; ++i) {
              if (in.e[i].delivered) continue;
              if (!atomic(in.e[i].type) || in.e[i].bad) break;
              in.e[i].executed = in.e[i].delivered = in.e[i].completed = 1;
              any = true;
            }
            if (!any) continue;
            lose(x, who, 0);
            go(from, out, who == 0 ? "DEVICE LOST at S" : "DEVICE LOST at R", x, true);
          }
        }
      } else if (from.side[x][who] == kDown) {
        bool undelivered = false;
        const Fifo& in = from.q[x][1 - who];
        for (int i = 0; i < in.n; ++i)
          undelivered = undelivered || (in.e[i].executed && !in.e[i].delivered && in.e[i].type != kWrite &&
                                        in.e[i].type != kRead);
        if (!undelivered || off(Without::kDeliverBeforeClose)) {
          close(x, who);
          go(from, out, who == 0 ? "fenced at S" : "fenced at R", x);
        }
      }
    }
  }
}

}  // namespace bfo::closure
