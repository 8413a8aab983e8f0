// SPDX-License-Identifier: BSD-3-Clause
//
// pairing.h: which port of a process meets which port of its peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/qp.h"

namespace bfo::engine {

/// What pairing knows of a port.
struct PortPlace {
  uint8_t link_layer = 0;  // enum of ibv_port_attr
  ibv_gid gid{};
  /// How many ports that the process was allowed to use come before this one in its fabric, whether they were
  /// active or not. So a port that is down when a process starts does not make its other ports change sides.
  uint8_t ordinal = 0;
};

/// Ports can meet when they are of the same link layer and subnet. On Ethernet the prefix is a link-local
/// constant or part of an IPv4-mapped address: routing decides, not equality. An equivalence relation.
bool same_fabric(const PortPlace& a, const PortPlace& b);

inline constexpr size_t kNoPort = SIZE_MAX;

/// The index in `theirs` of the port that ours[which] meets, or kNoPort. In each fabric ports of equal
/// ordinal meet; what is left on both sides meets in its order. Both processes find the same pairs: `ours`
/// and `theirs` are in the order of their owners' devices. Any thread.
size_t meeting_port(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                    size_t their_count);

}  // namespace bfo::engine
