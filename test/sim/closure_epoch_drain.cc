// SPDX-License-Identifier: BSD-3-Clause
//
// closure_epoch_drain.cc: model M2: work requests and devices, and the end of an epoch as drain.cc does it.
#include "test/sim/closure_epoch.h"

namespace bfo::closure::epoch {

// ---- work requests

/// Can `w`, sent by side x, still happen at the other side?
bool Epochs::reaches(const State& s, int x, const Work& w) const {
  const Half& to = s.half[1 - x];
  if (to.dead) return false;
  const bool same = to.epoch == w.epoch || off(Without::kFreshQueuePairs);
  if (to.qp == kReady) return same;
  if (to.qp == kError) return same && (w.write || !to.last_receive);
  return to.qp == kRefused && same && w.write;
}

/// Can the device of the sender still send `w`? In ERR it may, until the marker is back.
bool Epochs::can_send(const Half& h, const Work& w) const {
  const bool alive = h.qp == kReady || (h.qp == kError && (!h.handed_back || off(Without::kMarker)));
  return !h.dead && !h.device_dead && alive && h.epoch == w.epoch;
}

bool Epochs::emptied(const State& s, int x) const {
  for (const Work& w : s.work[1 - x])
    if (w.used && !w.write && w.where == kExecuted && !w.polled && w.epoch == s.half[x].epoch) return false;
  return true;
}

/// Steps that only one side sees and that nothing can come between are taken at once; what cannot matter any
/// more is forgotten.
void Epochs::settle() {
  for (int x = 0; x < 2; ++x) {
    Half& h = c_.half[x];
    if (h.dead) continue;
    if (h.gap_asked) gap(x);
    send_notices(x);
    if (h.phase != Phase::kDraining || h.qp == kReady) continue;
    bool returns = h.message == kAccepted;
    for (const Work& w : c_.work[x]) returns = returns || (w.used && w.ended == kOpen && w.epoch == h.epoch);
    if (!returns && !h.handed_back) {
      h.handed_back = 1;
      h.overdue = 0;
    }
    if (engine::drain_next(view_of(c_, x)) == engine::DrainStep::kWaitOver) h.wait_over = 1;
  }
  tidy_packets();
  tidy_work();
}

/// Of the packets of older epochs those of the last one stay: enough to find that they are taken for new.
void Epochs::tidy_packets() {
  for (int x = 0; x < 2; ++x)
    for (uint8_t& set : c_.packets[x])
      for (int e = 0; e + 1 < c_.half[x].epoch; ++e) set = static_cast<uint8_t>(set & ~(1 << e));
}

/// Work that nothing can happen to any more leaves.
void Epochs::tidy_work() {
  for (int x = 0; x < 2; ++x) {
    const Half& h = c_.half[x];
    const Half& to = c_.half[1 - x];
    int n = 0;
    Work kept[kDepth] = {};
    for (Work w : c_.work[x]) {
      if (!w.used) continue;
      // A queue pair that is gone takes its completions with it.
      if (w.where == kExecuted && !w.polled &&
          (w.write || to.qp == kNoQp || to.qp == kRefused || to.epoch != w.epoch))
        w.polled = 1;
      const bool runs = (w.where == kQueued && can_send(h, w)) || w.where == kFlying;
      const bool over = w.where == kExecuted ? w.polled : !(runs && reaches(c_, x, w));
      const bool nobody = h.dead || h.qp == kNoQp || h.qp == kRefused || h.epoch != w.epoch;
      const bool late = off(Without::kFreshQueuePairs) && w.where == kFlying && to.epoch <= w.epoch + 1;
      if (late || !(over && (w.ended || nobody))) kept[n++] = w;
    }
    std::memcpy(c_.work[x], kept, sizeof kept);
  }
}

void Epochs::post(int x, bool write) {
  Half& h = c_.half[x];
  (write ? h.write : h.message) = kPosted;
  for (Work& w : c_.work[x]) {
    if (w.used) continue;
    w.used = 1;
    w.write = write;
    w.epoch = h.epoch;
    return;
  }
}

/// A message of the completion queue is handed up.
void Epochs::receive(int x, Work& w) {
  Half& h = c_.half[x];
  w.polled = 1;
  if (!h.announced) {
    if (h.phase == Phase::kReplied && off(Without::kFirstMessage)) return;
    if (h.phase == Phase::kReplied) {
      go_up(x);
    } else {
      h.announced = 1;
      rail_up(x, h.epoch);
      if (h.phase == Phase::kDraining) rail_down(x, h.epoch);
    }
  }
  ++h.delivered;
  if (w.epoch <= h.fenced) return broken("a message was delivered after its epoch was closed");
  h.got = 1;
}

void Epochs::traffic(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  const Half& peer = from.half[1 - x];
  bool earlier_queued = false;
  bool earlier_flying = false;
  bool earlier_open = false;
  bool earlier_unpolled = false;
  for (int i = 0; i < kDepth && from.work[x][i].used; ++i) {
    const Work& w = from.work[x][i];
    if (w.where == kQueued && !earlier_queued && can_send(h, w))
      step(from, out, "the device sends", x, [&](Half&) {
        if (w.ended == kReturned) broken("the device reads a fragment that was given back");
        c_.work[x][i].where = kFlying;
      });
    if (w.where == kFlying && !earlier_flying && reaches(from, x, w))
      step(from, out, "executed at the peer of", x, [&](Half&) {
        c_.work[x][i].where = kExecuted;
        if (w.epoch <= peer.fenced) broken("memory was accessed after the fence");
        if (peer.epoch != w.epoch) broken("work of one epoch was executed in another");
      });
    const bool mine = h.epoch == w.epoch && (h.qp == kReady || h.qp == kError) && !h.dead;
    if (w.ended == kOpen && !earlier_open && mine && w.where == kExecuted && !h.handed_back)
      step(from, out, "a completion", x, [&](Half& c) {
        c_.work[x][i].ended = kSuccess;
        (w.write ? c.write : c.message) = kDone;
        if (!w.write) ++c.acked;
      });
    // Its retries end: the peer's half does not answer.
    if (w.ended == kOpen && !earlier_open && mine && w.where != kExecuted && h.qp == kReady && !h.asked &&
        !reaches(from, x, w))
      step(from, out, "retries exceeded", x, [&](Half& c) { end_epoch(c, c.epoch); });
    const bool theirs = peer.epoch == w.epoch && (peer.qp == kReady || peer.qp == kError) && !peer.dead;
    if (w.where == kExecuted && !w.polled && !w.write && !earlier_unpolled && theirs)
      step(from, out, "a message is received by the peer of", x,
           [&](Half&) { receive(1 - x, c_.work[x][i]); });
    earlier_queued = earlier_queued || w.where == kQueued;
    earlier_flying = earlier_flying || w.where != kExecuted;
    earlier_open = earlier_open || w.ended == kOpen;
    earlier_unpolled = earlier_unpolled || (!w.write && !w.polled);
  }
}

// ---- drain

void Epochs::drain_start(int x) {
  Half& h = c_.half[x];
  h.phase = Phase::kDraining;  // a control thread moves the queue pair to ERR: until then it goes on
  if (!h.announced || off(Without::kAnnounce)) return;
  rail_down(x, h.epoch);
  if (off(Without::kAsyncFence)) rail_closed(x, h.epoch, true, h.delivered);
}

void Epochs::return_queued(Half& h) {
  if (h.message == kAccepted) h.message = h.lost ? kFailed : kToPost;
}

/// Every posted fragment ends as unknown: sent again, or the request with the write restarts (model M1).
void Epochs::hand_back(int x) {
  Half& h = c_.half[x];
  h.handed_back = 1;
  for (Work& w : c_.work[x]) {
    if (!w.used || w.ended != kOpen || w.epoch != h.epoch) continue;
    w.ended = kReturned;
    if (h.announced && h.view == kUp) broken("a fragment came back of a rail that counts as up");
    if (w.write)
      h.write = kFailed;
    else
      h.message = h.lost ? kFailed : kToPost;
  }
  return_queued(h);
}

void Epochs::drain_step(int x, bool refused) {
  Half& h = c_.half[x];
  h.qp = refused ? kRefused : kNoQp;
  if (h.device_dead && !h.announced && !off(Without::kLostReply)) {
    h.announced = 1;
    rail_up(x, h.epoch);
    rail_down(x, h.epoch);
  }
  if (!h.handed_back && !off(Without::kHandBack)) hand_back(x);
  if (h.device_dead) return_queued(h);
  h.phase = h.device_dead ? Phase::kUnusable : Phase::kClosed;
  h.any_closed = 1;
  h.closed_epoch = h.epoch;
  h.closed_acked = h.acked;
  h.closed_delivered = h.delivered;
  h.reported = h.announced;
  h.connect_wanted = !h.device_dead && !off(Without::kReconnect);
  if (h.announced) {
    if (off(Without::kAnnounce)) rail_down(x, h.epoch);
    rail_closed(x, h.epoch, !refused || off(Without::kUnfenceable), h.delivered);
  }
  h.announced = h.asked = h.seen_empty = 0;
}

/// The peer's count of messages against ours.
void Epochs::gap(int x) {
  Half& h = c_.half[x];
  engine::Count count = engine::count_of(h.gap_epoch, h.any_closed, h.closed_epoch);
  if (off(Without::kCountNamesEpoch) && h.any_closed) count = engine::Count::kCompare;
  const bool between = h.phase == Phase::kIdle || h.phase == Phase::kSoliciting || h.phase == Phase::kClosed;
  const bool past = h.epoch > h.gap_epoch || (h.epoch == h.gap_epoch && between);
  if (count == engine::Count::kWait && past && !off(Without::kAbandoned)) {
    const int asked = h.gap_epoch;
    h.gap_asked = h.gap_epoch = h.gap_count = 0;
    if (asked > h.closed_reported) rail_closed(x, asked, true, 0);  // once: an answer asks for none
    return;
  }
  if (count == engine::Count::kWait) return;
  const int lost = h.closed_acked - h.gap_count;
  h.gap_asked = h.gap_epoch = h.gap_count = 0;
  if (!h.reported && !off(Without::kUpAtOneSide)) {
    h.reported = 1;
    rail_closed(x, h.closed_epoch, h.qp != kRefused, 0);
  }
  if (count == engine::Count::kTooLate || off(Without::kCounts) || lost <= 0) return;
  if (!c_.half[1 - x].purged) broken("the peer misses a message although no device was lost");
  if (bounds_.in_slot)
    h.message = kToPost;
  else
    lose_peer(x);
}

engine::DrainView Epochs::view_of(const State& s, int x) const {
  const Half& h = s.half[x];
  engine::DrainView at{};
  at.handed_back = h.handed_back;
  at.marker_posted = h.marker_posted;
  at.last_receive = h.last_receive || off(Without::kLastReceive);
  at.overdue = h.overdue;
  at.wait_over = h.wait_over;
  at.emptied = emptied(s, x) || off(Without::kDeliverBeforeClose);
  // Without a marker the bound that has passed is long enough for the receives too.
  if (!at.handed_back && !at.last_receive) at.overdue = false;
  return at;
}

void Epochs::drain(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  if (h.asked && (engine::is_up(h.phase) || h.phase == Phase::kReplied))
    step(from, out, "drain starts", x, [&](Half&) { drain_start(x); });
  if (h.phase != Phase::kDraining) return;
  if (h.qp == kReady)
    return step(from, out, "moved to ERR", x, [](Half& c) {
      c.qp = kError;
      c.marker_posted = 1;
    });
  if (!h.handed_back && !h.device_dead)
    step(from, out, "the marker comes back", x, [&](Half& c) {
      hand_back(x);
      c.overdue = 0;
    });
  if (!h.handed_back && off(Without::kMarker))
    step(from, out, "fragments come back at once", x, [&](Half&) { hand_back(x); });
  if (!h.last_receive) step(from, out, "the last receive", x, [](Half& c) { c.last_receive = 1; });
  if (!h.handed_back && !h.overdue)
    step(from, out, "the marker is overdue", x, [](Half& c) { c.overdue = 1; });
  // The queue is seen empty, then the queue pair is destroyed: something may arrive in between.
  if (engine::drain_next(view_of(from, x)) == engine::DrainStep::kDestroy && !h.seen_empty)
    step(from, out, "the queue is seen empty", x, [](Half& c) { c.seen_empty = 1; });
  if (!h.seen_empty) return;
  step(from, out, "destroyed", x, [&](Half&) { drain_step(x, false); });
  if (h.device_dead) step(from, out, "destroy is refused", x, [&](Half&) { drain_step(x, true); });
}

}  // namespace bfo::closure::epoch
