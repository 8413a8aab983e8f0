// SPDX-License-Identifier: BSD-3-Clause
//
// fabric.cc: packets on their way; see fabric.h.
//
// H1..H23: contrib/doc/hazards.md

#include "test/sim/fabric.h"

#include <algorithm>

#include "common/failover_btl.h"

namespace bfo::sim {
namespace {

constexpr uint64_t kRetransmitNs = 4000;  ///< a blocked packet or acknowledgement is tried again
constexpr uint64_t kRnrNs = 10000;
constexpr uint64_t kHandshakeNs = 3000;
constexpr uint64_t kMaxBackoffNs = 1000000;

uint32_t class_of(const Packet& p) {
  if (p.kind == WrKind::kPut) return kWritePacket;
  if (p.kind == WrKind::kGet) return kReadPacket;
  return p.tag;
}
bool in_class(uint32_t cls, const Packet& p) {
  const uint32_t c = class_of(p);
  if (cls == kAnyPacket || cls == c) return true;
  if (cls == kDataPacket) return c == 0x46 || c == kWritePacket || c == kReadPacket;
  return cls == kRestartPacket && c >= 0x50 && c <= 0x56 && c != 0x54 && c != 0x55;
}

}  // namespace

void Fabric::reset() {
  const Machine& m = ctx_.machine;
  halves_.clear();
  halves_.resize(static_cast<size_t>(m.procs) * m.procs * m.rails);
  for (uint32_t p = 0; p < m.procs; ++p)
    for (uint32_t q = 0; q < m.procs; ++q)
      for (uint32_t r = 0; r < m.rails; ++r) {
        Half& h = half(p, q, r);
        h.index = static_cast<uint16_t>(&h - halves_.data());
        h.proc = static_cast<uint8_t>(p);
        h.peer = static_cast<uint8_t>(q);
        h.rail = static_cast<uint8_t>(r);
        h.slot = static_cast<uint8_t>(q * m.rails + r);
        h.other = &half(q, p, r);
        h.dice = Prng(mix(m.seed, 0xfab, h.index));
      }
  std::fill(attended_, attended_ + kMaxProcs, 0);
  std::fill(&port_down_[0][0], &port_down_[0][0] + sizeof port_down_, 0);
  std::fill(&one_way_[0][0][0], &one_way_[0][0][0] + sizeof one_way_, 0);
  fault_counts.assign(faults->size(), 0);
  for (size_t i = 0; i < faults->size(); ++i) {
    const Fault& f = (*faults)[i];
    if (by_packet(f.kind)) half(f.p, f.q, f.r).faults.push_back(static_cast<uint16_t>(i));
  }
  if (m.lazy) return;
  for (Half& h : halves_)
    if (h.proc < h.peer) {
      establish(h);
      h.link = h.other->link = Link::kUp;
    }
}

void Fabric::packet_faults(Half& h, Packet* p) {
  for (const uint16_t i : h.faults) {
    const Fault& f = (*faults)[i];
    if (ctx_.now < f.t || !in_class(f.cls, *p)) continue;
    if (++fault_counts[i] != f.n) continue;
    ++ctx_.stats.faults;
    SIM_TRACE(ctx_, "fault: %s", print(f).c_str());
    switch (f.kind) {
      case FaultKind::kDrop:
        p->fate = PacketFate::kDrop;
        break;
      case FaultKind::kNoAck:
        p->fate = PacketFate::kNoAck;
        break;
      case FaultKind::kErrorNow:
        p->fate = PacketFate::kErrorNow;
        break;
      case FaultKind::kErrorDone:
        p->fate = PacketFate::kErrorDone;
        break;
      default:
        h.last_arrival_ns = std::max(h.last_arrival_ns, ctx_.now + f.d);
        if (f.d > ctx_.machine.retry_ns) arm_retry(h, ctx_.machine.retry_ns);
        break;
    }
  }
}

void Fabric::post(Half& h, Packet* p) {
  p->epoch = h.epoch;
  p->posted_ns = ctx_.now;
  ctx_.stats.wire_bytes += p->length;
  h.wqes.push(p);
  attend(h);
  ++h.taken;
  if (h.hw == Hw::kReady && h.link != Link::kConnecting) give(h, p);
}

void Fabric::give(Half& h, Packet* p) {
  const Machine& m = ctx_.machine;
  p->given = true;
  p->epoch = h.epoch;
  p->ordinal = h.next_ordinal++;
  if (h.hw != Hw::kReady) return;  // posted to a queue pair in error: flushed
  if (!h.faults.empty()) packet_faults(h, p);
  if (p->fate == PacketFate::kErrorNow) {
    to_error(h, BFO_CAUSE_WC_ERROR, "LOC_QP_OP_ERR");
    return;
  }
  h.tx_free_ns = std::max(h.tx_free_ns, ctx_.now) + 60 + p->length;
  p->tx_ns = h.tx_free_ns;
  h.last_arrival_ns =
      std::max(h.last_arrival_ns, p->tx_ns + m.latency_ns + h.dice.below(m.latency_ns / 2 + 1));
  p->arrive_ns = h.last_arrival_ns;
  ctx_.packets.ref(p);
  h.wire.push(p);
  arm_wire(h, p->arrive_ns);
}

void Fabric::arm_wire(Half& h, uint64_t at) {
  at = std::max(at, ctx_.now);
  if (h.wire_at <= at) return;
  h.wire_at = at;
  ctx_.queue.push(at, EventKind::kFabric, h.index);
}
void Fabric::arm_ack(Half& h, uint64_t delay) {
  if (h.ack_armed) return;
  h.ack_armed = true;
  ctx_.queue.push(ctx_.now + delay, EventKind::kAck, h.index, h.epoch);
}
void Fabric::arm_retry(Half& h, uint64_t delay) {
  if (h.retry_armed) return;
  h.retry_armed = true;
  ctx_.queue.push(ctx_.now + delay, EventKind::kRetryOut, h.index, h.epoch);
}

void Fabric::lose_wire(Half& h, PacketFifo<&Packet::next_fabric> rest) {
  while (Packet* p = rest.pop()) ctx_.packets.unref(p);
  (void)h;
}

void Fabric::on_wire(Half& h) {
  if (h.wire_at <= ctx_.now) h.wire_at = ~uint64_t{0};
  Half& o = *h.other;
  while (Packet* p = h.wire.front()) {
    const bool ghost = h.hw != Hw::kReady;  // the sender's queue pair is gone; the packet is not
    if (p->arrive_ns > ctx_.now) return arm_wire(h, p->arrive_ns);
    if (p->fate == PacketFate::kDrop || h.broken) {
      h.broken = true;
      lose_wire(h, h.wire);
      h.wire = {};
      return arm_retry(h, ctx_.machine.retry_ns);
    }
    if (!ghost && blocked(h.proc, h.peer, h.rail)) {
      if (h.blocked_since == 0) h.blocked_since = ctx_.now;
      if (ctx_.now - h.blocked_since >= ctx_.machine.retry_ns) {
        to_error(h, BFO_CAUSE_WC_ERROR, "RETRY_EXC_ERR");
        continue;
      }
      return arm_wire(h, ctx_.now + kRetransmitNs);
    }
    h.blocked_since = 0;
    if (p->kind <= WrKind::kSendi && o.hw == Hw::kReady && o.cq.size() >= ctx_.machine.srq_depth)
      return arm_wire(h, ctx_.now + kRnrNs);
    h.wire.pop();
    if (!execute(h, p)) h.broken = true;
    ctx_.packets.unref(p);
    if (ctx_.failed) return;
  }
}

/// The receiver's HCA looks at one packet of `h`. False: it cannot take it, nor anything behind it.
bool Fabric::execute(Half& h, Packet* p) {
  Half& o = *h.other;
  const bool listening = o.epoch == p->epoch && (o.hw == Hw::kReady || o.hw == Hw::kError);
  const bool unfenced = ctx_.hooks.no_fence && p->kind == WrKind::kPut;
  const bool dead = ctx_.sleepers[h.peer].dead;
  if (dead || (!listening && !unfenced)) {
    arm_retry(h, ctx_.machine.retry_ns);
    return false;
  }
  // ERR is not a barrier: what the responder holds already may still be carried out (H2).
  const bool last_access = o.hw == Hw::kError && p->kind == WrKind::kPut && h.dice.chance(40);
  if (o.hw != Hw::kReady && !last_access && !unfenced) {
    arm_retry(h, ctx_.machine.retry_ns);
    return false;
  }
  if (h.hw != Hw::kReady) ++ctx_.stats.late_packets;
  ctx_.note(1, h.index, p->ordinal);
  if (p->kind == WrKind::kPut || p->kind == WrKind::kGet) {
    const Access a = ctx_.memory.check(p->key, h.peer, p->remote, p->length);
    if (a == Access::kOutside) {
      ctx_.fail("P5: process %u used a key of process %u for memory it was not granted", h.proc, h.peer);
      return false;
    }
    if (a == Access::kLate) {
      ctx_.fail("P2: %s of process %u over rail %u epoch %u reached %u bytes of a finished %s of process %u",
                p->kind == WrKind::kPut ? "a write" : "a read", h.proc, h.rail, p->epoch, p->length,
                p->kind == WrKind::kPut ? "receive" : "send", h.peer);
      return false;
    }
    auto* const remote = reinterpret_cast<uint8_t*>(p->remote);
    if (p->kind == WrKind::kPut)
      std::memcpy(remote, p->bytes(), p->length);
    else
      std::memcpy(p->bytes(), remote, p->length);
  } else {
    ctx_.packets.ref(p);
    o.cq.push(p);
    attend(o);
    ctx_.wake(o.proc, 200 + h.dice.below(2000));
  }
  if (h.hw != Hw::kReady || o.hw != Hw::kReady || o.epoch != p->epoch) {
    arm_retry(h, ctx_.machine.retry_ns);  // carried out, but never acknowledged
    return true;
  }
  h.executed = p->ordinal + 1;
  if (p->fate == PacketFate::kNoAck) h.ack_stop = std::min(h.ack_stop, p->ordinal);
  if (p->fate == PacketFate::kErrorDone) {
    h.ack_stop = std::min(h.ack_stop, p->ordinal);
    arm_retry(h, ctx_.machine.latency_ns);
    return true;
  }
  arm_ack(h, ctx_.machine.latency_ns + h.dice.below(ctx_.machine.latency_ns / 2 + 1));
  return true;
}

void Fabric::on_ack(Half& h, uint32_t epoch) {
  if (epoch != h.epoch) return;
  h.ack_armed = false;
  if (h.hw != Hw::kReady) return;
  if (blocked(h.peer, h.proc, h.rail)) {
    if (h.ack_blocked_since == 0) h.ack_blocked_since = ctx_.now;
    if (ctx_.now - h.ack_blocked_since >= ctx_.machine.retry_ns)
      return to_error(h, BFO_CAUSE_WC_ERROR, "RETRY_EXC_ERR");
    return arm_ack(h, kRetransmitNs);
  }
  h.ack_blocked_since = 0;
  const uint32_t until = std::min(h.executed, h.ack_stop);
  if (h.ack_stop < h.executed) arm_retry(h, ctx_.machine.retry_ns);
  if (until == h.acked) return;
  for (Packet* p = h.wqes.front(); p != nullptr && p->given && p->ordinal < until; p = h.wqes.next(p))
    if (p->ordinal >= h.acked && p->kind == WrKind::kGet) finish_read(h, p);
  h.acked = until;
  ctx_.wake(h.proc, 200 + h.dice.below(2000));
}

/// The answer of an RDMA read lands in the requester's memory.
void Fabric::finish_read(Half& h, Packet* p) {
  const Access a = ctx_.memory.check(p->local_key, h.proc, p->local, p->length);
  if (a == Access::kLate)
    ctx_.fail("P2: own read of process %u over rail %u epoch %u wrote into a finished receive", h.proc,
              h.rail, p->epoch);
  else if (a == Access::kOutside)
    ctx_.fail("P5: process %u read into memory that is not registered", h.proc);
  else
    std::memcpy(reinterpret_cast<uint8_t*>(p->local), p->bytes(), p->length);
}

void Fabric::on_retry_out(Half& h, uint32_t epoch) {
  if (epoch != h.epoch) return;
  h.retry_armed = false;
  to_error(h, BFO_CAUSE_WC_ERROR, "RETRY_EXC_ERR");
}

void Fabric::to_error(Half& h, int32_t cause, const char* text) {
  if (h.hw != Hw::kReady) return;
  SIM_TRACE(ctx_, "qp    %u->%u rail %u epoch %u to ERR: %s", h.proc, h.peer, h.rail, h.epoch, text);
  h.hw = Hw::kError;
  h.blocked_since = 0;
  if (h.error_cause == 0) {
    h.error_cause = cause;
    h.error_text = text;
    h.evidence_ns = ctx_.now;
    attend(h);
  }
  // What has not left the send queue never will. What has may be lost, or land late.
  const uint64_t now = ctx_.now;
  lose_wire(h, h.wire.cut_from([now](const Packet* p) { return p->tx_ns > now; }));
  if (h.broken || h.dice.chance(50)) {
    lose_wire(h, h.wire);
    h.wire = {};
    h.broken = true;
  } else {
    uint64_t at = now;
    for (Packet* p = h.wire.front(); p != nullptr; p = h.wire.next(p)) {
      at += h.dice.below((h.dice.chance(60) ? ctx_.machine.drain_ns : ctx_.machine.late_ns) + 1);
      p->arrive_ns = at;
    }
    if (!h.wire.empty()) arm_wire(h, h.wire.front()->arrive_ns);
  }
  ctx_.wake(h.proc, 200 + h.dice.below(2000));
}

void Fabric::destroy(Half& h) {
  if (ctx_.hooks.no_fence && h.hw == Hw::kError) return;  // says so, but does not
  h.hw = Hw::kDestroyed;
}

/// Everything the device held is gone, completions that nobody had polled included (H4).
void Fabric::device_lost(uint32_t p, uint32_t r) {
  port_down_[p][r] = 1;
  for (uint32_t q = 0; q < ctx_.machine.procs; ++q) {
    Half& h = half(p, q, r);
    if (p == q || h.link == Link::kUnusable) continue;
    h.lost_in_cq += h.cq.size();
    while (Packet* packet = h.cq.pop()) ctx_.packets.unref(packet);
    if (h.hw == Hw::kReady) to_error(h, BFO_CAUSE_ASYNC_EVENT, "IBV_EVENT_DEVICE_FATAL");
    if (h.link == Link::kIdle) never_connected(h, BFO_CAUSE_ASYNC_EVENT, "IBV_EVENT_DEVICE_FATAL");
    if (h.link == Link::kClosed) h.link = Link::kUnusable;
    attend(h);
    h.acked = std::min(h.acked, h.executed);
    h.device_gone = true;
    ctx_.wake(p, 1000);
  }
}

void Fabric::want_connection(Half& h, uint64_t delay_ns) {
  if (h.reconnect_armed || h.proc == h.peer) return;
  h.reconnect_armed = true;
  ctx_.queue.push(ctx_.now + delay_ns, EventKind::kReconnect, h.index);
}

void Fabric::on_reconnect(Half& h) {
  h.reconnect_armed = false;
  Half& o = *h.other;
  const Context::Sleeper& me = ctx_.sleepers[h.proc];
  if (h.link != Link::kIdle && h.link != Link::kClosed) return;
  if (h.wanted_since == 0) h.wanted_since = ctx_.now;
  if (h.link == Link::kIdle && !h.wqes.empty() && ctx_.now - h.wanted_since > ctx_.machine.retry_ns) {
    h.wanted_since = 0;
    return never_connected(h, BFO_CAUSE_HANDSHAKE, "no answer");  // what was queued was never sent (H18)
  }
  if (me.dead || h.link == Link::kUnusable) return;
  if (ctx_.sleepers[h.peer].dead || o.link == Link::kUnusable) {
    if (h.link == Link::kIdle) want_connection(h, ctx_.machine.retry_ns / 2);
    return;
  }
  const bool asleep = me.paused_until > ctx_.now || ctx_.sleepers[h.peer].paused_until > ctx_.now;
  if (asleep || blocked(h.proc, h.peer, h.rail) || blocked(h.peer, h.proc, h.rail)) {
    h.backoff_ns = std::min<uint64_t>(kMaxBackoffNs, h.backoff_ns * 2 + 1000);
    return want_connection(h, h.backoff_ns + h.dice.below(h.backoff_ns / 2 + 1));
  }
  if (o.link == Link::kIdle || o.link == Link::kClosed) return establish(h);
  // REQ(n) implies DOWN(<n); REP is sent when the peer's half is fenced (H18).
  if (o.hw == Hw::kReady) to_error(o, BFO_CAUSE_HANDSHAKE, "peer reconnects");
  want_connection(h, 5000 + h.dice.below(5000));
}

void Fabric::never_connected(Half& h, int32_t cause, const char* text) {
  h.error_cause = cause;
  h.error_text = text;
  h.evidence_ns = ctx_.now;
  h.link = Link::kConnecting;
  attend(h);
  ctx_.wake(h.proc, 500);
}

void Fabric::establish(Half& h) {
  Half& o = *h.other;
  const uint32_t epoch = std::max(h.epoch, o.epoch) + 1;
  const uint64_t id = std::min(h.index, o.index) + 1u;
  const uint64_t conn = ctx_.machine.fresh_conn ? mix(ctx_.machine.seed, id, epoch) | 1 : mix(id) | 1;
  SIM_TRACE(ctx_, "conn  %u<->%u rail %u epoch %u", h.proc, h.peer, h.rail, epoch);
  start_epoch(h, epoch, conn);
  start_epoch(o, epoch, conn);
}

void Fabric::start_epoch(Half& h, uint32_t epoch, uint64_t conn) {
  if (!ctx_.hooks.no_fence) {
    lose_wire(h, h.wire);
    h.wire = {};
  }
  while (Packet* p = h.old_kept.pop()) ctx_.packets.unref(p);
  std::swap(h.kept, h.old_kept);
  h.old_epoch = h.epoch;
  h.old_sends_ok = h.sends_ok;
  h.hw = Hw::kReady;
  h.epoch = epoch;
  h.conn = conn;
  h.tx_free_ns = h.last_arrival_ns = 0;
  h.next_ordinal = h.executed = h.acked = 0;
  h.ack_stop = ~0u;
  h.blocked_since = h.ack_blocked_since = 0;
  h.ack_armed = h.retry_armed = h.broken = false;
  h.error_cause = 0;
  h.link = Link::kConnecting;
  attend(h);
  h.up_ns = ctx_.now + kHandshakeNs + h.dice.below(4 * kHandshakeNs);
  h.backoff_ns = ctx_.machine.backoff_ns;
  h.sends_ok = h.delivered = h.lost_in_cq = 0;
  ctx_.wake(h.proc, h.up_ns - ctx_.now);
}

}  // namespace bfo::sim
