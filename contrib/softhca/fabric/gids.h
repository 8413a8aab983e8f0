// SPDX-License-Identifier: BSD-3-Clause
//
// The GIDs of a port: one of InfiniBand, or several of RoCE, of two versions, three kinds of address and
// several VLANs. With RoCE there are no LIDs: a GID, its version and its VLAN say where to.
#pragma once

#include <string>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Reads "LIST;node=1:LIST;node=1/device=0:LIST" (gid_list.h): the list of all ports, then of some. False and
/// a sentence in `error` for anything else.
bool read_gids(const std::string& text, GidPlan& plan, std::string& error);
/// What the port has in the beginning: the last list that names it.
const GidList& gids_of(const GidPlan& plan, uint32_t node, uint32_t device);

inline bool is_ethernet(const FabricHeader& h) {
  return h.ethernet != 0;
}
inline bool is_version_2(GidKind kind) {
  return kind == GidKind::kV2Link || kind == GidKind::kV2Ipv4 || kind == GidKind::kV2Ipv6;
}

/// The table of a port now.
inline GidList gids_of(const FabricHeader& h, uint32_t port) {
  return unpack(h.ports_table[port].gids.load(std::memory_order_relaxed));
}

/// GID number `index` of a port, 16 bytes as on the wire; all 0 where there is none.
void make_gid(const FabricHeader& h, uint32_t port, uint32_t index, uint8_t* raw);

/// The interface that has the address at `index`, as ibv_gid_entry::ndev_ifindex names it: one for the port
/// and one for each VLAN.
uint32_t interface_of_gid(const FabricHeader& h, uint32_t port, uint32_t index);

/// LID by which the fabric knows the port that `dgid` is an address of, as seen from GID `index` of the port
/// `from`: of the same rail, version, VLAN and kind of address, which is one subnet. kNoLid when there is
/// none, and in `*why`, when it is not nullptr, the errno with which a kernel says so.
inline constexpr uint16_t kNoLid = 0xffff;
uint16_t lid_of_gid(const FabricHeader& h, uint32_t from, uint32_t index, const uint8_t* dgid,
                    int* why = nullptr);

/// The port has the address `raw` now, in a version and VLAN that GID `index` of the port `from` reaches.
bool has_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw, uint32_t from, uint32_t index);

/// Lowest index of a GID of the port that equals `raw`; 0 when none does.
uint32_t index_of_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw);

}  // namespace bfo::softhca
