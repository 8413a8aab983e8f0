// SPDX-License-Identifier: BSD-3-Clause
//
// gid.cc: see gid.h.
#include "btl/verbs/engine/device/gid.h"

#include <algorithm>
#include <cstring>

namespace bfo::engine {
namespace {

constexpr uint8_t kGidBits = 128;

int type_rank(GidType type) {
  switch (type) {
    case GidType::kRoceV2:
      return 0;
    case GidType::kUnknown:
      return 1;
    default:
      return 2;
  }
}

int kind_rank(GidKind kind) {
  switch (kind) {
    case GidKind::kIpv4:
      return 0;
    case GidKind::kGlobal:
      return 1;
    default:
      return 2;
  }
}

ibv_gid subnet_of(const ibv_gid& gid, uint8_t bits) {
  ibv_gid subnet{};
  for (size_t i = 0; i < sizeof gid.raw; ++i) {
    const int left = std::clamp(int{bits} - static_cast<int>(8 * i), 0, 8);
    subnet.raw[i] = static_cast<uint8_t>(gid.raw[i] & (0xff00 >> left));
  }
  return subnet;
}

}  // namespace

GidKind gid_kind(const ibv_gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (memcmp(gid.raw, kMapped, sizeof kMapped) == 0) return GidKind::kIpv4;
  if (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80) {
    return gid.global.interface_id == 0 ? GidKind::kNull : GidKind::kLinkLocal;
  }
  const ibv_gid null{};
  return memcmp(gid.raw, null.raw, sizeof gid.raw) == 0 ? GidKind::kNull : GidKind::kGlobal;
}

bool better_gid(const GidEntry& a, const GidEntry& b) {
  if (type_rank(a.type) != type_rank(b.type)) return type_rank(a.type) < type_rank(b.type);
  const int kind_a = kind_rank(gid_kind(a.gid));
  const int kind_b = kind_rank(gid_kind(b.gid));
  if (kind_a != kind_b) return kind_a < kind_b;
  if ((a.subnet_bits == kGidBits) != (b.subnet_bits == kGidBits)) return b.subnet_bits == kGidBits;
  const ibv_gid net_a = subnet_of(a.gid, a.subnet_bits);
  const ibv_gid net_b = subnet_of(b.gid, b.subnet_bits);
  const int order = memcmp(net_a.raw, net_b.raw, sizeof net_a.raw);
  if (order != 0) return order < 0;
  const int host = memcmp(a.gid.raw, b.gid.raw, sizeof a.gid.raw);
  return host != 0 ? host < 0 : a.index < b.index;
}

bool same_subnet(const ibv_gid& a, uint8_t a_bits, const ibv_gid& b, uint8_t b_bits) {
  if (a_bits != b_bits) return false;
  const ibv_gid net_a = subnet_of(a, a_bits);
  const ibv_gid net_b = subnet_of(b, b_bits);
  return memcmp(net_a.raw, net_b.raw, sizeof net_a.raw) == 0;
}

GidType gid_type_of(const char* text) {
  if (strncmp(text, "RoCE v2", 7) == 0) return GidType::kRoceV2;
  // The kernel has one text for both, since RoCE v1 uses the InfiniBand header as it is.
  if (strncmp(text, "IB/RoCE v1", 10) == 0 || strncmp(text, "RoCE v1", 7) == 0) return GidType::kRoceV1;
  return GidType::kUnknown;
}

}  // namespace bfo::engine
