// SPDX-License-Identifier: BSD-3-Clause
//
// The GID table of a port as a text and as one number: the variable SOFTHCA_GIDS gives the first one, the
// action `gids` of a rule a later one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bfo::softhca {

inline constexpr uint32_t kMaxGids = 8;  ///< per port
inline constexpr uint32_t kMostVlan = 15;

/// Version and address of a GID. Ib is the only one of a port of InfiniBand; at an index with None there is
/// no GID.
enum class GidKind : uint8_t { kIb = 0, kV1Link, kV2Link, kV1Ipv4, kV2Ipv4, kV1Ipv6, kV2Ipv6, kNone };

/// The GIDs of a port, in this order.
struct GidList {
  uint32_t count = 1;
  GidKind kind[kMaxGids] = {};
  uint8_t vlan[kMaxGids] = {};  ///< of the interface that has the address; 0: no VLAN
};

/// Reads "v1,v2-ipv4,v2-ipv4@5,-", at most kMaxGids words, or "ib". False for anything else.
bool read_gid_list(std::string_view text, GidList& gids);
std::string write_gid_list(const GidList& gids);
/// What the words are, for an error message.
inline constexpr std::string_view kGidWords =
    "ib, or a list of at most 8 of v1, v2, v1-ipv4, v2-ipv4, v1-ipv6, v2-ipv6, each with @VLAN (1 to 15) "
    "where it is in one, and - with commas between them";

/// One byte for each index, kind and VLAN. None at the end does not count.
uint64_t pack(const GidList& gids);
GidList unpack(uint64_t packed);

}  // namespace bfo::softhca
