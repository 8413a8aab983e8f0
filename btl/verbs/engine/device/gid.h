// SPDX-License-Identifier: BSD-3-Clause
//
// gid.h: the addresses (GIDs) of a port, which of them to use, and which of them are in one subnet. Pure
// functions over plain descriptions; the glue reads the tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// RoCE version of a GID table entry; kUnknown where neither the library nor the kernel tells.
enum class GidType : uint8_t { kUnknown, kInfiniband, kRoceV1, kRoceV2 };

/// What kind of address a GID is, by RFC 4291.
enum class GidKind : uint8_t { kNull, kLinkLocal, kIpv4, kGlobal };

/// One entry of a port's GID table.
struct GidEntry {
  int index = -1;
  GidType type = GidType::kUnknown;
  /// How many leading bits name the subnet: 96 and the netmask's for an IPv4 address, 64 for most others. 0:
  /// not known.
  uint8_t subnet_bits = 0;
  uint32_t interface = 0;  ///< number of the network interface that has the address; 0: not known
  ibv_gid gid{};
};

GidKind gid_kind(const ibv_gid& gid);

/// True when `a` is to be preferred to `b`. RoCE v2 before an unknown version before v1; IPv4-mapped before
/// global IPv6 before link-local; of several of a kind the one in the numerically lowest subnet, host
/// addresses
/// (/32) last, and there the lowest. So processes with addresses in the same subnets prefer the same subnet,
/// in whatever order the addresses were added. Last by index.
bool better_gid(const GidEntry& a, const GidEntry& b);

/// True when the first `a_bits` of `a` and the first `b_bits` of `b` are the same subnet. Subnets that are
/// not known (0 bits) are all the same one. An equivalence relation.
bool same_subnet(const ibv_gid& a, uint8_t a_bits, const ibv_gid& b, uint8_t b_bits);

/// The GID type in a line of /sys/class/infiniband/DEVICE/ports/PORT/gid_attrs/types/INDEX.
GidType gid_type_of(const char* text);

}  // namespace bfo::engine
