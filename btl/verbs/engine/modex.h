// SPDX-License-Identifier: BSD-3-Clause
//
// modex.h: what every process publishes about its ports, and reads of its peers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "btl/verbs/engine/pairing.h"

namespace bfo::engine {

inline constexpr uint32_t kModexMagic = 0x62766231;
inline constexpr uint16_t kModexVersion = 7;

/// One port in the modex. Host byte order: peers of another architecture are not reached.
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

struct ModexHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t count;
};

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

/// Copies the ports of the record of `size` bytes at `data` to `ports`, which has `room` for so many. Their
/// number, 0 when the record is not one of this version, whole.
inline int modex_read(const void* data, size_t size, ModexPort* ports, int room) {
  ModexHeader header;
  if (size < sizeof header) return 0;
  memcpy(&header, data, sizeof header);
  const bool sound = header.magic == kModexMagic && header.version == kModexVersion && header.count <= room &&
                     size == sizeof header + header.count * sizeof(ModexPort);
  if (!sound) return 0;
  memcpy(ports, static_cast<const char*>(data) + sizeof header, header.count * sizeof(ModexPort));
  return header.count;
}

}  // namespace bfo::engine
