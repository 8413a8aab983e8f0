// SPDX-License-Identifier: BSD-3-Clause
//
// gids.cc: reads the GID table of a port: in one call where the library can, else entry by entry, with the
// types from sysfs; and the netmasks of its IP addresses from the system's interfaces.
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>

#include "btl/verbs/glue/discover.h"

namespace bfo::verbs {
namespace {

using engine::GidEntry;
using engine::GidKind;
using engine::GidType;

/// Of rdma-core 32 and later; looked up, so that the component loads with older ones.
using QueryTable = ssize_t (*)(ibv_context*, ibv_gid_entry*, size_t, uint32_t, size_t);

GidType type_of(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::kRoceV2;
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::kRoceV1;
    default:
      return GidType::kInfiniband;
  }
}

bool read_table(ibv_context* context, uint8_t port, const ibv_port_attr& attr,
                std::vector<GidEntry>* entries) {
  const auto query = reinterpret_cast<QueryTable>(dlsym(RTLD_DEFAULT, "_ibv_query_gid_table"));
  if (query == nullptr) return false;
  constexpr size_t kPorts = 8;  // the call fills in all ports of the device
  std::vector<ibv_gid_entry> table(kPorts * std::max<size_t>(static_cast<size_t>(attr.gid_tbl_len), 256));
  const ssize_t count = query(context, table.data(), table.size(), 0, sizeof table[0]);
  if (count < 0) return false;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& from = table[static_cast<size_t>(i)];
    if (from.port_num != port) continue;
    GidEntry entry;
    entry.index = static_cast<int>(from.gid_index);
    entry.type = type_of(from.gid_type);
    entry.interface = from.ndev_ifindex;
    entry.gid = from.gid;
    entries->push_back(entry);
  }
  return true;
}

GidType type_in_sysfs(const ibv_device& device, uint8_t port, int index) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/ports/%u/gid_attrs/types/%d", device.ibdev_path, unsigned{port}, index);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return GidType::kUnknown;
  char text[64] = "";
  const bool read = fgets(text, sizeof text, file) != nullptr;
  fclose(file);
  return read ? engine::gid_type_of(text) : GidType::kUnknown;
}

void read_one_by_one(ibv_context* context, uint8_t port, const ibv_port_attr& attr,
                     std::vector<GidEntry>* entries) {
  for (int index = 0; index < attr.gid_tbl_len; ++index) {
    GidEntry entry;
    entry.index = index;
    if (ibv_query_gid(context, port, index, &entry.gid) != 0) continue;
    if (engine::gid_kind(entry.gid) == GidKind::kNull) continue;
    entry.type = type_in_sysfs(*context->device, port, index);
    entries->push_back(entry);
  }
}

unsigned bits_of(const uint8_t* mask, size_t bytes) {
  unsigned bits = 0;
  for (size_t i = 0; i < bytes; ++i) bits += static_cast<unsigned>(std::popcount(mask[i]));
  return bits;
}

/// The leading bits that name the subnet of an IP address of this host; 0: it is not one.
uint8_t mask_bits(const ifaddrs* interfaces, const ibv_gid& gid, GidKind kind) {
  constexpr size_t kMapped = 12;  // an IPv4 address stands behind so many bytes
  for (const ifaddrs* at = interfaces; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_netmask == nullptr) continue;
    if (kind == GidKind::kIpv4 && at->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      const auto* mask = reinterpret_cast<const sockaddr_in*>(at->ifa_netmask);
      if (memcmp(gid.raw + kMapped, &address->sin_addr, sizeof address->sin_addr) != 0) continue;
      return static_cast<uint8_t>(8 * kMapped +
                                  bits_of(reinterpret_cast<const uint8_t*>(&mask->sin_addr), 4));
    }
    if (kind == GidKind::kGlobal && at->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      const auto* mask = reinterpret_cast<const sockaddr_in6*>(at->ifa_netmask);
      if (memcmp(gid.raw, &address->sin6_addr, sizeof gid.raw) != 0) continue;
      return static_cast<uint8_t>(bits_of(mask->sin6_addr.s6_addr, sizeof mask->sin6_addr.s6_addr));
    }
  }
  return 0;
}

void fill_subnets(std::vector<GidEntry>* entries) {
  constexpr uint8_t kUsual = 64;       // of IPv6
  constexpr uint8_t kUsualIpv4 = 120;  // an address of a name space that this process is not in: as if /24
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) interfaces = nullptr;
  for (GidEntry& entry : *entries) {
    const GidKind kind = engine::gid_kind(entry.gid);
    entry.subnet_bits = mask_bits(interfaces, entry.gid, kind);
    if (entry.subnet_bits == 0) entry.subnet_bits = kind == GidKind::kIpv4 ? kUsualIpv4 : kUsual;
  }
  if (interfaces != nullptr) freeifaddrs(interfaces);
}

}  // namespace

std::vector<GidEntry> read_gids(ibv_context* context, uint8_t port, const ibv_port_attr& attr) {
  std::vector<GidEntry> entries;
  if (!read_table(context, port, attr, &entries)) read_one_by_one(context, port, attr, &entries);
  if (attr.link_layer == IBV_LINK_LAYER_ETHERNET) fill_subnets(&entries);
  return entries;
}

engine::GidTable read_usable_gids(ibv_context* context, uint8_t port, const ibv_port_attr& attr, int fixed) {
  const std::vector<GidEntry> entries = read_gids(context, port, attr);
  return engine::usable_gids(entries.data(), entries.size(), fixed);
}

}  // namespace bfo::verbs
