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

/// Reserves `bytes` on a wire that is free from `free_at` on; returns when the last byte has left.
uint64_t occupy(std::atomic<uint64_t>& free_at, uint64_t earliest, uint64_t bytes, uint64_t rate);

/// The time at which `bytes` that leave port `src` now are at `dst_port`; 0 = at once. Takes the time on both
/// links. kNone = they are at no port.
uint64_t take_links(Fabric& fabric, uint64_t bytes, PortEntry& src, uint32_t dst_port);

/// `bytes` are on their way to a port, at that rate, and have all come in at `end_ns`.
void note_coming(PortEntry& to, uint64_t bytes, uint64_t end_ns, uint64_t rate);

/// What port number `port` of the fabric has received while some port had a rate: also of what is on its way.
uint64_t received_bytes(Fabric& fabric, uint32_t port);

}  // namespace bfo::softhca
