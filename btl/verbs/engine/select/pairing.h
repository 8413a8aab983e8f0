// SPDX-License-Identifier: BSD-3-Clause
//
// pairing.h: which port of a process meets which port of its peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/qp.h"

namespace bfo::engine {

/// What pairing knows of a port.
struct PortPlace {
  uint8_t link_layer = 0;  ///< enum of ibv_port_attr
  ibv_gid gid{};           ///< InfiniBand: its prefix is the subnet
  uint16_t pkey = 0;       ///< partition; the membership bit does not count
  /// Ethernet: the addresses, best first; none: the port has not been up yet.
  uint8_t gid_count = 0;
  PublishedGid gids[kMaxGids];
  /// How many ports that the process was allowed to use come before this one in its fabric, whether they were
  /// active or not. So a port that is down when a process starts does not make its other ports change sides.
  uint8_t ordinal = 0;
  uint8_t position = 0;  ///< the same among all ports of its link layer
};

/// Ports are in one fabric when they are of the same link layer, partition and subnet: on InfiniBand by
/// prefix, on Ethernet by the netmask of the best address. An Ethernet port without address is in none.
/// Symmetric and transitive.
bool same_fabric(const PortPlace& a, const PortPlace& b);

inline constexpr size_t kNoPort = SIZE_MAX;
inline constexpr size_t kMaxPlaces = 64;  ///< ports of a process that pairing looks at

/// The index in `theirs` of the port that ours[which] meets, or kNoPort. In each InfiniBand fabric ports of
/// equal ordinal meet; what is left on both sides meets in its order. On Ethernet the same in each subnet of
/// IPv4 and global IPv6 addresses, one subnet after the other; then among the ports that are left and have
/// link-local addresses, unless other addresses say that they are in different networks. Then the Ethernet
/// ports that are left: a port without address (it is down) may meet any, and when the two processes have no
/// subnet in common at all, their network is routed and routable addresses of a kind may meet; of equal
/// position first, then in their order. Both processes find the same pairs: `ours` and `theirs` are in the
/// order of their owners' devices. Any thread.
size_t meeting_port(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                    size_t their_count);

}  // namespace bfo::engine
