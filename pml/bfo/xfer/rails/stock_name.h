// SPDX-License-Identifier: BSD-3-Clause
//
// stock_name.h: the connection name of a rail whose BTL cannot tell one (no common/failover_btl.h). Both
// processes make the same one, of its component and themselves: that is unambiguous where the peer is reached
// through one module of it. With no other peer they have it in common, because a report about a connection
// may come over such a BTL without a word of who sent it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/ids.h"

namespace bfo::xfer {

/// `one`, `other`: the names of the two processes, in any order.
constexpr RailName stock_name(const char* component, uint64_t one, uint64_t other) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const char* c = component; *c != '\0'; ++c) add(static_cast<uint8_t>(*c));
  for (const uint64_t name : {std::min(one, other), std::max(one, other)})
    for (unsigned shift = 0; shift < 64; shift += 8) add(name >> shift & 0xff);
  return {hash | 1, 1};
}

}  // namespace bfo::xfer
