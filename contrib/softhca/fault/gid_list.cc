// SPDX-License-Identifier: BSD-3-Clause
//
// See gid_list.h.
#include "contrib/softhca/fault/gid_list.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace bfo::softhca {
namespace {

constexpr struct {
  std::string_view word;
  GidKind kind;
} kWords[] = {{"ib", GidKind::kIb},          {"v1", GidKind::kV1Link},      {"v2", GidKind::kV2Link},
              {"v1-ipv4", GidKind::kV1Ipv4}, {"v2-ipv4", GidKind::kV2Ipv4}, {"v1-ipv6", GidKind::kV1Ipv6},
              {"v2-ipv6", GidKind::kV2Ipv6}, {"-", GidKind::kNone}};

constexpr uint32_t kKindBits = 4;
constexpr uint8_t kKindMask = (1u << kKindBits) - 1;

/// "@5" behind a word; nothing is no VLAN.
bool read_vlan(std::string_view text, GidKind kind, uint8_t& vlan) {
  vlan = 0;
  if (text.empty()) return true;
  text.remove_prefix(1);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), vlan);
  return code == std::errc{} && end == text.data() + text.size() && vlan >= 1 && vlan <= kMostVlan &&
         kind != GidKind::kIb && kind != GidKind::kNone;
}

}  // namespace

bool read_gid_list(std::string_view text, GidList& gids) {
  gids = GidList{};
  gids.count = 0;
  bool ib = false;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    std::string_view word = text.substr(from, comma - from);
    const std::string_view vlan = word.substr(std::min(word.find('@'), word.size()));
    word.remove_suffix(vlan.size());
    const auto* found =
        std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& w) { return w.word == word; });
    if (found == std::end(kWords) || gids.count == kMaxGids) return false;
    if (!read_vlan(vlan, found->kind, gids.vlan[gids.count])) return false;
    ib |= found->kind == GidKind::kIb;
    gids.kind[gids.count++] = found->kind;
    from = comma + 1;
  }
  return !ib || gids.count == 1;
}

std::string write_gid_list(const GidList& gids) {
  std::string text;
  for (uint32_t i = 0; i < gids.count; ++i) {
    const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                     [&](const auto& w) { return w.kind == gids.kind[i]; });
    text += (i == 0 ? "" : ",") + std::string(found->word);
    if (gids.vlan[i] != 0) text += "@" + std::to_string(gids.vlan[i]);
  }
  return text;
}

uint64_t pack(const GidList& gids) {
  uint64_t packed = 0;
  for (uint32_t i = 0; i < kMaxGids; ++i) {
    const GidKind kind = i < gids.count ? gids.kind[i] : GidKind::kNone;
    const uint32_t vlan = i < gids.count ? gids.vlan[i] : 0;
    packed |= uint64_t{static_cast<uint32_t>(kind) | vlan << kKindBits} << 8 * i;
  }
  return packed;
}

GidList unpack(uint64_t packed) {
  GidList gids;
  gids.count = 1;
  for (uint32_t i = 0; i < kMaxGids; ++i) {
    const auto byte = static_cast<uint8_t>(packed >> 8 * i);
    gids.kind[i] =
        static_cast<GidKind>(std::min<uint8_t>(byte & kKindMask, static_cast<uint8_t>(GidKind::kNone)));
    gids.vlan[i] = byte >> kKindBits;
    if (gids.kind[i] != GidKind::kNone) gids.count = i + 1;
  }
  return gids;
}

}  // namespace bfo::softhca
