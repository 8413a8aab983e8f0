// SPDX-License-Identifier: BSD-3-Clause
//
// cm.cc: the connection manager's states. See cm.h for the exchange.
//
// H1..H23: contrib/doc/hazards.md
#include "btl/verbs/engine/connect/cm.h"

#include <algorithm>

#include "common/clock.h"
#include "btl/verbs/engine/connect/attempt.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/drain/hold.h"
#include "btl/verbs/engine/connect/handshakes.h"
#include "btl/verbs/engine/connect/ping.h"
#include "btl/verbs/engine/send/cm_send.h"
#include "btl/verbs/engine/connect/connect_timeout.h"
#include "btl/verbs/engine/send/qp_command.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/engine/connect/admit.h"
#include "btl/verbs/engine/connect/resource.h"
#include "btl/verbs/engine/watchdog/verdict.h"

namespace bfo::engine {
namespace {

void start(Endpoint& endpoint, uint64_t now) {
  if (endpoint.initiator && !attempt_has_room(endpoint)) {
    endpoint.skip_backoff = true;  // it begins when there is room for it
    return;
  }
  if (!handshake_begins(endpoint, now)) {
    endpoint.skip_backoff = true;
    // What waits for a place does not wait for the peer.
    return waits_from(endpoint, now);
  }
  endpoint.skip_backoff = false;
  if (!endpoint.initiator) {
    set_phase(endpoint, Phase::kSoliciting, now);
    ping_begin(endpoint, now);
    endpoint.timer().attempts = 0;
    cm_send(endpoint, PacketType::kSolicit, endpoint.epoch);
    handshake_pause(endpoint, endpoint.timer().attempts++, now);
    return;
  }
  if (endpoint.epoch == UINT32_MAX) return attempt_failed(endpoint, now);  // there is no next one
  attempt_begin(endpoint, endpoint.epoch + 1);
  attempt_make(endpoint, nullptr, cm_qps_made, now);
}

/// The control thread is back with `missing`. False when the attempt ends here.
bool goes_on(Endpoint& endpoint, Object missing, int error, uint64_t now) {
  if (missing != Object::kNone) resource_failed(endpoint, missing, error);
  // Evidence against the attempt may have come meanwhile: then the peer hears nothing of it.
  if (missing == Object::kNone && !endpoint.ending().asked && !endpoint.peer.left) return true;
  attempt_drop(endpoint, now);
  return false;
}

void go_up(Endpoint& endpoint, uint64_t now) {
  ping_end(endpoint);
  {
    const Guard guard(endpoint.port->lock());
    if (!ring_open(endpoint)) {
      endpoint.ending().asked = true;
      endpoint.ending().cause = BFO_CAUSE_HANDSHAKE;
      endpoint.port->need_service();
    }
  }
  endpoint.past = Past::kUp;
  endpoint.asked = false;
  endpoint.path_failures().failures = 0;
  resource_made(endpoint);
  endpoint.announced = true;
  endpoint.times().up_since_ns = now;
  endpoint.connect_wanted = true;
  set_phase(endpoint, Phase::kUp, now);
  Port& port = *endpoint.port;
  bfo_rail_event_t event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
  event.info.state = BFO_RAIL_UP;
  port.host().rail_up(port.host().ctx, endpoint, event);
  if (!endpoint.queued.empty()) post_queued(endpoint);
  if (endpoint.need().peer == Need::kWaits) port.await_message(&endpoint);
  cm_prepare_inquiries(endpoint);
}

// ---- packets

/// A packet that comes again, and is acted upon then.
void put_off(const Endpoint& endpoint, const Packet& packet, const char* why) {
  endpoint.port->tell_dropped("a datagram that comes again", why, &packet);
}

constexpr char kNotGone[] = "put off: the last attempt is not gone yet";
constexpr char kPortDown[] = "put off: the port is down";
constexpr char kNoLevel[] = "put off: the subnet administrator is asked for the service level";

/// The peer is alive and has nothing left of its epochs up to that of `packet`.
void on_solicit(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  if (endpoint.qps().command != nullptr) return put_off(endpoint, packet, kNotGone);
  endpoint.epoch = std::max(endpoint.epoch, packet.epoch);
  if (endpoint.phase == Phase::kIdle) {
    endpoint.connect_wanted = true;
    waits_from(endpoint, now);
  }
  if (endpoint.port->state() == PortState::kActive && endpoint.connect_wanted) start(endpoint, now);
  endpoint.port->need_service();
}

void learn_probe_target(Endpoint& endpoint, const Packet& packet) {
  endpoint.probe_target().address = packet.probe_target_address;
  endpoint.probe_target().rkey = packet.probe_target_rkey;
}

/// False while the subnet administrator is asked for the service level of the path that `epoch` takes.
bool knows_path(Endpoint& endpoint, uint32_t epoch, uint64_t now) {
  uint8_t level = 0;
  return endpoint.port->paths().service_level(endpoint.peer.address, path_number(endpoint, epoch), now,
                                              &level);
}

void on_request(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  if (endpoint.qps().command != nullptr) return put_off(endpoint, packet, kNotGone);
  if (!attempt_has_room(endpoint))
    return put_off(endpoint, packet, "put off: memory or a completion queue is being made for it");
  if (!knows_path(endpoint, packet.epoch, now)) return put_off(endpoint, packet, kNoLevel);
  if (!handshake_answered(endpoint, now)) {
    put_off(endpoint, packet, "put off: other handshakes come first");
    if (endpoint.skip_backoff && endpoint.phase == Phase::kSoliciting)
      set_phase(endpoint, Phase::kClosed, now);
    return;
  }
  attempt_begin(endpoint, packet.epoch);
  if (!endpoint.connect_wanted) waits_from(endpoint, now);  // what is queued from now on has waited since now
  endpoint.connect_wanted = true;
  learn_probe_target(endpoint, packet);
  attempt_make(endpoint, &packet, cm_qps_made, now);
}

void on_reply(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  if (!knows_path(endpoint, packet.epoch, now))  // the subnet has changed meanwhile
    return put_off(endpoint, packet, kNoLevel);
  learn_probe_target(endpoint, packet);
  set_phase(endpoint, Phase::kBinding, now);
  qp_connect(endpoint, packet, cm_qps_connected);
}

/// A leaving peer says how many SENDs it received: they are delivered, though no completion retires the last
/// ones.
void retire_received(Endpoint& endpoint, uint64_t received) {
  const SendRing& ring = endpoint.ring();
  uint64_t end = ring.tail;
  for (uint64_t seq = ring.tail; seq < ring.head; ++seq) {
    const SendSlot& slot = ring.slots[seq & ring.mask];
    // The data of a read may still be under way when a later SEND has arrived.
    if (slot.kind == Kind::kGet || slot.send_no > received) break;
    if (slot.send_no != 0) end = seq + 1;
  }
  if (end != ring.tail) ring_retire(endpoint, end - 1);
}

void on_bye(Endpoint& endpoint, const Packet& packet) {
  const bool asks = (packet.flags & kByeHeard) == 0;
  // An answer to a BYE that this endpoint has not sent: to that of an earlier connection of both processes.
  if (!asks && !endpoint.last().leaving) return endpoint.port->drop(Drop::kStale, &packet);
  if (packet.epoch == endpoint.epoch && endpoint.usable)
    retire_received(endpoint, packet.probe_target_address);
  endpoint.connect_wanted = false;
  endpoint.peer.left = true;
  if (asks) cm_bye(endpoint);
  close_order(endpoint, endpoint.epoch, BFO_CAUSE_SHUTDOWN, 0, 0);
  endpoint.port->need_service();  // also without an epoch to close
}

/// What the peer gave back is closed there by now.
void peer_is_over(Endpoint& endpoint) {
  const Guard guard(endpoint.port->lock());
  note_peer_over(endpoint, endpoint.epoch);
}

/// Does what the rules say about a packet of the peer.
void act(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  const PacketType type = static_cast<PacketType>(packet.type);
  const bool active = endpoint.port->state() == PortState::kActive;
  const Answer what = answer(type, endpoint.initiator, endpoint.phase, packet.epoch, endpoint.epoch);
  if (tells_address(type, what)) cm_learn_address(endpoint, packet);
  if (type == PacketType::kSolicit && is_held(endpoint) && packet.epoch >= endpoint.epoch)
    peer_is_over(endpoint);
  // No epoch begins any more.
  const bool begins = what == Answer::kStart || what == Answer::kStartOver || what == Answer::kAccept;
  if (endpoint.last().leaving && begins) return cm_bye(endpoint);
  switch (what) {
    case Answer::kDrop:
      return endpoint.port->drop(Drop::kStale, &packet);
    case Answer::kStart:
      return on_solicit(endpoint, packet, now);
    case Answer::kStartOver:
      attempt_drop(endpoint, now);
      endpoint.epoch = std::max(endpoint.epoch, packet.epoch);
      return;
    case Answer::kRequestAgain:
      cm_send(endpoint, PacketType::kRequest, endpoint.epoch);
      return;
    case Answer::kSolicit:
      if (!active) return put_off(endpoint, packet, kPortDown);
      cm_send(endpoint, PacketType::kSolicit, endpoint.epoch);
      return;
    case Answer::kAccept:
      return active ? on_request(endpoint, packet, now) : put_off(endpoint, packet, kPortDown);
    case Answer::kReplyAgain:
      cm_send(endpoint, PacketType::kReply, endpoint.epoch);
      return;
    case Answer::kProbe:
      return on_reply(endpoint, packet, now);
    case Answer::kReadyAgain:
      cm_send(endpoint, PacketType::kReady, endpoint.epoch);
      return;
    case Answer::kEstablish:
      return cm_established(endpoint);
    case Answer::kEndEpoch:
      // Its half is closed, or it would not speak of another epoch. It has the evidence, and reports that.
      close_order(endpoint, endpoint.epoch, BFO_CAUSE_PEER_DOWN, static_cast<int32_t>(packet.number), 0);
      return peer_is_over(endpoint);
    case Answer::kLeave:
      return on_bye(endpoint, packet);
  }
}

}  // namespace

void cm_receive(Port& port, const char* data, size_t length) {
  Packet packet;
  Endpoint* endpoint = nullptr;
  if (const Drop why = admit(port, data, length, &packet, &endpoint); why != Drop::kNone)
    return port.drop(why, why != Drop::kShape ? &packet : nullptr);
  if (port.host().packet != nullptr) port.host().packet(port.host().ctx, *endpoint, packet, false);
  const uint64_t now = port.env().now_ns();
  if (packet.type == static_cast<uint8_t>(PacketType::kPong)) {
    cm_note_heard(*endpoint, packet, now);
    return ping_answered(*endpoint, now);
  }
  if (packet.type == static_cast<uint8_t>(PacketType::kRefuse)) {
    // Of an epoch that is up, or was until just now: nothing is refused.
    const bool up = is_up(endpoint->phase) || endpoint->phase == Phase::kDraining;
    if (up && packet.epoch == endpoint->epoch) {
      resource_short(*endpoint, packet, now);
    } else if (!is_up(endpoint->phase)) {
      resource_refused(*endpoint, packet, now);
    }
    return act(*endpoint, packet, now);
  }
  if (packet.type >= static_cast<uint8_t>(PacketType::kQuestion)) {
    if (packet.type == static_cast<uint8_t>(PacketType::kAnswer)) cm_note_answer(*endpoint, packet, now);
    return verdict_packet(*endpoint, packet, now);
  }
  cm_note_heard(*endpoint, packet, now);
  if (!is_up(endpoint->phase))
    port.need_service();  // a process that comes by seldom may stay for the next step
  endpoint->peer.initially_down = false;
  ping_heard(*endpoint, now);
  if (packet.type == static_cast<uint8_t>(PacketType::kSolicit) ||
      packet.type == static_cast<uint8_t>(PacketType::kRequest)) {
    need_heard(*endpoint, packet.flags, now);
  }
  act(*endpoint, packet, now);
}

void cm_qps_made(Endpoint& endpoint, Object missing, int error) {
  const uint64_t now = endpoint.port->env().now_ns();
  if (!goes_on(endpoint, missing, error, now)) return;
  set_phase(endpoint, endpoint.initiator ? Phase::kRequesting : Phase::kReplied, now);
  ping_begin(endpoint, now);
  cm_send(endpoint, endpoint.initiator ? PacketType::kRequest : PacketType::kReply, endpoint.epoch);
  handshake_pause(endpoint, endpoint.timer().attempts++, now);
  endpoint.port->expect_losses();  // while the peer does its part
}

void cm_qps_connected(Endpoint& endpoint, Object missing, int error) {
  const uint64_t now = endpoint.port->env().now_ns();
  if (!goes_on(endpoint, missing, error, now)) return;
  const uint64_t id = work_id(WorkKind::kProbe, uint64_t{endpoint.epoch} << 1);
  if (post_bare(endpoint, endpoint.qps().data.ib(), id) != 0) return attempt_drop(endpoint, now);
  set_phase(endpoint, Phase::kProbing, now);
}

void cm_established(Endpoint& endpoint) {
  if (endpoint.phase != Phase::kReplied || endpoint.ending().asked) return;  // given up, to be drained
  go_up(endpoint, endpoint.port->env().now_ns());
}

void cm_probe_done(Endpoint& endpoint, int status) {
  if (endpoint.phase != Phase::kProbing) return;
  const uint64_t now = endpoint.port->env().now_ns();
  if (status != IBV_WC_SUCCESS) {
    endpoint.path_failures().note(now);
    return attempt_drop(endpoint, now);
  }
  cm_send(endpoint, PacketType::kReady, endpoint.epoch);
  go_up(endpoint, now);
}

void cm_bye(Endpoint& endpoint) {
  if (endpoint.epoch == 0 || endpoint.port->state() != PortState::kActive) return;
  if (!cm_find_way(endpoint)) return;  // nothing has reached it
  cm_send(endpoint, PacketType::kBye, endpoint.epoch);
}

bool cm_ping(Endpoint& endpoint, uint32_t number) {
  return cm_send(endpoint, PacketType::kPing, number);
}

void cm_failed(Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code, uint64_t now) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  const bfo_rail_event_t event = make_event(endpoint, cause, code, 0, now);
  // A path that was silent may still come to life, and a port that is down may return.
  endpoint.connect_wanted = port.failover() && !endpoint.peer.left && port.state() != PortState::kDead;
  endpoint.announced = false;
  endpoint.past = Past::kLost;
  host.rail_down(host.ctx, endpoint, event);
  return_queued(endpoint);
  // If the last attempt had reached the drain, its epoch was closed there: the same result and count are
  // reported again.
  const ClosedEpoch* const closed = endpoint.last_closed();
  const bool again = closed != nullptr && closed->name.epoch == endpoint.epoch;
  report_closed(endpoint, event, again ? closed->result : BFO_FENCED, again ? closed->delivered : 0);
}

