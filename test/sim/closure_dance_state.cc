// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance_state.cc: states of model M1: in words, and the smallest of those that are the same under
// renaming.
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
  t += "; pending " + std::to_string(s.s_open) + std::to_string(s.s_notify) +
       std::to_string(s.s_stored_done) + " " + std::to_string(s.r_answer) + std::to_string(s.r_ask) +
       std::to_string(s.r_quiet);
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
  const auto b = [](int v) { return static_cast<uint8_t>(v); };
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
  for (uint8_t State::*m :
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
uint64_t looks_of(const State& s, int x) {
  uint64_t k = static_cast<uint64_t>(s.side[x][0] * 3 + s.side[x][1]);
  for (const Fifo& q : s.q[x])
    for (int i = 0; i < kDepth; ++i) {
      const Entry& e = q.e[i];
      const int flags = e.executed | e.delivered << 1 | e.completed << 2;
      k = k * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(e.type | e.round << 4 | e.id << 8 | flags << 12);
    }
  return k;
}
/// The same for a range.
uint64_t looks_of_range(const State& s, int i) {
  uint64_t k = 0;
  for (uint8_t v : {s.s_todo, s.s_undel, s.have, s.r_todo, s.doubtful, s.total}) k = k << 1 | (v >> i & 1);
  for (uint8_t v : {s.led_id[i], s.s_gid[i], s.s_fin[i], s.s_fail[i], s.led_fin[i], s.cell[i]})
    k = k << 4 | v;
  return k << 4 | (s.led[i] != 0) << 3 | (s.s_grant[i] != 0) << 2 | (s.hidden[i] != 0) << 1 |
         (s.dead_reads[i] != 0);
}
}  // namespace

/// Only renamings that sort rails and ranges by their looks are tried.
State Dance::canonical(const State& s) const {
  static constexpr int kOrders[6][kRails] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                             {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  uint64_t looks[kRails] = {};
  for (int x = 0; x < rails_; ++x) looks[x] = looks_of(s, x);
  const uint64_t first = looks_of_range(s, 0);
  const uint64_t second = ranges_ == 1 ? first + 1 : looks_of_range(s, 1);
  State best;
  bool any = false;
  const int orders = rails_ == 3 ? 6 : 2;
  for (int o = 0; o < orders; ++o) {
    uint64_t sorted[kRails] = {};
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
  if (static_cast<core::RecvPhase>(s.r_phase) != core::RecvPhase::kQuiescing) s.r_looks = 0;
  if (mode_ != Mode::kGet) s.keys = 0;
  if (mode_ != Mode::kPut) s.total = 0;
  if (s.s_done) s.s_seen = s.s_dirty = s.s_put = s.s_phase = 0;
  if (s.r_done && !off(Without::kGateAtReceiver)) {
    s.have = s.next_id = s.refused = s.doubtful = s.total = s.keys = s.r_phase = 0;
    std::memset(s.cell, 0, sizeof s.cell);
  }
}

}  // namespace bfo::closure
