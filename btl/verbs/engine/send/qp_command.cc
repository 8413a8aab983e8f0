// SPDX-License-Identifier: BSD-3-Clause
//
// qp_command.cc: see qp_command.h.
#include "btl/verbs/engine/send/qp_command.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// A number may belong to another endpoint already: a device gives it away again when it is free.
void unlist(Endpoint& endpoint, const Qp& qp) {
  Table<Endpoint>& qps = endpoint.port->qps();
  if (qp.exists() && qps.find(qp.number()) == &endpoint) qps.erase(qp.number());
}

// ---- control threads

void fail(QpCommand& command, Object missing, int error) {
  command.missing = missing;
  command.error = error != 0 ? error : EIO;
}

void make_both(QpCommand& command) {
  const QpPlan& plan = command.plan;
  errno = 0;
  if (!command.data.create(*plan.api, plan.pd, command.send_cq, plan.receive_cq, plan.srq, plan.data) ||
      !command.probe.create(*plan.api, plan.pd, command.send_cq, plan.receive_cq, nullptr, plan.probe)) {
    return fail(command, Object::kQueuePair, errno);
  }
  int rc = command.data.to_init(plan.data);
  if (rc == 0) rc = command.probe.to_init(plan.probe);
  if (rc != 0) fail(command, Object::kQueuePairState, rc);
}

void connect_both(QpCommand& command) {
  const QpPlan& plan = command.plan;
  if (plan.unaddressed) return fail(command, Object::kQueuePairState, EADDRNOTAVAIL);
  int rc = command.data.to_ready(plan.data, plan.own, plan.peer, plan.path, plan.peer_data_qpn,
                                 plan.peer_data_psn, plan.data_psn);
  if (rc == 0) {
    rc = command.probe.to_ready(plan.probe, plan.own, plan.peer, plan.path, plan.peer_probe_qpn,
                                plan.peer_probe_psn, plan.probe_psn);
  }
  if (rc != 0) fail(command, Object::kQueuePairState, rc);
}

bool prepares(QpCommand::Verb verb) {
  return verb == QpCommand::Verb::kMake || verb == QpCommand::Verb::kConnect ||
         verb == QpCommand::Verb::kMakeBoth;
}

void run_prepare(QpCommand& command) {
  if (command.verb != QpCommand::Verb::kConnect) make_both(command);
  if (command.verb != QpCommand::Verb::kMake && command.missing == Object::kNone) connect_both(command);
}

void run_command(Command& base) {
  auto& command = static_cast<QpCommand&>(base);
  if (prepares(command.verb)) return run_prepare(command);
  if (command.verb == QpCommand::Verb::kFence) {
    // What refused to destroy it may have refused to stop it.
    if (command.again) command.data.to_error();
    command.clean = command.data.destroy() == 0;
    return;
  }
  if (command.ask && command.verb == QpCommand::Verb::kStop) {
    const Port& port = *command.port;
    command.finding = find_cause(port.api(), command.data.ib(), port.device().context(), port.number());
  }
  command.data.to_error();
  command.probe.to_error();
  if (command.verb == QpCommand::Verb::kStop) return;
  const bool data = command.data.destroy() == 0;
  command.clean = command.probe.destroy() == 0 && data;
}

// ---- progress function

void command_done(Command& base);

void submit(QpCommand& command, QpCommand::Verb verb) {
  command.verb = verb;
  command.droppable = prepares(verb);
  command.run = run_command;
  command.done = command_done;
  if (!command.on_heap) {
    run_command(command);
    return command_done(command);
  }
  Port& port = *command.port;
  if (prepares(verb)) return port.setups().submit(command, Urgency::kNormal);
  if (verb == QpCommand::Verb::kStop) return port.stops().submit(command, Urgency::kFirst);
  port.queue_pairs().submit(command, Urgency::kLast);
}

