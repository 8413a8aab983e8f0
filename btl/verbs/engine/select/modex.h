// SPDX-License-Identifier: BSD-3-Clause
//
// modex.h: what every process publishes about its ports, and reads of its peers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "btl/verbs/engine/select/pairing.h"
#include "common/wire_versions.h"

namespace bfo::engine {

inline constexpr uint32_t kModexMagic = 0x62766231;
/// Raised by every change of the record, of a datagram (cm_packet.h) or of what connected ports send that an
/// older reader would misread. The other one is the oldest that is still understood.
inline constexpr uint16_t kWireVersion = 8;
inline constexpr uint16_t kWireOldest = 8;
/// The first version whose record begins with a WireRecord.
inline constexpr uint16_t kFirstRanged = 7;

/// One address of an Ethernet port (gids.h).
struct ModexGid {
  uint8_t gid[16];
  uint8_t type;  ///< enum GidType
  uint8_t subnet_bits;
  uint8_t ordinal;
  uint8_t reserved;
};
static_assert(sizeof(ModexGid) == 20);

/// One port in the modex, an entry behind the WireRecord. New members go to the end. The addresses that no
/// port of the process has are not sent.
struct ModexPort {
  uint64_t nonce;
  uint64_t key[2];
  uint8_t gid[16];
  uint32_t cm_qpn;
  uint32_t receive_bytes;
  uint16_t lid;
  uint8_t link_layer;
  uint8_t mtu;
  uint32_t heartbeat_qpn;
  uint32_t qkey;
  uint8_t active;
  /// engine::PortPlace
  uint8_t ordinal;
  uint8_t position;
  uint8_t gid_count;
  uint8_t reserved;
  uint8_t lmc;
  uint16_t pkey;
  /// For reports: what the process calls the port. Not trusted, not ended when it is this long.
  uint8_t number;
  char device[23];
  ModexGid gids[8];  ///< kMaxGids; `gid` is the first one's, on InfiniBand that of the port
};
static_assert(sizeof(ModexPort) == 96 + kMaxGids * sizeof(ModexGid));

/// Bytes of an entry with so many addresses.
constexpr size_t modex_entry_bytes(size_t gids) {
  return offsetof(ModexPort, gids) + gids * sizeof(ModexGid);
}

/// Leaves out what is no address.
inline void read_gids(const ModexPort& port, PortPlace* place) {
  for (size_t i = 0; i < std::min<size_t>(port.gid_count, kMaxGids); ++i) {
    const ModexGid& from = port.gids[i];
    PublishedGid gid;
    memcpy(gid.gid.raw, from.gid, sizeof from.gid);
    if (from.type > static_cast<uint8_t>(GidType::kRoceV2) || from.subnet_bits == 0 ||
        from.subnet_bits > 128 || gid_kind(gid.gid) == GidKind::kNull)
      continue;
    gid.type = static_cast<GidType>(from.type);
    gid.subnet_bits = from.subnet_bits;
    gid.ordinal = from.ordinal;
    place->gids[place->gid_count++] = gid;
  }
}

inline void write_gids(const PortPlace& place, ModexPort* port) {
  port->gid_count = place.gid_count;
  for (size_t i = 0; i < place.gid_count; ++i) {
    const PublishedGid& from = place.gids[i];
    memcpy(port->gids[i].gid, from.gid.raw, sizeof from.gid.raw);
    port->gids[i].type = static_cast<uint8_t>(from.type);
    port->gids[i].subnet_bits = from.subnet_bits;
    port->gids[i].ordinal = from.ordinal;
  }
}

/// Where the port of a record is, for pairing.
inline PortPlace place_of(const ModexPort& port) {
  PortPlace place;
  place.link_layer = port.link_layer;
  memcpy(place.gid.raw, port.gid, sizeof port.gid);
  place.pkey = port.pkey;
  place.ordinal = port.ordinal;
  place.position = port.position;
  read_gids(port, &place);
  return place;
}

/// Copies the ports of a record that was read to `ports`, which has `room` for so many: what this version
/// knows of each, and 0 for what its sender does not know yet. Their number.
inline int modex_ports(const PeerRecord& record, ModexPort* ports, int room) {
  if (record.state != RecordState::kRead) return 0;
  const int count = std::min<int>(record.entries, room);
  const size_t known = std::min<size_t>(record.entry_bytes, sizeof(ModexPort));
  for (int i = 0; i < count; ++i) {
    ports[i] = {};
    memcpy(&ports[i], record.entry + static_cast<size_t>(i) * record.entry_bytes, known);
  }
  return count;
}

}  // namespace bfo::engine
