// SPDX-License-Identifier: BSD-3-Clause
//
// How the fault rules are applied to a call of a control verb.
#include "contrib/softhca/abi/verb_faults.h"

#include <time.h>

#include <cerrno>

#include "contrib/softhca/engine/deferred_actions.h"
#include "contrib/softhca/engine/snapshot.h"
#include "contrib/softhca/engine/topology_faults.h"

namespace bfo::softhca {
namespace {

void sleep_ns(uint64_t ns) {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const uint64_t nsec = static_cast<uint64_t>(until.tv_nsec) + ns % 1'000'000'000u;
  until.tv_sec += static_cast<time_t>(ns / 1'000'000'000u + nsec / 1'000'000'000u);
  until.tv_nsec = static_cast<long>(nsec % 1'000'000'000u);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace

void aim(VerbCall& call, ibv_context* context, unsigned port, const AddressVector& address) {
  const FabricHeader& h = fabric().header();
  const uint16_t index = address.dlid < kMaxLids ? h.lid_to_port[address.dlid].load() : 0;
  call.reach = Reach::kNo;
  if (index == 0) return;
  call.peer_node = static_cast<uint16_t>(port_node(index - 1u));
  if (port < 1 || port > h.ports) return;
  const PortEntry& here = h.ports_table[port_index(fabric().node(), of(context)->device, port)];
  const PortEntry& there = h.ports_table[index - 1u];
  const bool up = here.state.load() == kPortActive && there.state.load() == kPortActive;
  if (up && in_one_segment(here, there)) call.reach = Reach::kYes;
}

int apply_verb_faults(VerbCall& call) {
  Fabric& f = fabric();
  call.node = static_cast<uint16_t>(f.node());
  call.time_ns = f.now();
  const Decision decision = decide(f.header().faults, call);
  if (decision.kind == ActionKind::kNone) return 0;
  snapshot_fault(f, decision);
  {
    DeferredActions deferred(f);
    act_on_topology(f, decision, deferred);
  }
  if (!is_verb_action(decision.kind)) return 0;
  if (decision.delay_ns != 0) sleep_ns(decision.delay_ns);
  return static_cast<int>(decision.value);
}

}  // namespace bfo::softhca