/// The command for the queue pairs of `endpoint`: on the heap, or `spare`, which runs at once, when memory is
/// short.
QpCommand& prepare(Endpoint& endpoint, QpCommand& spare) {
  auto* made = make<QpCommand>();
  QpCommand& command = made != nullptr ? *made : spare;
  command.on_heap = made != nullptr;
  command.port = endpoint.port;
  command.endpoint = &endpoint;
  command.data = endpoint.qps().data;
  command.probe = endpoint.qps().probe;
  command.send_cq = endpoint.qps().send_cq;
  command.reserved = endpoint.qps().reserved;
  endpoint.qps().command = &command;
  return command;
}

/// What was destroyed is given back. Queue pairs that would not go may still put completions on the queue:
/// their reservation stays.
void end_destroy(QpCommand& command) {
  if (command.clean && command.send_cq != nullptr)
    command.port->cqs().release(command.send_cq, command.reserved);
  Endpoint* const endpoint = command.endpoint;
  if (command.on_heap) unmake(&command);
  if (endpoint == nullptr) return;
  endpoint->qps().command = nullptr;
  endpoint->port->need_service();
}

/// The endpoint has its queue pairs, or what there is of them.
void end_prepare(QpCommand& command) {
  Endpoint& endpoint = *command.endpoint;
  const bool connect = command.verb == QpCommand::Verb::kConnect;
  Object missing = command.missing;
  int error = command.error;
  QpReady* const ready = command.ready;
  endpoint.qps().command = nullptr;
  endpoint.qps().data = command.data;
  endpoint.qps().probe = command.probe;
  if (command.on_heap) unmake(&command);
  if (connect) return ready(endpoint, missing, error);
  Table<Endpoint>& qps = endpoint.port->qps();
  if (missing == Object::kNone && !(qps.insert(endpoint.qps().data.number(), &endpoint) &&
                                    qps.insert(endpoint.qps().probe.number(), &endpoint))) {
    missing = Object::kBuffers;
    error = ENOMEM;
  }
  ready(endpoint, missing, error);
}

void command_done(Command& base) {
  auto& command = static_cast<QpCommand&>(base);
  if (command.verb == QpCommand::Verb::kDestroy) return end_destroy(command);
  if (prepares(command.verb)) {
    if (command.endpoint != nullptr && !command.unwanted) return end_prepare(command);
    return submit(command, QpCommand::Verb::kDestroy);
  }
  if (Endpoint* const endpoint = command.endpoint; endpoint != nullptr) {
    endpoint->qps().command = nullptr;
    if (command.verb == QpCommand::Verb::kStop) {
      endpoint->finding() = command.finding;
      QpStopped* const stopped = command.stopped;
      if (command.on_heap) unmake(&command);
      return stopped(*endpoint);
    }
    if (!command.fenced(*endpoint, command.clean)) {
      endpoint->qps().send_cq = command.send_cq;
      if (command.on_heap) unmake(&command);
      return;
    }
    unlist(*endpoint, endpoint->qps().data);
    unlist(*endpoint, endpoint->qps().probe);
    endpoint->qps().data = endpoint->qps().probe = Qp{};
    command.endpoint = nullptr;
  }
  // The rest goes by itself, and nobody waits for it.
  submit(command, QpCommand::Verb::kDestroy);
}

QpPlan make_plan(const Endpoint& endpoint) {
  Port& port = *endpoint.port;
  QpPlan plan;
  plan.api = &port.api();
  plan.pd = port.device().pd();
  plan.receive_cq = port.cqs().first();
  plan.srq = port.srq().ib();
  plan.data = plan.probe = port.settings();
  plan.probe.send_depth = kProbeDepth;
  plan.probe.inline_bytes = 0;
  plan.probe.timeout = port.config().probe_timeout;
  plan.probe.retry_count = port.config().probe_retry;
  plan.data_psn = endpoint.qps().data_psn;
  plan.probe_psn = endpoint.qps().probe_psn;
  plan.own = port.address();
  return plan;
}

