// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance_rails.cc: queues, the network, and the death of rails in model M1.
//
// H1..H23: contrib/doc/hazards.md
#include "test/sim/closure_dance.h"

namespace bfo::closure {

void Dance::post(int x, int dir, uint8_t type, int round, int arg, int id) {
  Fifo& q = c_.q[x][dir];
  Entry& e = q.e[q.n++];
  std::memset(&e, 0, sizeof e);
  e.type = type;
  e.round = static_cast<uint8_t>(round);
  e.arg = static_cast<uint8_t>(arg);
  e.id = static_cast<uint8_t>(id);
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
  q.n = static_cast<uint8_t>(n);
}

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
    for (int i = 0; i < kRanges; ++i) s.dead_reads[i] = static_cast<uint8_t>(s.dead_reads[i] & ~(1 << x));
  }
  tidy(x, 0);
  tidy(x, 1);
  // the counts are compared (H4): what was acknowledged and not handed over is sent again
  uint8_t& told = who == 0 ? s.s_tell : s.r_tell;
  if (told == 2) told = 1;
  if (who == 0) {
    if (s.s_done) return;
    s.s_ledger = static_cast<uint8_t>(s.s_ledger & ~(1 << x));
    if (!off(Without::kPendingRequest)) s_event(SE::kRailClosed);
    if (!s.s_done) s_check();
    return;
  }
  if (s.r_done || static_cast<RP>(s.r_phase) == RP::kIdle) return;
  bool unused = false;
  for (int i = 0; i < kRanges; ++i) {
    if (s.led[i] != 1 + x) continue;
    if (mode_ == Mode::kPut) {
      if (s.led_fin[i]) {
        s.have = static_cast<uint8_t>(s.have | 1 << i);
      } else if (!s.led_sent[i]) {
        s.r_todo = static_cast<uint8_t>(s.r_todo | 1 << i);
      } else {
        s.doubtful = static_cast<uint8_t>(s.doubtful | 1 << i);
        unused = true;
      }
    }
    s.led[i] = 0;
  }
  if (unused)
    r_event(RE::kAsk);
  else if (!off(Without::kPendingAnswer))
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
      const uint8_t value = s.s_done ? 2 : 1;
      if (s.r_done) broken("memory was written after its receive completed");
      if (e.type == kRead) {
        s.cell[range] = value;
      } else {
        s.hidden[range] = static_cast<uint8_t>(1 + x);
        s.hidden_value[range] = value;
      }
    }
    return;
  }
}

/// Messages execute, complete and are delivered, each in order.
void Dance::network(const State& from, std::vector<Next>& out, int x) {
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
}

/// A death at one side is a fault; the other side follows; both close.
void Dance::deaths(const State& from, std::vector<Next>& out, int x) {
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

}  // namespace bfo::closure
