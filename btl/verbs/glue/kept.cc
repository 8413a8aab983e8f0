// SPDX-License-Identifier: BSD-3-Clause
//
// kept.cc: messages of those who tell each other of dead processes, in libmpi itself, which knows one module
// only and waits for ever for one that is lost: they take another rail, or wait for one.
#include "btl/verbs/glue/kept.h"

#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

int rails_of(uint64_t peer, engine::Endpoint** out) {
  const Component& component = mca_btl_verbs_component;
  return engine::rails_to(component.ports, component.module_count, peer, out, kMaxModules);
}

bool send_over(bfo_rail_state_t state, uint64_t peer, const engine::Endpoint* except, uint8_t tag,
               const void* data, size_t length) {
  engine::Endpoint* rails[kMaxModules];
  const int count = rails_of(peer, rails);
  for (int i = 0; i < count; ++i) {
    if (rails[i] == except || engine::rail_state(*rails[i]) != state) continue;
    if (send_copy(*rails[i], tag, data, length)) return true;
  }
  return false;
}

/// The process has died, or has left, or no rail to it can come up: nobody gets a message any more.
bool is_gone(uint64_t peer) {
  engine::Endpoint* rails[kMaxModules];
  const int count = rails_of(peer, rails);
  bool gone = true;
  for (int i = 0; i < count; ++i)
    gone = gone && (rails[i]->peer.left || engine::rail_state(*rails[i]) == BFO_RAIL_UNUSABLE);
  if (gone) return true;
  opal_proc_t* const proc = proc_of(*rails[0]);
  return proc != nullptr && is_dead(reinterpret_cast<ompi_proc_t&>(*proc));
}

}  // namespace

bool send_elsewhere(const engine::Endpoint& lost, uint8_t tag, const void* data, size_t length) {
  // libmpi may call in any thread, while another one meets a process.
  const ProgressPause pause(mca_btl_verbs_component);
  return send_over(BFO_RAIL_UP, lost.peer.name, &lost, tag, data, length);
}

bool waits_for_rail(const engine::Endpoint& rail) {
  Component& component = mca_btl_verbs_component;
  if (component.kept.count() == 0) return false;
  const ProgressPause pause(component);
  return component.kept.has(rail.peer.name);
}

bool keep(const engine::Endpoint& lost, uint8_t tag, const void* data, size_t length) {
  Component& component = mca_btl_verbs_component;
  const ProgressPause pause(component);
  // Those that no message has used yet, the one that was asked for among them.
  engine::Endpoint* rails[kMaxModules];
  const int count = rails_of(lost.peer.name, rails);
  for (int i = 0; i < count; ++i)
    if (engine::rail_state(*rails[i]) == BFO_RAIL_IDLE) engine::rail_connect(*rails[i]);
  return component.kept.keep(lost.peer.name, tag, data, length);
}

// Which rails have room, or are up, changes with progress only.
void send_kept(Component& component) {
  component.kept.offer(engine::system_environment().now_ns(), [](const KeptMessage& message) {
    const auto over = [&message](bfo_rail_state_t state) {
      return send_over(state, message.peer, nullptr, message.tag, message.data(), message.length);
    };
    return is_gone(message.peer) || over(BFO_RAIL_UP) || over(BFO_RAIL_SUSPECT);
  });
}

}  // namespace bfo::verbs
