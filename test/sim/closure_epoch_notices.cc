// SPDX-License-Identifier: BSD-3-Clause
//
// closure_epoch_notices.cc: model M2: what the messaging layer knows of the rail
// (pml/bfo/xfer/failover/rail_events.h), the notices of both, and the faults.
#include "test/sim/closure_epoch.h"

namespace bfo::closure::epoch {

namespace {
constexpr uint8_t u8(int v) {
  return static_cast<uint8_t>(v);
}
}  // namespace

void Epochs::rail_up(int x, int epoch) {
  Half& h = c_.half[x];
  if (epoch < h.name || epoch <= h.fenced) return;
  h.name = h.up_epoch = u8(epoch);
  h.view = kUp;
  if (epoch > h.peer_closed + 1) h.peer_closed = u8(epoch - 1);
}

void Epochs::rail_down(int x, int epoch) {
  Half& h = c_.half[x];
  if (epoch < h.name || (h.view == kDown && h.dead_epoch == epoch)) return;
  h.name = h.dead_epoch = u8(epoch);
  h.view = kDown;
  h.down_pending = 1;
  h.closed_pending = 0;
}

void Epochs::rail_closed(int x, int epoch, bool fenced, int delivered) {
  Half& h = c_.half[x];
  if (fenced && epoch > h.fenced) h.fenced = u8(epoch);
  if (epoch > h.closed_reported) h.closed_reported = u8(epoch);
  if (h.name > epoch || h.view == kUnusable) return;
  h.view = fenced ? kClosed : kUnusable;
  h.dead_epoch = u8(epoch);
  h.dead_delivered = u8(delivered);
  h.closed_pending = 1;
}

/// The pair ends with an error on both sides.
void Epochs::lose_peer(int x) {
  Half& h = c_.half[x];
  if (!h.lost) c_.lost_reported[1 - x] = 1;
  h.lost = 1;
  if (h.message == kToPost || h.message == kDone) h.message = kFailed;
}

/// What is pending is sent as soon as there is a way; how long it travels is free.
void Epochs::send_notices(int x) {
  Half& h = c_.half[x];
  if (h.dead || !(c_.other || h.view == kUp)) return;
  if (h.down_pending && !off(Without::kTellDown)) c_.down[1 - x] = u8(c_.down[1 - x] | 1 << h.dead_epoch);
  if (h.closed_pending && !off(Without::kTellClosed)) {
    c_.closed[1 - x] = u8(c_.closed[1 - x] | 1 << h.dead_epoch);
    c_.count[1 - x][h.dead_epoch] = h.dead_delivered;
  }
  h.down_pending = h.closed_pending = 0;
}

void Epochs::notices(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  const Half& peer = from.half[1 - x];
  const bool path = from.other || h.view == kUp;  // something to carry a notice
  for (int e = 0; e < kEpochs; ++e) {
    if (path && (from.down[x] >> e & 1))
      step(from, out, "gets RAILDOWN", x, [&](Half& c) {
        c_.down[x] = u8(c_.down[x] & ~(1 << e));
        if (off(Without::kEpochOfEvidence)) return end_epoch(c, kEpochs);
        if (e <= h.name || !off(Without::kEarlyNotices)) end_epoch(c, e);
      });
    if (path && (from.closed[x] >> e & 1))
      step(from, out, "gets EPOCHCLOSED", x, [&](Half& c) {
        c_.closed[x] = u8(c_.closed[x] & ~(1 << e));
        const uint8_t count = c_.count[x][e];
        c_.count[x][e] = 0;
        if (e > h.name && off(Without::kEarlyNotices)) return;
        if (e > c.peer_closed) c.peer_closed = u8(e);
        if (!off(Without::kLostReply) && !off(Without::kTellDown)) end_epoch(c, e);
        if (c.gap_asked && c.gap_epoch > e && !off(Without::kNewestCount)) return;
        c.gap_asked = 1;
        c.gap_epoch = u8(e);
        c.gap_count = count;
      });
  }
  if (path && from.lost_reported[x])
    step(from, out, "gets PEERLOST", x, [&](Half&) {
      c_.lost_reported[x] = 0;
      lose_peer(x);
      c_.lost_reported[1 - x] = 0;
    });
  // A message to send: over this rail if it is up, else over another one, else it waits for this one.
  if (h.message == kToPost && h.view == kUp && from.work[x][kDepth - 1].used == 0)
    step(from, out, "posts a message", x, [&](Half& c) {
      if (engine::is_up(c.phase))
        post(x, false);
      else
        c.message = kAccepted;
    });
  if (h.message == kToPost && h.view == kIdle && !from.other)
    step(from, out, "parks a message", x, [](Half& c) {
      c.message = kAccepted;
      c.connect_wanted = 1;
    });
  if (h.message == kToPost && h.view != kUp && from.other && !peer.dead)
    step(from, out, "sends it over the other rail", x, [&](Half& c) {
      c.message = kDone;
      c_.half[1 - x].got = 1;
    });
  if (h.write == kToPost && h.view == kUp && engine::is_up(h.phase) && from.work[x][kDepth - 1].used == 0)
    step(from, out, "posts a write", x, [&](Half&) { post(x, true); });
  // The park time runs only while nothing shows life.
  const bool over = peer.dead || (!bounds_.other_rail && (peer.device_dead || h.device_dead));
  if (h.message == kToPost && h.view != kUp && over && h.phase != Phase::kDraining)
    step(from, out, "the park time is over", x, [&](Half&) { lose_peer(x); });
}

void Epochs::faults(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  if (h.port_down) step(from, out, "the port is active again", x, [](Half& c) { c.port_down = 0; });
  for (int type = 1; type <= static_cast<int>(PacketType::kReady) && from.faults < bounds_.faults; ++type)
    for (int e = 0; e < kEpochs; ++e)
      if (from.packets[x][type] >> e & 1)
        step(
            from, out, "A PACKET IS LOST to", x,
            [&](Half&) {
              ++c_.faults;
              c_.packets[x][type] = u8(c_.packets[x][type] & ~(1 << e));
            },
            true);
  if (from.faults == bounds_.faults || h.device_dead) return;
  const auto fault = [&](const char* what, auto&& change) {
    step(
        from, out, what, x,
        [&](Half& c) {
          ++c_.faults;
          change(c);
        },
        true);
  };
  if (h.qp == kReady && !h.asked && (engine::is_up(h.phase) || h.phase == Phase::kReplied))
    fault("A WORK REQUEST FAILS at", [this](Half& c) { end_epoch(c, c.epoch); });
  if (h.busy == kPrepares)
    fault("QUEUE PAIRS ARE REFUSED at", [this](Half& c) {
      c.busy = kFree;
      attempt_drop(c);
    });
  if (!h.port_down)
    fault("THE PORT GOES DOWN at", [this](Half& c) {
      c.port_down = 1;
      end_epoch(c, c.epoch);
    });
  for (const bool purge : {false, true}) {
    fault(purge ? "THE DEVICE IS LOST with its queue at" : "THE DEVICE IS LOST at", [&](Half& c) {
      c.device_dead = 1;
      c.connect_wanted = 0;
      for (Work& w : c_.work[1 - x])
        if (purge && w.used && !w.write && w.where == kExecuted && !w.polled) w.polled = c.purged = 1;
      end_epoch(c, c.epoch);
      if (!c.any_closed || c.reported || off(Without::kLostReply)) return;
      c.reported = 1;
      rail_down(x, c.closed_epoch);
      rail_closed(x, c.closed_epoch, true, c.closed_delivered);
    });
  }
  fault("DIES:", [&](Half& c) {
    c.dead = 1;
    c.qp = kNoQp;
  });
}

}  // namespace bfo::closure::epoch
