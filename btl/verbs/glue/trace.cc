// SPDX-License-Identifier: BSD-3-Clause
//
// trace.cc: see trace.h.
#include "btl/verbs/glue/trace.h"

#include "btl/verbs/engine/datagram/packet_text.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

constexpr size_t kTextBytes = 240;

uint32_t rank_of(uint64_t name) {
  return static_cast<uint32_t>(name);
}

uint32_t own_rank() {
  return OPAL_PROC_MY_NAME.vpid;
}

const engine::Port& port_of(void* ctx) {
  return static_cast<Module*>(ctx)->port;
}

void print_packet(void* ctx, engine::Endpoint& endpoint, const engine::Packet& packet, bool out) {
  const engine::Port& port = port_of(ctx);
  char text[kTextBytes];
  engine::describe_packet(text, sizeof text, packet);
  opal_output(0, "btl/verbs: rank %u: %s port %u %s rank %u on host %s: %s", own_rank(), port.device().name(),
              port.number(), out ? "to" : "from", rank_of(endpoint.peer.name),
              HostName(*proc_of(endpoint)).text(), text);
}

/// Who sent it is what the packet says, and may be a lie.
void print_drop(void* ctx, const engine::DropNote& note) {
  const engine::Port& port = port_of(ctx);
  char text[kTextBytes] = "";
  if (note.packet != nullptr) engine::describe_packet(text, sizeof text, *note.packet);
  if (note.packet != nullptr) {
    opal_output(0, "btl/verbs: rank %u: %s port %u dropped %s (%s, from rank %u to rank %u): %s", own_rank(),
                port.device().name(), port.number(), note.what, text, rank_of(note.packet->source),
                rank_of(note.packet->target), note.why);
  } else {
    opal_output(0, "btl/verbs: rank %u: %s port %u dropped %s (%llu times): %s", own_rank(),
                port.device().name(), port.number(), note.what, static_cast<unsigned long long>(note.times),
                note.why);
  }
}

}  // namespace

void trace_rail(const engine::Endpoint& endpoint, const char* what, const bfo_rail_event_t& event) {
  if (!traces(kTraceRails)) return;
  opal_output(0, "btl/verbs: rank %u: rail %s port %u to rank %u on host %s (%s), epoch %u: %s%s%s",
              own_rank(), event.info.device, event.info.port, rank_of(endpoint.peer.name),
              HostName(*proc_of(endpoint)).text(), event.info.peer_port, event.info.name.epoch, what,
              event.text[0] != '\0' ? ": " : "", event.text);
}

void trace_rate(const Module& module, const engine::PortRate& before, const engine::PortRate& now,
                const char* event) {
  if (!traces(kTraceRails)) return;
  opal_output(0, "btl/verbs: rank %u: %s port %u runs at %u Mbit/s, before at %u: %s%s", own_rank(),
              module.port.device().name(), module.port.number(), now.mbit, before.mbit, event,
              module.fixed_rate ? " (btl_verbs_bandwidth is given, and stays)" : "");
}

decltype(engine::Host::packet) packet_trace() {
  return traces(kTracePackets) ? print_packet : nullptr;
}

decltype(engine::Host::dropped) drop_trace() {
  return traces(kTraceDrops) ? print_drop : nullptr;
}

}  // namespace bfo::verbs
