// SPDX-License-Identifier: BSD-3-Clause
//
// gids.cc: see gids.h.
#include "btl/verbs/engine/device/gids.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace bfo::engine {
namespace {

bool same_gid(const ibv_gid& a, const ibv_gid& b) {
  return memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

/// An address that somebody gave the port, in a subnet that tells something.
bool assigned(const ibv_gid& gid) {
  const GidKind kind = gid_kind(gid);
  return kind == GidKind::kIpv4 || kind == GidKind::kGlobal;
}

GidEntry entry_of(const PublishedGid& gid) {
  GidEntry entry;
  entry.type = gid.type;
  entry.subnet_bits = gid.subnet_bits;
  entry.gid = gid.gid;
  return entry;
}

PublishedGid published(const GidEntry& entry) {
  return {entry.gid, entry.type, entry.subnet_bits, 0};
}

/// Routers carry IP packets: not those of version 1.
bool routed(const PublishedGid& a, const PublishedGid& b) {
  return assigned(a.gid) && a.type != GidType::kRoceV1 && b.type != GidType::kRoceV1;
}

/// The worse of two types decides on a pair, so that both sides see one rank.
GidEntry seen_as(const PublishedGid& gid, const PublishedGid& other) {
  GidEntry entry = entry_of(gid);
  if (gid.type == GidType::kUnknown) entry.type = other.type;
  return entry;
}

enum class Way : uint8_t { kNone, kSubnet, kRouted };

Way way_between(const PublishedGid& a, const PublishedGid& b, const Relation& relation) {
  if (!same_type(a.type, b.type) || gid_kind(a.gid) != gid_kind(b.gid)) return Way::kNone;
  if (same_subnet(a.gid, a.subnet_bits, b.gid, b.subnet_bits))
    return assigned(a.gid) || !relation.apart ? Way::kSubnet : Way::kNone;
  return routed(a, b) ? Way::kRouted : Way::kNone;
}

/// True when the entry of the port's own interface, or of no known one, is meant.
uint32_t base_interface(const GidEntry* entries, size_t count) {
  const GidEntry* first = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const bool named = entries[i].interface != 0 && gid_kind(entries[i].gid) != GidKind::kNull;
    if (named && (first == nullptr || entries[i].index < first->index)) first = &entries[i];
  }
  return first == nullptr ? 0 : first->interface;
}

/// True when an earlier entry of the sorted list is of the same type and kind.
bool repeats(const GidEntry* sorted, size_t which) {
  for (size_t i = 0; i < which; ++i) {
    if (sorted[i].type == sorted[which].type && gid_kind(sorted[i].gid) == gid_kind(sorted[which].gid))
      return true;
  }
  return false;
}

}  // namespace

const GidEntry* GidTable::at(int index) const {
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].index == index) return &entries[i];
  }
  return nullptr;
}

const GidEntry* GidTable::find(const ibv_gid& gid, GidType type) const {
  for (size_t i = 0; i < count; ++i) {
    if (same_gid(entries[i].gid, gid) && same_type(entries[i].type, type)) return &entries[i];
  }
  return nullptr;
}

bool operator==(const GidTable& a, const GidTable& b) {
  return std::equal(a.entries, a.entries + a.count, b.entries, b.entries + b.count,
                    [](const GidEntry& x, const GidEntry& y) {
                      return x.index == y.index && x.type == y.type && x.subnet_bits == y.subnet_bits &&
                             same_gid(x.gid, y.gid);
                    });
}

GidTable usable_gids(const GidEntry* entries, size_t count, int fixed) {
  constexpr size_t kRoom = 256;
  GidEntry sorted[kRoom];
  size_t found = 0;
  const uint32_t base = base_interface(entries, count);
  for (size_t i = 0; i < count && found < kRoom; ++i) {
    const GidKind kind = gid_kind(entries[i].gid);
    const bool elsewhere =
        kind == GidKind::kLinkLocal && entries[i].interface != 0 && entries[i].interface != base;
    if (kind == GidKind::kNull || (fixed >= 0 ? entries[i].index != fixed : elsewhere)) continue;
    sorted[found++] = entries[i];
  }
  std::sort(sorted, sorted + found, better_gid);
  GidTable table;
  bool taken[kRoom] = {};
  size_t places = 0;
  for (const bool every : {false, true}) {
    for (size_t i = 0; i < found && places < kMaxGids; ++i) {
      if (taken[i] || (!every && repeats(sorted, i))) continue;
      taken[i] = true;
      ++places;
    }
  }
  for (size_t i = 0; i < found; ++i) {
    if (taken[i]) table.entries[table.count++] = sorted[i];
  }
  return table;
}

bool same_type(GidType a, GidType b) {
  return a == b || a == GidType::kUnknown || b == GidType::kUnknown;
}

