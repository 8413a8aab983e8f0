// SPDX-License-Identifier: BSD-3-Clause
//
// trace.h: what btl_verbs_verbose prints. From level 1 on which ports are used, from 10 each change of a
// rail, from 20 what is dropped or put off and why, from 30 each message of a connection, sent and received.
#pragma once

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/glue/component.h"

namespace bfo::verbs {

constexpr int kTracePorts = 1;
constexpr int kTraceRails = 10;
constexpr int kTraceDrops = 20;
constexpr int kTracePackets = 30;

inline bool traces(int level) {
  return mca_btl_verbs_component.params.verbose >= level;
}

/// "rail softhca1 port 1 to rank 0 on host n1 (lid 3 ud qpn 0x4043), epoch 2: down: RETRY_EXC".
void trace_rail(const engine::Endpoint& endpoint, const char* what, const bfo_rail_event_t& event);
/// "softhca1 port 1 runs at 10000 Mbit/s, before at 100000".
void trace_rate(const Module& module, const engine::PortRate& before, const engine::PortRate& now,
                const char* event);
/// The calls of engine::Host that tell of packets and of what is dropped; nullptr where nobody asks.
decltype(engine::Host::packet) packet_trace();
decltype(engine::Host::dropped) drop_trace();

}  // namespace bfo::verbs
