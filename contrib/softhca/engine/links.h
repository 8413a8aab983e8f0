// SPDX-License-Identifier: BSD-3-Clause
//
// The links of ports: the time that bytes take on them, and what has come in over them.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

inline bool port_is_up(Fabric& fabric, uint32_t index) {
  FabricHeader& h = fabric.header();
  return h.ports_table[index].state.load(std::memory_order_relaxed) == kPortActive &&
         h.devices_table[index / kMaxPortsPerDevice].fatal.load(std::memory_order_relaxed) == 0;
}

/// One direction of a port's link: until when it is busy, and until when with messages of one packet.
struct Wire {
  std::atomic<uint64_t>& free_ns;
  std::atomic<uint64_t>& packet_ns;
};
inline Wire tx_of(PortEntry& port) {
  return {port.tx_free_ns, port.tx_packet_ns};
}
inline Wire rx_of(PortEntry& port) {
  return {port.rx_free_ns, port.rx_packet_ns};
}

/// Reserves `bytes` on a wire, of one queue pair in one direction; returns when the last byte has left. Queue
/// pairs take turns at a port by packets: what fits into one waits for one packet of others, and for others
/// that are as short, not for all that is under way.
uint64_t occupy(Wire wire, uint64_t earliest, uint64_t bytes, uint64_t rate);

/// The time at which `bytes` that leave port `src` now are at `dst_port`; 0 = at once. Takes the time on both
/// links. kNone = they are at no port.
uint64_t take_links(Fabric& fabric, uint64_t bytes, PortEntry& src, uint32_t dst_port);

/// `bytes` are on their way to a port, at that rate, and have all come in at `end_ns`.
void note_coming(PortEntry& to, uint64_t bytes, uint64_t end_ns, uint64_t rate);

/// What port number `port` of the fabric has received while some port had a rate: also of what is on its way.
uint64_t received_bytes(Fabric& fabric, uint32_t port);

}  // namespace bfo::softhca