Relation relation_of(const PublishedGid* ours, size_t our_count, const PublishedGid* theirs,
                     size_t their_count) {
  Relation relation;
  bool one_kind = false;
  for (size_t i = 0; i < our_count; ++i) {
    for (size_t k = 0; k < their_count; ++k) {
      const PublishedGid& a = ours[i];
      const PublishedGid& b = theirs[k];
      if (!assigned(a.gid) || gid_kind(a.gid) != gid_kind(b.gid)) continue;
      one_kind = true;
      if (same_type(a.type, b.type) && same_subnet(a.gid, a.subnet_bits, b.gid, b.subnet_bits))
        relation.shared = true;
    }
  }
  relation.apart = one_kind && !relation.shared;
  return relation;
}

GidPair choose_pair(const PublishedGid* ours, size_t our_count, const PublishedGid* theirs,
                    size_t their_count) {
  const Relation relation = relation_of(ours, our_count, theirs, their_count);
  GidPair best;
  Way best_way = Way::kNone;
  for (size_t i = 0; i < our_count; ++i) {
    for (size_t k = 0; k < their_count; ++k) {
      const Way way = way_between(ours[i], theirs[k], relation);
      if (way == Way::kNone || (best_way == Way::kSubnet && way == Way::kRouted)) continue;
      const GidEntry mine = seen_as(ours[i], theirs[k]);
      const GidEntry yours = seen_as(theirs[k], ours[i]);
      if (best_way == way) {
        // In one subnet both order the pairs by it; then each side's address counts by itself.
        const GidEntry best_mine = seen_as(ours[best.ours], theirs[best.theirs]);
        const GidEntry best_yours = seen_as(theirs[best.theirs], ours[best.ours]);
        const bool mine_first = better_gid(mine, best_mine);
        const bool mine_later = better_gid(best_mine, mine);
        if (mine_later || (!mine_first && !better_gid(yours, best_yours))) continue;
      }
      best = {static_cast<uint8_t>(i), static_cast<uint8_t>(k)};
      best_way = way;
    }
  }
  return best;
}

const GidEntry* own_gid_for(const GidTable& ours, const ibv_gid& to, GidType type) {
  const GidEntry* best = nullptr;
  int best_rank = 0;
  for (size_t i = 0; i < ours.count; ++i) {  // best first: of equal rank the first one
    const GidEntry& own = ours.entries[i];
    if (!same_type(own.type, type)) continue;
    const bool kind = gid_kind(own.gid) == gid_kind(to);
    const bool near = kind && same_subnet(own.gid, own.subnet_bits, to, own.subnet_bits);
    const int rank = near ? 3 : kind ? 2 : 1;
    if (rank > best_rank) best = &own;
    best_rank = std::max(best_rank, rank);
  }
  return best;
}

bool reaches(const GidTable& ours, const ibv_gid& to, GidType type) {
  const GidEntry* const own = own_gid_for(ours, to, type);
  return own != nullptr && gid_kind(own->gid) == gid_kind(to);
}

size_t rank_theirs(const GidTable& ours, const PublishedGid* theirs, size_t their_count, uint8_t* out) {
  PublishedGid own[kMaxGids];
  for (size_t i = 0; i < ours.count; ++i) own[i] = published(ours.entries[i]);
  PublishedGid left[kMaxGids];
  uint8_t names[kMaxGids];
  size_t count = std::min(their_count, kMaxGids);
  for (size_t i = 0; i < count; ++i) {
    left[i] = theirs[i];
    names[i] = static_cast<uint8_t>(i);
  }
  size_t ranked = 0;
  while (count != 0) {
    const GidPair pair = choose_pair(own, ours.count, left, count);
    if (!pair.found()) break;
    out[ranked++] = names[pair.theirs];
    std::copy(left + pair.theirs + 1, left + count, left + pair.theirs);
    std::copy(names + pair.theirs + 1, names + count, names + pair.theirs);
    --count;
  }
  return ranked;
}

void gid_text(const PublishedGid& gid, char* text, size_t size) {
  char address[INET6_ADDRSTRLEN] = "";
  const bool ipv4 = gid_kind(gid.gid) == GidKind::kIpv4;
  inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.gid.raw + (ipv4 ? 12 : 0), address, sizeof address);
  const unsigned bits = gid.subnet_bits - (ipv4 ? std::min<unsigned>(gid.subnet_bits, 96) : 0u);
  const char* const type = gid.type == GidType::kRoceV1 ? " (RoCE v1)" : "";
  snprintf(text, size, "%s/%u%s", address, bits, type);
}

void gids_text(const PublishedGid* gids, size_t count, char* text, size_t size) {
  snprintf(text, size, "no address");
  size_t used = 0;
  for (size_t i = 0; i < count && used < size; ++i) {
    char one[80];
    gid_text(gids[i], one, sizeof one);
    const int written = snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", one);
    used += written > 0 ? static_cast<size_t>(written) : 0;
  }
}

}  // namespace bfo::engine
