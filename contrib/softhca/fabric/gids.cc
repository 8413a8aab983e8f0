// SPDX-License-Identifier: BSD-3-Clause
//
// The GIDs, computed from the place of the port. Link-local ones are the EUI-64 of the port in fe80::/64,
// others 10.RAIL.16*VLAN.NODE+1 of a /24 and fd00:RAIL:VLAN::NODE+1 of a /64, as a Linux host with one
// interface per port, and one more for each VLAN, has them.
#include "contrib/softhca/fabric/gids.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/shown_text.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kLinkLocal = 0xfe80'0000'0000'0000u;
constexpr uint64_t kUniqueLocal = 0xfd00'0000'0000'0000u;
constexpr uint32_t kHostsPerBlock = 254;

void put(uint8_t* raw, uint64_t high, uint64_t low) {
  const uint64_t words[2] = {__builtin_bswap64(high), __builtin_bswap64(low)};
  std::memcpy(raw, words, sizeof(words));
}

uint32_t rail_of(uint32_t port) {
  return port_device(port) * kMaxPortsPerDevice + port_number(port);
}

void make_one(const FabricHeader& h, uint32_t port, GidKind kind, uint32_t vlan, uint8_t* raw) {
  const PortEntry& entry = h.ports_table[port];
  const uint32_t node = port_node(port);
  switch (kind) {
    case GidKind::kIb:
      return put(raw, entry.gid_prefix.load(), entry.gid_id.load());
    case GidKind::kV1Link:
    case GidKind::kV2Link:
      return put(raw, kLinkLocal, entry.gid_id.load());
    case GidKind::kV1Ipv4:
    case GidKind::kV2Ipv4: {
      const uint32_t block = vlan << 4 | node / kHostsPerBlock;
      const uint32_t address = 10u << 24 | rail_of(port) << 16 | block << 8 | (node % kHostsPerBlock + 1);
      return put(raw, 0, uint64_t{0xffff} << 32 | address);
    }
    case GidKind::kV1Ipv6:
    case GidKind::kV2Ipv6:
      return put(raw, kUniqueLocal | uint64_t{rail_of(port)} << 32 | uint64_t{vlan} << 16, node + 1);
    case GidKind::kNone:
      return put(raw, 0, 0);
  }
}

/// What can speak with each other: addresses of one family and scope.
enum class Family : uint8_t { kNothing, kLink, kIpv4, kIpv6 };

Family family_of(const uint8_t* raw) {
  static constexpr uint8_t kNothing[16] = {};
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(raw, kNothing, sizeof(kNothing)) == 0) return Family::kNothing;
  if (std::memcmp(raw, kMapped, sizeof(kMapped)) == 0) return Family::kIpv4;
  return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? Family::kLink : Family::kIpv6;
}

bool read_place(std::string_view text, GidPlan::Part& part) {
  while (!text.empty()) {
    const size_t slash = std::min(text.find('/'), text.size());
    const std::string_view key = text.substr(0, slash);
    text.remove_prefix(std::min(slash + 1, text.size()));
    const bool node = key.starts_with("node=");
    if (!node && !key.starts_with("device=")) return false;
    const std::string digits(key.substr(key.find('=') + 1));
    uint32_t& number = node ? part.node : part.device;
    const uint32_t below = node ? kMaxNodes : kMaxDevices;
    if (number != kNone || digits.empty() || digits.size() > 3 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      return false;
    number = static_cast<uint32_t>(std::stoul(digits));
    if (number >= below) return false;
  }
  return part.node != kNone || part.device != kNone;
}

bool read_plan(std::string_view text, GidPlan& plan) {
  plan.parts.clear();
  const size_t first = std::min(text.find(';'), text.size());
  if (!read_gid_list(text.substr(0, first), plan.all)) return false;
  const bool ib = plan.all.kind[0] == GidKind::kIb;
  for (size_t from = first; from < text.size();) {
    const size_t end = std::min(text.find(';', from + 1), text.size());
    const std::string_view words = text.substr(from + 1, end - from - 1);
    const size_t colon = words.find(':');
    GidPlan::Part part;
    if (ib || colon == std::string_view::npos || plan.parts.size() == kMaxPorts) return false;
    if (!read_place(words.substr(0, colon), part) || !read_gid_list(words.substr(colon + 1), part.list) ||
        part.list.kind[0] == GidKind::kIb)
      return false;
    plan.parts.push_back(part);
    from = end;
  }
  return true;
}

}  // namespace

bool read_gids(const std::string& text, GidPlan& plan, std::string& error) {
  if (read_plan(text, plan)) return true;
  error = "SOFTHCA_GIDS=\"" + shown(text) + "\" is not " + std::string(kGidWords) +
          "; then, each behind a semicolon, lists of single ports such as node=1:v1,v2 or node=1/device=0:v2";
  return false;
}

const GidList& gids_of(const GidPlan& plan, uint32_t node, uint32_t device) {
  const GidList* list = &plan.all;
  for (const GidPlan::Part& part : plan.parts) {
    const bool here =
        (part.node == kNone || part.node == node) && (part.device == kNone || part.device == device);
    if (here) list = &part.list;
  }
  return *list;
}

void make_gid(const FabricHeader& h, uint32_t port, uint32_t index, uint8_t* raw) {
  const GidList gids = gids_of(h, port);
  index %= kMaxGids;
  make_one(h, port, gids.kind[index], gids.vlan[index], raw);
}

uint32_t interface_of_gid(const FabricHeader& h, uint32_t port, uint32_t index) {
  constexpr uint32_t kFirst = 100;  // no interface of this machine that a program would look at
  return kFirst + rail_of(port) * (kMostVlan + 1) + gids_of(h, port).vlan[index % kMaxGids];
}

bool has_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw, uint32_t from, uint32_t index) {
  const GidList own = gids_of(h, from);
  const GidList theirs = gids_of(h, port);
  for (uint32_t i = 0; i < theirs.count; ++i) {
    if (theirs.kind[i] == GidKind::kNone || theirs.vlan[i] != own.vlan[index % kMaxGids] ||
        is_version_2(theirs.kind[i]) != is_version_2(own.kind[index % kMaxGids]))
      continue;
    uint8_t there[16];
    make_one(h, port, theirs.kind[i], theirs.vlan[i], there);
    if (std::memcmp(there, raw, sizeof(there)) == 0) return true;
  }
  return false;
}

uint16_t lid_of_gid(const FabricHeader& h, uint32_t from, uint32_t index, const uint8_t* dgid, int* why) {
  const GidList own = gids_of(h, from);
  if (why != nullptr) *why = EINVAL;
  if (index >= own.count || own.kind[index] == GidKind::kNone) return kNoLid;
  uint8_t source[16];
  make_gid(h, from, index, source);
  if (why != nullptr) *why = ENETUNREACH;
  if (family_of(source) != family_of(dgid)) return kNoLid;
  if (why != nullptr) *why = ETIMEDOUT;  // the neighbour does not answer
  for (uint32_t node = 0; node < kMaxNodes; ++node) {
    const uint32_t port = port_index(node, port_device(from), port_number(from));
    if (has_gid(h, port, dgid, from, index)) return h.ports_table[port].lid.load();
  }
  return kNoLid;
}

uint32_t index_of_gid(const FabricHeader& h, uint32_t port, const uint8_t* raw) {
  uint8_t own[16];
  const uint32_t count = gids_of(h, port).count;
  for (uint32_t i = 0; i < count; ++i) {
    make_gid(h, port, i, own);
    if (std::memcmp(raw, own, sizeof(own)) == 0) return i;
  }
  return 0;
}

}  // namespace bfo::softhca
