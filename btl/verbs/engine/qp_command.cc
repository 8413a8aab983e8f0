// SPDX-License-Identifier: BSD-3-Clause
//
// qp_command.cc: see qp_command.h.
#include "btl/verbs/engine/qp_command.h"

#include "btl/verbs/engine/drain.h"
#include "btl/verbs/engine/memory.h"
#include "btl/verbs/engine/port.h"

namespace bfo::engine {
namespace {

/// A number may belong to another endpoint already: a device gives it away again when it is free.
void unlist(Endpoint& endpoint, const Qp& qp) {
  Table<Endpoint>& qps = endpoint.port->qps();
  if (qp.exists() && qps.find(qp.number()) == &endpoint) qps.erase(qp.number());
}

void run_command(Command& base) {
  auto& command = static_cast<QpCommand&>(base);
  if (command.verb == QpCommand::Verb::kFence) {
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

void command_done(Command& base);

void submit(QpCommand& command, QpCommand::Verb verb) {
  command.verb = verb;
  command.run = run_command;
  command.done = command_done;
  if (!command.on_heap) {
    run_command(command);
    return command_done(command);
  }
  Port& port = *command.port;
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
  command.data = endpoint.data;
  command.probe = endpoint.probe;
  command.send_cq = endpoint.send_cq;
  command.reserved = endpoint.reserved;
  endpoint.command = &command;
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
  endpoint->command = nullptr;
  endpoint->port->need_attention();
}

void command_done(Command& base) {
  auto& command = static_cast<QpCommand&>(base);
  if (command.verb == QpCommand::Verb::kDestroy) return end_destroy(command);
  if (Endpoint* const endpoint = command.endpoint; endpoint != nullptr) {
    endpoint->command = nullptr;
    if (command.verb == QpCommand::Verb::kStop) {
      endpoint->finding = command.finding;
      if (command.on_heap) unmake(&command);
      return drain_stopped(*endpoint);
    }
    unlist(*endpoint, endpoint->data);
    unlist(*endpoint, endpoint->probe);
    endpoint->data = endpoint->probe = Qp{};
    drain_destroyed(*endpoint, command.clean);
    command.endpoint = nullptr;
  }
  // The rest goes by itself, and nobody waits for it.
  submit(command, QpCommand::Verb::kDestroy);
}

}  // namespace

void qp_stop(Endpoint& endpoint) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  command.ask = endpoint.cause_open;
  submit(command, QpCommand::Verb::kStop);
}

void qp_fence(Endpoint& endpoint) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  endpoint.send_cq = nullptr;
  submit(command, QpCommand::Verb::kFence);
}

void qp_destroy(Endpoint& endpoint) {
  QpCommand spare;
  QpCommand& command = prepare(endpoint, spare);
  endpoint.send_cq = nullptr;
  unlist(endpoint, endpoint.data);
  unlist(endpoint, endpoint.probe);
  endpoint.data = endpoint.probe = Qp{};
  submit(command, QpCommand::Verb::kDestroy);
}

void qp_forget(Endpoint& endpoint) {
  unlist(endpoint, endpoint.data);
  unlist(endpoint, endpoint.probe);
  if (endpoint.command == nullptr && (endpoint.data.exists() || endpoint.probe.exists()))
    qp_destroy(endpoint);
  if (endpoint.command != nullptr) endpoint.command->endpoint = nullptr;
  endpoint.command = nullptr;
  endpoint.data = endpoint.probe = Qp{};
}

}  // namespace bfo::engine