void cm_peer_left(Endpoint& endpoint, uint64_t now) {
  ping_end(endpoint);
  set_phase(endpoint, Phase::kGone, now);
  if (endpoint.ever_up() || endpoint.lost_reported()) return return_queued(endpoint);
  cm_failed(endpoint, BFO_CAUSE_SHUTDOWN, 0, now);
}

bool cm_awaits_peer(const Endpoint& endpoint, uint64_t now) {
  if (!endpoint.peer.initially_down || !endpoint.queued.empty()) return false;
  const Port& port = *endpoint.port;
  if (port.up_since_ns() != 0 && now < port.up_since_ns() + kInitiallyDownNs) return false;
  // A try would cost: for a GID that does not answer, an address handle on RoCE takes up to a second to fail.
  return port.host().other_rail_up(port.host().ctx, const_cast<Endpoint&>(endpoint));
}

void cm_step(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  if (first_connection_ends(endpoint, now)) return;
  if (port.state() != PortState::kActive) return ping_end(endpoint);
  handshake_wake(endpoint, now);
  ping_step(endpoint, now);
  switch (endpoint.phase) {
    case Phase::kIdle:
      if (endpoint.connect_wanted) start(endpoint, now);
      return;
    case Phase::kClosed:
      if (endpoint.qps().command != nullptr) return;
      if (endpoint.connect_wanted && (now >= endpoint.timer().due_ns || endpoint.skip_backoff))
        start(endpoint, now);
      return;
    case Phase::kSoliciting:
      if (now < endpoint.timer().due_ns) return;
      cm_send(endpoint, PacketType::kSolicit, endpoint.epoch);
      break;
    case Phase::kRequesting:
      if (resource_give_back(endpoint, now)) return;
      if (now < endpoint.timer().due_ns) return;
      cm_send(endpoint, PacketType::kRequest, endpoint.epoch);
      break;
    case Phase::kReplied:
      if (now < endpoint.timer().due_ns) return;
      cm_send(endpoint, PacketType::kReply, endpoint.epoch);
      break;
    default:
      return;
  }
  handshake_pause(endpoint, endpoint.timer().attempts++, now);
}

}  // namespace bfo::engine
