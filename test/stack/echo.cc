// SPDX-License-Identifier: BSD-3-Clause
//
// echo.cc: headers with live names and the exact round, of a kind that the request's phase ignores: a
// duplicate that comes as late as can be, or a peer that lies about its own requests. They are armed by a
// fault and sent when a request comes to the phase. Such a header is counted and changes nothing (P5).
//
// P1..P8: contrib/doc/design.md

#include <cstring>

#include "pml/bfo/core/wire.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

using core::CellKind;
using core::MsgType;
using core::RecvEvent;
using core::RecvPhase;
using core::SendEvent;
using core::SendPhase;

constexpr bool from_wire(SendEvent e) {
  return e <= SendEvent::kRestartAck;
}
constexpr bool from_wire(RecvEvent e) {
  return e <= RecvEvent::kFinRefused || (e >= RecvEvent::kOpenAgain && e <= RecvEvent::kSendFailed);
}

struct IgnoredCell {
  bool recv;
  size_t phase, event;
};
/// The n-th cell, in circles, that a message reaches and that says Ignore.
IgnoredCell ignored_cell(uint32_t n) {
  static const std::vector<IgnoredCell> all = [] {
    std::vector<IgnoredCell> v;
    for (size_t p = 1; p < core::kSendPhases; ++p)
      for (size_t e = 0; e < core::kSendEvents; ++e)
        if (from_wire(static_cast<SendEvent>(e)) && core::kSendTable[p][e].kind == CellKind::kIgnore)
          v.push_back({false, p, e});
    for (size_t p = 1; p < core::kRecvPhases; ++p)
      for (size_t e = 0; e < core::kRecvEvents; ++e)
        if (from_wire(static_cast<RecvEvent>(e)) && core::kRecvTable[p][e].kind == CellKind::kIgnore)
          v.push_back({true, p, e});
    return v;
  }();
  return all[n % all.size()];
}

/// A header under construction.
struct Words {
  uint8_t bytes[256] = {};
  size_t size = 0;
  template <class H>
  void add(const H& h) {
    std::memcpy(bytes + size, &h, sizeof h);
    size += sizeof h;
  }
};

core::RestartHdr restart(MsgType type, uint8_t flags, const EngineComm& c, int32_t src, Seq16 seq,
                         Name sender, Name receiver) {
  return core::RestartHdr{
      static_cast<uint8_t>(type), flags, c.ctx, src, seq, 0, 0, sender.value, receiver.value};
}

/// What the peer of a send might say: that all is received, that a rail of its own is to be written to.
bool compose(const SendRequest& r, SendEvent e, const EngineRail& rail, Words& w) {
  const auto& x = r.xfer;
  const EngineComm& c = *x.proc->comm;
  const auto plain = [&](MsgType type, uint8_t flags, Name name) {
    w.add(restart(type, flags, c, c.my_rank, x.seq, name, x.rndv->peer_name));
  };
  if (!x.rndv->peer_name) return false;  // the receiver has not spoken yet
  switch (e) {
    case SendEvent::kAck:
      w.add(core::AckHdr{static_cast<uint8_t>(MsgType::kAck), 0, 0, x.rndv->name.value,
                         x.rndv->peer_name.value});
      return true;
    case SendEvent::kPut: {
      core::PutHdr h{};
      h.type = static_cast<uint8_t>(MsgType::kPut);
      h.sender = x.rndv->name.value;
      h.receiver = x.rndv->peer_name.value;
      h.length = h.total = x.length;
      h.grant = 0xeeee;
      h.key.conn = rail.name.conn;
      h.key.epoch = rail.name.epoch;
      h.key.handle_len = 4;
      w.add(h);
      return x.length != 0;
    }
    case SendEvent::kFin:
      w.add(core::FinHdr{static_cast<uint8_t>(MsgType::kFin), 0, 0, x.rndv->name.value,
                         x.rndv->peer_name.value, 0, 1});
      return true;
    case SendEvent::kNack:
      plain(MsgType::kRestartNack, 0, x.rndv->name);
      return true;
    case SendEvent::kNackFailed:
      plain(MsgType::kRestartNack, core::kFlagFail, x.rndv->name);
      return true;
    case SendEvent::kRecvErr:
      plain(MsgType::kRecvErr, 0, x.rndv->name);
      return true;
    case SendEvent::kRecvErrOld:
      if (x.rndv->name.round() < 2) return false;
      plain(MsgType::kRecvErr, 0, x.rndv->name.at(static_cast<Round>(x.rndv->name.round() - 1)));
      return true;
    case SendEvent::kRestartAck: {
      core::RestartHdr h =
          restart(MsgType::kRestartAck, 0, c, c.my_rank, x.seq, x.rndv->name, x.rndv->peer_name);
      h.n = 1;
      w.add(h);
      w.add(core::WireRange{0, x.length});
      return true;
    }
    default:
      return false;
  }
}

