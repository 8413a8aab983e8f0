// SPDX-License-Identifier: BSD-3-Clause
//
// gids.h: the addresses that a port may use, and which of them is used towards which address of a peer. A
// process publishes all of its ports' (modex.h). Both ends choose the pair by the same rule from the same two
// lists, so nobody has to ask; from then on each datagram says what its sender uses, because a table changes
// while a job runs. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/gid.h"

namespace bfo::engine {

inline constexpr size_t kMaxGids = 8;  ///< addresses of a port that are used and published
inline constexpr uint8_t kNoGid = 0xff;

/// The usable addresses of a port, best first.
struct GidTable {
  uint8_t count = 0;
  GidEntry entries[kMaxGids];

  /// The entry at `index` of the device's table; nullptr: it is not usable.
  const GidEntry* at(int index) const;
  /// The address `gid` of this type.
  const GidEntry* find(const ibv_gid& gid, GidType type) const;
};
bool operator==(const GidTable& a, const GidTable& b);

/// What a device lists, as a table: with `fixed` >= 0 the entry with that index alone. Null entries are no
/// addresses. A link-local address of a VLAN says nothing about which VLAN it is: such ones are left out,
/// those of the interface that the first entry belongs to stay. Of more than kMaxGids the best of each type
/// and kind come first.
GidTable usable_gids(const GidEntry* entries, size_t count, int fixed);

/// An address of a port as its peers know it.
struct PublishedGid {
  ibv_gid gid{};
  GidType type = GidType::kUnknown;
  uint8_t subnet_bits = 0;
  /// How many ports of the process before this one have an address in the same subnet (PortPlace::ordinal).
  uint8_t ordinal = 0;
};

/// Addresses speak with each other when they are of one RoCE version, as far as versions are known.
bool same_type(GidType a, GidType b);

/// How two ports are connected, as far as their addresses tell.
struct Relation {
  bool shared = false;  ///< they have an IPv4 or global IPv6 address each in one subnet
  bool apart = false;   ///< they have such of one kind, but in no common subnet: different networks
};
Relation relation_of(const PublishedGid* ours, size_t our_count, const PublishedGid* theirs,
                     size_t their_count);

/// A pair of addresses, by their place in the two lists.
struct GidPair {
  uint8_t ours = kNoGid;
  uint8_t theirs = kNoGid;
  bool found() const { return ours != kNoGid; }
};

/// The pair that two ports use: of one type and one kind. Version 2 before version 1, IPv4 before global IPv6
/// before link-local; in one subnet, or, when there is no such pair, over routers (version 2 only). Between
/// networks that are apart link-local addresses are of no use. The same pair seen from both sides.
GidPair choose_pair(const PublishedGid* ours, size_t our_count, const PublishedGid* theirs,
                    size_t their_count);

/// Which of `ours` to use towards the one address `to`, by the same rule. nullptr: none is of its type. When
/// none is of its kind the best one: the device will refuse it, and say why.
const GidEntry* own_gid_for(const GidTable& ours, const ibv_gid& to, GidType type);
/// True when own_gid_for() is an address of the same kind.
bool reaches(const GidTable& ours, const ibv_gid& to, GidType type);

/// The addresses of `theirs` that `ours` can speak with, best pair first, as indices into `out`, which has
/// room for kMaxGids. Their number.
size_t rank_theirs(const GidTable& ours, const PublishedGid* theirs, size_t their_count, uint8_t* out);

/// "10.0.0.1/24", "fe80::1 (v1)": for sentences.
void gid_text(const PublishedGid& gid, char* text, size_t size);
/// All of them with commas; "no address".
void gids_text(const PublishedGid* gids, size_t count, char* text, size_t size);

}  // namespace bfo::engine
