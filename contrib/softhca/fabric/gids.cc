// SPDX-License-Identifier: BSD-3-Clause
//
// The GIDs, computed from the place of the port. Link-local ones are the EUI-64 of the port in fe80::/64,
// mapped ones the address 10.RAIL.0.NODE, both as a Linux host with one interface per port has them.
#include "contrib/softhca/fabric/gids.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "common/shown_text.h"

namespace bfo::softhca {
namespace {

constexpr struct {
  std::string_view word;
  GidKind kind;
} kWords[] = {{"ib", GidKind::Ib},
              {"v1", GidKind::V1Link},
              {"v2", GidKind::V2Link},
              {"v1-ipv4", GidKind::V1Ipv4},
              {"v2-ipv4", GidKind::V2Ipv4}};

constexpr uint64_t kLinkLocal = 0xfe80'0000'0000'0000u;
constexpr uint32_t kHostsPerBlock = 254;

void put(uint8_t* raw, uint64_t high, uint64_t low) {
  const uint64_t words[2] = {__builtin_bswap64(high), __builtin_bswap64(low)};
  std::memcpy(raw, words, sizeof(words));
}

uint32_t rail_of(uint32_t port) {
  return port_device(port) * kMaxPortsPerDevice + port_number(port);
}

}  // namespace

bool read_gids(const std::string& text, GidList& gids, std::string& error) {
  gids.count = 0;
  bool ib = false;
  for (size_t from = 0; from <= text.size();) {
    size_t comma = text.find(',', from);
    if (comma == std::string::npos) comma = text.size();
    const std::string_view word = std::string_view(text).substr(from, comma - from);
    const auto* found =
        std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& w) { return w.word == word; });
    if (found == std::end(kWords) || gids.count == kMaxGids) break;
    ib |= found->kind == GidKind::Ib;
    gids.kind[gids.count++] = found->kind;
    from = comma + 1;
    if (comma == text.size() && (!ib || gids.count == 1)) return true;
  }
  error = "SOFTHCA_GIDS=\"" + shown(text) +
          "\" is not ib, or a list of at most 8 of v1, v2, v1-ipv4 and v2-ipv4 with commas between them";
  return false;
}

void make_gid(const FabricHeader& h, uint32_t port, uint32_t index, uint8_t* raw) {
  const PortEntry& entry = h.ports_table[port];
  switch (h.gids.kind[index % kMaxGids]) {
    case GidKind::Ib:
      put(raw, entry.gid_prefix.load(), entry.gid_id.load());
      return;
    case GidKind::V1Link:
    case GidKind::V2Link:
      put(raw, kLinkLocal, entry.gid_id.load());
      return;
    case GidKind::V1Ipv4:
    case GidKind::V2Ipv4:
      const uint32_t node = port_node(port);
      const uint32_t address =
          10u << 24 | rail_of(port) << 16 | node / kHostsPerBlock << 8 | (node % kHostsPerBlock + 1);
      put(raw, 0, uint64_t{0xffff} << 32 | address);
      return;
  }
}

uint16_t lid_of_gid(const FabricHeader& h, uint32_t from, uint32_t index, const uint8_t* dgid) {
  if (index >= h.gids.count) return kNoLid;
  const bool version_2 = is_version_2(h.gids.kind[index]);
  uint8_t raw[16];
  for (uint32_t node = 0; node < kMaxNodes; ++node) {
    const uint32_t port = port_index(node, port_device(from), port_number(from));
    for (uint32_t i = 0; i < h.gids.count; ++i) {
      if (is_version_2(h.gids.kind[i]) != version_2) continue;
      make_gid(h, port, i, raw);
      if (std::memcmp(raw, dgid, sizeof(raw)) == 0) return h.ports_table[port].lid.load();
    }
  }
  return kNoLid;
}

uint32_t index_of_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw) {
  uint8_t own[16];
  for (uint32_t i = 0; i < h.gids.count; ++i) {
    make_gid(h, port, i, own);
    if (std::memcmp(raw, own, sizeof(own)) == 0) return i;
  }
  return 0;
}

}  // namespace bfo::softhca
