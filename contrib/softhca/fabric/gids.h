// SPDX-License-Identifier: BSD-3-Clause
//
// The GIDs of a port: one of InfiniBand, or several of RoCE, of two versions and two kinds of address, in the
// order the fabric was created with. With RoCE there are no LIDs: a GID and its version say where to.
#pragma once

#include <string>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Reads "v1,v2,v1-ipv4,v2-ipv4" in any order and number up to kMaxGids, or "ib". False and a sentence in
/// `error` for anything else.
bool read_gids(const std::string& text, GidList& gids, std::string& error);

inline bool is_ethernet(const FabricHeader& h) {
  return h.gids.kind[0] != GidKind::Ib;
}
inline bool is_version_2(GidKind kind) {
  return kind == GidKind::V2Link || kind == GidKind::V2Ipv4;
}

/// GID number `index` of a port, 16 bytes as on the wire.
void make_gid(const FabricHeader& h, uint32_t port, uint32_t index, uint8_t* raw);

/// LID by which the fabric knows the port that has `dgid`, of the version of GID `index` of the port `from`.
/// kNoLid when there is none on the same rail: each rail is a subnet.
inline constexpr uint16_t kNoLid = 0xffff;
uint16_t lid_of_gid(const FabricHeader& h, uint32_t from, uint32_t index, const uint8_t* dgid);

/// Lowest index of a GID of the port that equals `raw`; 0 when none does.
uint32_t index_of_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw);

}  // namespace bfo::softhca
