// SPDX-License-Identifier: BSD-3-Clause
//
// modex.h: what every process publishes about its ports, and reads of its peers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "btl/verbs/engine/pairing.h"
#include "common/wire_versions.h"

namespace bfo::engine {

inline constexpr uint32_t kModexMagic = 0x62766231;
/// Raised by every change of the record, of a datagram (cm_packet.h) or of what connected ports send that an
/// older reader would misread. The other one is the oldest that is still understood.
inline constexpr uint16_t kWireVersion = 7;
inline constexpr uint16_t kWireOldest = 7;
/// The first version whose record begins with a WireRecord.
inline constexpr uint16_t kFirstRanged = 7;

/// One port in the modex, an entry behind the WireRecord. New members go to the end.
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
  // engine::PortPlace
  uint8_t ordinal;
  uint8_t position;
  uint8_t subnet_bits;
  uint8_t routable;
  uint8_t lmc;
  uint16_t pkey;
  // For reports: what the process calls the port. Not trusted, not ended when it is this long.
  uint8_t number;
  char device[23];
};
static_assert(sizeof(ModexPort) == 96);

/// Where the port of a record is, for pairing.
inline PortPlace place_of(const ModexPort& port) {
  PortPlace place;
  place.link_layer = port.link_layer;
  memcpy(place.gid.raw, port.gid, sizeof port.gid);
  place.subnet_bits = std::min<uint8_t>(port.subnet_bits, 128);
  place.routable = port.routable != 0;
  place.pkey = port.pkey;
  place.ordinal = port.ordinal;
  place.position = port.position;
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