/// What the peer of a receive might say: bytes that it never sent, that every grant was used, that all rails
/// are clean.
bool compose(const RecvRequest& r, RecvEvent e, Words& w) {
  const auto& x = r.xfer;
  const EngineComm& c = *x.proc->comm;
  const auto plain = [&](MsgType type, uint8_t flags, Name sender) {
    w.add(restart(type, flags, c, x.proc->rank, x.seq, sender, x.rndv->name));
  };
  const Name now = x.rndv->peer_name.at(x.rndv->name.round());
  const auto fin = [&](uint8_t flags) {
    w.add(core::FinHdr{static_cast<uint8_t>(MsgType::kFin), flags, 0, now.value, x.rndv->name.value,
                       x.rndv->ledger ? x.rndv->ledger->grant : 1, 0});
  };
  const auto open = [&](bool again) {
    core::RndvHdr h{};
    h.match = core::MatchHdr{static_cast<uint8_t>(MsgType::kRndv),
                             static_cast<uint8_t>(again ? core::kFlagRestart : 0),
                             c.ctx,
                             x.proc->rank,
                             x.status.tag,
                             x.seq};
    h.length = x.length;
    h.sender = now.value;
    h.receiver = again ? x.rndv->name.value : 0;
    w.add(h);
  };
  switch (e) {
    case RecvEvent::kFrag: {
      uint64_t hole = 0;
      while (hole < x.rndv->want && x.rndv->received.covers(hole, hole + 1)) ++hole;
      w.add(core::FragHdr{static_cast<uint8_t>(MsgType::kFrag), 0, 0, x.rndv->name.value, hole});
      for (uint64_t i = hole; i < x.length && w.size < sizeof w.bytes; ++i) w.bytes[w.size++] = 0xee;
      return hole < x.length;
    }
    case RecvEvent::kFin:
      fin(0);
      return true;
    case RecvEvent::kFinRefused:
      fin(core::kFlagFail);
      return true;
    case RecvEvent::kOpenAgain:
      open(false);
      return true;
    case RecvEvent::kReopen:
      open(true);
      return true;
    case RecvEvent::kNotify:
    case RecvEvent::kNotifyAgain: {
      const int round = x.rndv->name.round() + (e == RecvEvent::kNotify ? 1 : 0);
      core::RestartHdr h = restart(MsgType::kRestartNotify, 0, c, x.proc->rank, x.seq,
                                   x.rndv->peer_name.at(static_cast<Round>(round)), x.rndv->name);
      const EnginePeer& p = *x.proc->peer;
      for (unsigned i = 0; i < p.n_rails && i < 4; ++i) ++h.n;
      w.add(h);
      for (unsigned i = 0; i < h.n; ++i)
        w.add(core::WireRail{p.rails[i].name.conn, p.rails[i].name.epoch, 0});
      return round < kLastRound;
    }
    case RecvEvent::kSendDone:
      plain(MsgType::kSendDone, 0, now);
      return true;
    case RecvEvent::kSendFailed:
      plain(MsgType::kSendDone, core::kFlagFail, now);
      return true;
    default:
      return false;
  }
}

}  // namespace

void Process::arm_echo(const Fault& f) {
  echoes_.push_back(f);
}

void Process::send_echoes() {
  for (size_t i = 0; i < echoes_.size() && !world_.ctx.failed;) {
    if (send_echo(echoes_[i]))
      echoes_.erase(echoes_.begin() + static_cast<ptrdiff_t>(i));
    else
      ++i;
  }
}

/// True: a request was in the wanted phase and has got its header.
bool Process::send_echo(const Fault& f) {
  const IgnoredCell cell = ignored_cell(f.n);
  EnginePeer* const peer = peers_[f.q];
  Link* const from = link_up(f.q, f.r);
  if (peer == nullptr || from == nullptr) return false;
  Words w;
  bool found = false;
  if (cell.recv) {
    for (RecvRequest* r = peer->live_recvs.front(); r && !found; r = peer->live_recvs.next(r))
      found = r->xfer.phase == static_cast<RecvPhase>(cell.phase) &&
              compose(*r, static_cast<RecvEvent>(cell.event), w);
  } else {
    for (SendRequest* r = peer->live_sends.front(); r && !found; r = peer->live_sends.next(r))
      found = r->xfer.phase == static_cast<SendPhase>(cell.phase) &&
              compose(*r, static_cast<SendEvent>(cell.event), *from->engine_rail, w);
  }
  if (!found) return false;
  SIM_TRACE(world_.ctx, "echo  %u<-%u: type 0x%x for %s", id_, f.q, w.bytes[0],
            cell.recv ? core::kRecvPhaseNames[cell.phase] : core::kSendPhaseNames[cell.phase]);
  world_.ctx.note(10, id_, w.bytes[0]);
  inject(*from, w.bytes[0], w.bytes, w.size, world_.tables == nullptr);
  return true;
}

}  // namespace bfo::stack
