// SPDX-License-Identifier: BSD-3-Clause
//
// kept.cc: messages of those who tell each other of dead processes, in libmpi itself, which knows one module
// only and waits for ever for one that is lost: they take another rail, or wait for one. What is decided is
// in engine/send/elsewhere.h.
#include "btl/verbs/glue/kept.h"

#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/engine/send/elsewhere.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

/// The rails to one process, and how they are.
struct Rails {
  explicit Rails(uint64_t peer) {
    const Component& component = mca_btl_verbs_component;
    count = engine::rails_to(component.ports, component.module_count, peer, at, kMaxModules);
    for (int i = 0; i < count; ++i)
      there[i] = {.state = engine::rail_state(*at[i]), .left = at[i]->peer.left};
  }
  engine::RailsThere all() const { return {there, static_cast<size_t>(count)}; }
  int place_of(const engine::Endpoint& rail) const {
    for (int i = 0; i < count; ++i)
      if (at[i] == &rail) return i;
    return engine::kNoRail;
  }

  int count;
  engine::Endpoint* at[kMaxModules];
  engine::RailThere there[kMaxModules];
};

}  // namespace

bool send_elsewhere(const engine::Endpoint& lost, uint8_t tag, const void* data, size_t length) {
  // libmpi may call in any thread, while another one meets a process.
  const ProgressPause pause(mca_btl_verbs_component);
  const Rails rails(lost.peer.name);
  return engine::send_over(rails.all(), BFO_RAIL_UP, rails.place_of(lost),
                           [&](int i) { return send_copy(*rails.at[i], tag, data, length); });
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
  const Rails rails(lost.peer.name);
  for (int i = 0; i < rails.count; ++i)
    if (engine::connects_for_kept(rails.there[i].state)) engine::rail_connect(*rails.at[i]);
  return component.kept.keep(lost.peer.name, tag, data, length);
}

// Which rails have room, or are up, changes with progress only.
void send_kept(Component& component) {
  component.kept.offer(engine::system_environment().now_ns(), [](const KeptMessage& message) {
    const Rails rails(message.peer);
    const auto is_dead_there = [&] {
      opal_proc_t* const proc = proc_of(*rails.at[0]);
      return proc != nullptr && is_dead(reinterpret_cast<ompi_proc_t&>(*proc));
    };
    return engine::settle_kept(rails.all(), is_dead_there, [&](int i) {
      return send_copy(*rails.at[i], message.tag, message.data(), message.length);
    });
  });
}

}  // namespace bfo::verbs
