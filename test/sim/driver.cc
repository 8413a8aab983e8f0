// SPDX-License-Identifier: BSD-3-Clause
//
// driver.cc: the simulated BTL; see driver.h.
//
// H1..H23: contrib/doc/hazards.md

#include "test/sim/driver.h"

#include <algorithm>
#include <bit>

#include "common/failover_btl.h"

namespace bfo::sim {
namespace {
constexpr uint32_t kPollBudget = 8;  ///< messages or completions per rail and round
EngineRail* rail_of(const Half& h) {
  return static_cast<EngineRail*>(h.engine_rail);
}
}  // namespace

xfer::RailEvent Driver::event(const Half& h, uint32_t epoch) {
  xfer::RailEvent e;
  e.name = RailName{h.conn, epoch};
  e.cause = h.down_cause;
  e.evidence_ns = h.evidence_ns;
  e.text = h.error_text;
  return e;
}

Packet* Driver::prepare(Half& h, WrKind kind, size_t n, Post& why) {
  why = Post::kUnreachable;
  if (h.link == Link::kDown || h.link == Link::kClosed || h.link == Link::kUnusable) return nullptr;
  if (kind == WrKind::kSendi && !h.usable()) return nullptr;
  why = Post::kNoResource;
  if (h.refused != 0 || h.wqes.size() >= ctx_.machine.sq_depth) return nullptr;
  if (h.link == Link::kIdle) fabric_.want_connection(h, 500);
  Packet* const p = ctx_.packets.get(n);
  p->kind = kind;
  return p;
}

Post Driver::commit(Half& h, Packet* p, Frag& f) {
  p->frag = &f;
  if (f.posted) ctx_.fail("P3: a fragment was posted twice");
  f.posted = true;
  fabric_.post(h, p);
  return Post::kAccepted;
}
void Driver::commit_sendi(Half& h, Packet* p) {
  fabric_.post(h, p);
}

void Driver::fence(Half& h, uint32_t epoch) {
  if (h.epoch > epoch || h.link == Link::kIdle) return;
  SIM_TRACE(ctx_, "fence %u->%u rail %u epoch %u asked", h.proc, h.peer, h.rail, epoch);
  if (h.link == Link::kClosed || h.link == Link::kUnusable) {
    h.fence_again = true;
    ctx_.wake(proc_, 500);
    return;
  }
  fabric_.to_error(h, BFO_CAUSE_FENCE, "fence");
}

void Driver::connect(Half& h) {
  if (h.link == Link::kIdle || h.link == Link::kClosed) fabric_.want_connection(h, 1000);
}

void Driver::peer_down(Half& h, const RailName& name) {
  if (name.conn != h.conn || h.epoch > name.epoch) return;
  if (h.hw == Hw::kReady) fabric_.to_error(h, BFO_CAUSE_PEER_DOWN, "peer's word");
}

void Driver::peer_closed(Half& h, const RailName& name, uint64_t delivered) {
  if (name.epoch <= h.gap_done || name.epoch < h.gap_epoch) return;
  if (!ctx_.machine.fresh_conn && name.conn != h.conn) return;
  h.gap_epoch = name.epoch;
  h.gap_delivered = delivered;
  fabric_.attend(h);
  ctx_.wake(proc_, 500);
}

void Driver::port_event(uint32_t rail) {
  const bool active = fabric_.port_active(proc_, rail);
  for (uint32_t q = 0; q < ctx_.machine.procs; ++q) {
    if (q == proc_) continue;
    Half& h = fabric_.half(proc_, q, rail);
    if (active && h.link == Link::kClosed)
      fabric_.want_connection(h, 1000 + dice_.below(ctx_.machine.backoff_ns));
    if (!active) fabric_.to_error(h, BFO_CAUSE_ASYNC_EVENT, "IBV_EVENT_PORT_ERR");
  }
}

/// Every round begins at another half, so that none is always first.
bool Driver::poll() {
  const uint32_t n = ctx_.machine.procs * ctx_.machine.rails;
  turn_ = turn_ + 1 >= n ? 0 : turn_ + 1;
#if BFO_DEBUG
  for (uint32_t i = 0; i < n; ++i) {
    const bool attended = (fabric_.attended(proc_) >> i & 1) != 0;
    BFO_CHECK(attended || fabric_.halves_of(proc_)[i].nothing_to_poll());
  }
#endif
  bool did = poll_slots(turn_, n);
  did |= poll_slots(0, turn_);
  return did;
}

/// What one half hands to the engine may give another one something to do, also one that comes later here.
bool Driver::poll_slots(uint32_t from, uint32_t end) {
  bool did = false;
  for (uint32_t i = from; i < end && !ctx_.failed; ++i) {
    i += static_cast<uint32_t>(std::countr_zero(fabric_.attended(proc_) >> i));
    if (i >= end) break;
    Half& h = fabric_.halves_of(proc_)[i];
    if (h.nothing_to_poll())
      fabric_.leave_alone(h);
    else
      did |= poll_half(h);
  }
  return did;
}

bool Driver::poll_half(Half& h) {
  bool did = false;
  if (h.link == Link::kConnecting && (ctx_.now >= h.up_ns || !h.cq.empty()) && h.hw == Hw::kReady) {
    h.link = Link::kUp;
    did = true;
    for (Packet* p = h.wqes.front(); p != nullptr; p = h.wqes.next(p))
      if (!p->given) fabric_.give(h, p);
    if (h.engine_rail) engine_->on_rail_up(rail_of(h), event(h, h.epoch));
  }
  if (h.nothing_to_poll()) return did;
  const auto sends = [&] { return !h.wqes.empty() || h.link == Link::kSuspect ? poll_sends(h) : false; };
  const bool sends_first = dice_.chance(50);
  if (sends_first) did |= sends();
  if (!h.cq.empty()) did |= poll_receives(h);
  if (!sends_first) did |= sends();
  if (h.error_cause != 0 && h.link != Link::kDown && h.link != Link::kClosed && h.link != Link::kUnusable) {
    begin_close(h);
    did = true;
  }
  if (h.link == Link::kDown) did |= poll_closing(h);
  if (h.gap_epoch != 0) fill_gap(h);
  if (h.fence_again) {
    h.fence_again = false;
    if (h.engine_rail && (h.link == Link::kClosed || h.link == Link::kUnusable))
      engine_->on_rail_closed(
          rail_of(h), event(h, h.epoch),
          h.device_gone && ctx_.machine.unfenceable ? FenceResult::kUnfenceable : FenceResult::kFenced,
          h.delivered);
  }
  return did;
}

bool Driver::poll_receives(Half& h) {
  uint32_t n = 0;
  while (n < kPollBudget && !h.cq.empty() && !ctx_.failed) {
    Packet* const p = h.cq.pop();
    ++n;
    ++h.delivered;
    ctx_.note(2, h.index, p->ordinal);
    SIM_TRACE(ctx_, "recv  %u<-%u rail %u epoch %u #%u type 0x%x, %u bytes", h.proc, h.peer, h.rail, p->epoch,
              p->ordinal, p->tag, p->length);
    engine_->on_message(rail_of(h), h.engine_rail ? p->epoch : 0, p->tag, p->bytes(), p->length);
    if (ctx_.keep_recent) {
      const uint32_t at = ctx_.recent_next[proc_]++ % Context::kRecent;
      if (ctx_.recent[proc_][at]) ctx_.packets.unref(ctx_.recent[proc_][at]);
      ctx_.recent[proc_][at] = p;
      ctx_.recent_from[proc_][at] = h.peer;
    } else {
      ctx_.packets.unref(p);
    }
  }
  if (!h.cq.empty()) ctx_.wake(proc_, 300);
  return n != 0;
}

void Driver::report(Half& h, Packet* p, Fate fate) {
  ctx_.note(3, h.index, p->ordinal << 2 | static_cast<uint32_t>(fate));
  const bool is_send = p->kind == WrKind::kSend || p->kind == WrKind::kSendi;
  if (fate == Fate::kDelivered && is_send) {
    ++h.sends_ok;
    if (ctx_.machine.retained != 0) {
      ctx_.packets.ref(p);
      h.kept.push(p);
      if (h.kept.size() > ctx_.machine.retained) ctx_.packets.unref(h.kept.pop());
    }
  }
  if (fate != Fate::kDelivered)
    SIM_TRACE(ctx_, "fail  %u->%u rail %u epoch %u #%u type 0x%x kind %u: %s", h.proc, h.peer, h.rail,
              p->epoch, p->ordinal, p->tag, static_cast<unsigned>(p->kind),
              fate == Fate::kUnknown ? "unknown" : "never sent");
  if (p->kind == WrKind::kSendi) {
    if (fate != Fate::kDelivered) engine_->on_sendi_failed(rail_of(h), p->tag, p->bytes(), p->length, fate);
  } else {
    Frag& f = *p->frag;
    f.posted = false;
    if (f.put) --f.put->buf.rdma_out;
    if (f.get) --f.get->buf.rdma_out;
    f.put = nullptr;
    f.get = nullptr;
    if (p->kind == WrKind::kGet && fate != Fate::kNeverSent) {
      ctx_.stats.fetched_bytes += f.bytes;
      ctx_.count_moved(f.pair, f.xfer.offset, f.bytes);
    }
    if (fate != Fate::kDelivered && f.bytes != 0) ctx_.traffic[f.pair].failed += f.bytes;
    engine_->on_done(&f, fate);
  }
  ctx_.packets.unref(p);
}

bool Driver::poll_sends(Half& h) {
  uint32_t n = 0;
  while (n < kPollBudget && !ctx_.failed) {
    Packet* const p = h.wqes.front();
    if (p == nullptr || !p->given || p->ordinal >= h.acked) break;
    h.wqes.pop();
    ++h.ended;
    ++n;
    report(h, p, Fate::kDelivered);
  }
  if (n == kPollBudget) ctx_.wake(proc_, 300);
  // The progress clock only suspects (H15).
  Packet* const oldest = h.wqes.front();
  const bool silent =
      oldest != nullptr && oldest->given && ctx_.now - oldest->posted_ns > ctx_.machine.suspect_ns;
  if (h.link == Link::kUp && silent) {
    h.link = Link::kSuspect;
    h.down_cause = 0;
    if (h.engine_rail) engine_->on_rail_suspect(rail_of(h), event(h, h.epoch));
  } else if (h.link == Link::kSuspect && !silent) {
    h.link = Link::kUp;
    if (h.engine_rail) engine_->on_rail_up(rail_of(h), event(h, h.epoch));
  }
  return n != 0;
}

void Driver::begin_close(Half& h) {
  fabric_.to_error(h, h.error_cause, h.error_text);
  h.link = Link::kDown;
  h.down_cause = h.error_cause;
  ++ctx_.stats.failovers;
  h.destroy_ns = std::max(ctx_.now + 500 + h.dice.below(ctx_.machine.drain_ns), h.linger_until_ns);
  ctx_.note(4, h.index, h.epoch);
  SIM_TRACE(ctx_, "down  %u->%u rail %u epoch %u: %s", h.proc, h.peer, h.rail, h.epoch, h.error_text);
  if (h.engine_rail) engine_->on_rail_down(rail_of(h), event(h, h.epoch));
}

bool Driver::poll_closing(Half& h) {
  uint32_t n = 0;
  while (n < kPollBudget && !ctx_.failed) {
    Packet* const p = h.wqes.front();
    if (p == nullptr) break;
    h.wqes.pop();
    ++h.ended;
    ++n;
    const bool acked = p->given && p->ordinal < h.acked;
    report(h, p, acked ? Fate::kDelivered : p->given ? Fate::kUnknown : Fate::kNeverSent);
  }
  if (!h.wqes.empty()) {
    ctx_.wake(proc_, 300);
  } else if (h.cq.empty() && ctx_.now >= h.destroy_ns) {
    fabric_.destroy(h);  // from here on nothing of this epoch can arrive
    finish_close(h);
    return true;
  } else {
    ctx_.wake(proc_, h.destroy_ns > ctx_.now ? h.destroy_ns - ctx_.now : 300);
  }
  return n != 0;
}

void Driver::finish_close(Half& h) {
  h.link = h.device_gone ? Link::kUnusable : Link::kClosed;
  h.error_cause = 0;
  ctx_.note(5, h.index, h.epoch);
  SIM_TRACE(ctx_, "close %u->%u rail %u epoch %u, %llu delivered", h.proc, h.peer, h.rail, h.epoch,
            static_cast<unsigned long long>(h.delivered));
  const bool unproven = h.device_gone && ctx_.machine.unfenceable;
  if (unproven) ctx_.message_lost = true;  // requests with grants on it may end with an error
  if (h.engine_rail)
    engine_->on_rail_closed(rail_of(h), event(h, h.epoch),
                            unproven ? FenceResult::kUnfenceable : FenceResult::kFenced, h.delivered);
  if (h.link == Link::kClosed) fabric_.want_connection(h, h.backoff_ns / 2 + h.dice.below(h.backoff_ns + 1));
}

/// The peer was handed fewer messages than we saw acknowledged: hand back what is still in slots (H4).
void Driver::fill_gap(Half& h) {
  const bool old = h.gap_epoch == h.old_epoch && h.gap_epoch != h.epoch;
  if (!old && h.gap_epoch != h.epoch) {
    h.gap_epoch = 0;
    return;
  }
  if (!old && h.link != Link::kClosed && h.link != Link::kUnusable) return;  // still counting
  auto& kept = old ? h.old_kept : h.kept;
  const uint64_t ok = old ? h.old_sends_ok : h.sends_ok;
  const uint64_t gap = ok > h.gap_delivered ? ok - h.gap_delivered : 0;
  const uint32_t epoch = h.gap_epoch;
  h.gap_done = epoch;
  h.gap_epoch = 0;
  if (gap == 0) return;
  SIM_TRACE(ctx_, "gap   %u->%u rail %u epoch %u: %llu lost", h.proc, h.peer, h.rail, epoch,
            static_cast<unsigned long long>(gap));
  while (kept.size() > gap) ctx_.packets.unref(kept.pop());
  const uint64_t lost = gap - kept.size();
  while (Packet* p = kept.pop()) {
    engine_->on_sendi_failed(rail_of(h), p->tag, p->bytes(), p->length, Fate::kUnknown);
    ctx_.packets.unref(p);
  }
  if (lost != 0) {
    ctx_.message_lost = true;
    engine_->on_gap_lost(rail_of(h), RailName{h.conn, epoch}, lost);
  }
}

uint64_t Driver::outstanding() {
  uint64_t n = 0;
  for (uint32_t q = 0; q < ctx_.machine.procs; ++q)
    for (uint32_t r = 0; r < ctx_.machine.rails; ++r) n += fabric_.half(proc_, q, r).wqes.size();
  return n;
}

}  // namespace bfo::sim