/// The own address that the queue pairs are connected with: the one that the peer's are, or, as they are not
/// yet, the one for its address.
void add_own(QpPlan* plan, Endpoint& endpoint, const Packet& packet) {
  const Port& port = *endpoint.port;
  if (port.config().read_gids == nullptr) return;
  const bool fixed = packet.type == static_cast<uint8_t>(PacketType::kReply);
  ibv_gid to{};
  memcpy(to.raw, packet.to_gid, sizeof to.raw);
  const GidType type = static_cast<GidType>(endpoint.peer.address.gid_type);
  const GidEntry* const entry =
      fixed ? port.gids().find(to, type) : own_gid_for(port.gids(), endpoint.peer.address.gid, type);
  plan->unaddressed = entry == nullptr;
  if (entry == nullptr) return;
  plan->data.gid_index = plan->probe.gid_index = endpoint.qps().own_gid = static_cast<uint8_t>(entry->index);
  plan->own.gid = entry->gid;
}

void add_peer(QpPlan* plan, Endpoint& endpoint, const Packet& packet) {
  add_own(plan, endpoint, packet);
  plan->data.max_read = std::min(plan->data.max_read, std::max<uint8_t>(packet.max_read, 1));
  plan->probe.max_read = plan->data.max_read;
  plan->peer = endpoint.peer.address;
  plan->path = path_number(endpoint, packet.epoch);
  plan->data.service_level = endpoint.port->paths().known_level(plan->peer, plan->path);
  plan->probe.service_level = plan->data.service_level;
  plan->peer_data_qpn = packet.data_qpn;
  plan->peer_data_psn = packet.data_psn;
  plan->peer_probe_qpn = packet.probe_qpn;
  plan->peer_probe_psn = packet.probe_psn;
}

}  // namespace

void qp_make(Endpoint& endpoint, const Packet* request, QpReady* ready) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  command.ready = ready;
  command.plan = make_plan(endpoint);
  if (request != nullptr) add_peer(&command.plan, endpoint, *request);
  submit(command, request != nullptr ? QpCommand::Verb::kMakeBoth : QpCommand::Verb::kMake);
}

void qp_connect(Endpoint& endpoint, const Packet& reply, QpReady* ready) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  command.ready = ready;
  command.plan = make_plan(endpoint);
  add_peer(&command.plan, endpoint, reply);
  submit(command, QpCommand::Verb::kConnect);
}

void qp_stop(Endpoint& endpoint, QpStopped* stopped) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  command.stopped = stopped;
  command.ask = endpoint.drain().cause_open;
  submit(command, QpCommand::Verb::kStop);
}

void qp_fence(Endpoint& endpoint, QpFenced* fenced) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  command.fenced = fenced;
  command.again = endpoint.drain().asks_again();
  endpoint.qps().send_cq = nullptr;
  submit(command, QpCommand::Verb::kFence);
}

void qp_destroy(Endpoint& endpoint) {
  unlist(endpoint, endpoint.qps().data);
  unlist(endpoint, endpoint.qps().probe);
  if (endpoint.qps().command != nullptr) {
    endpoint.qps().command->unwanted = true;
    endpoint.qps().send_cq = nullptr;
    endpoint.qps().data = endpoint.qps().probe = Qp{};
    return;
  }
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  endpoint.qps().send_cq = nullptr;
  endpoint.qps().data = endpoint.qps().probe = Qp{};
  submit(command, QpCommand::Verb::kDestroy);
}

void qp_forget(Endpoint& endpoint) {
  if (!endpoint.has_resources()) return;
  unlist(endpoint, endpoint.qps().data);
  unlist(endpoint, endpoint.qps().probe);
  if (endpoint.qps().command == nullptr && (endpoint.qps().data.exists() || endpoint.qps().probe.exists()))
    qp_destroy(endpoint);
  if (endpoint.qps().command != nullptr) endpoint.qps().command->endpoint = nullptr;
  endpoint.qps().command = nullptr;
  endpoint.qps().data = endpoint.qps().probe = Qp{};
}

}  // namespace bfo::engine
