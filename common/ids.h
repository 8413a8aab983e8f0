// SPDX-License-Identifier: BSD-3-Clause
//
// ids.h: names that travel on the wire, and small strong types.
//
// Nothing received is ever dereferenced (P5). A request is named by the slot it occupies in its
// owner's table, the generation of that slot (24 bits, slots are reused first-in first-out, hazard H17), and
// the round of its transfer (16 bits, compared with < and >, never wrapping: a request that reaches the last
// round ends with an error, H13).
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

namespace bfo {

using Round = uint16_t;
inline constexpr Round kFirstRound = 1;
inline constexpr Round kLastRound = 0xffff;

/// 64-bit wire name of a request: slot 24 | generation 24 | round 16, from the low bits up. 0 names nothing:
/// generations start at 1 and skip 0.
struct Name {
  static constexpr unsigned kSlotBits = 24;
  static constexpr unsigned kGenBits = 24;
  static constexpr uint32_t kSlotMask = (1u << kSlotBits) - 1;
  static constexpr uint32_t kGenMask = (1u << kGenBits) - 1;

  uint64_t value = 0;

  constexpr Name() = default;
  constexpr explicit Name(uint64_t v) : value(v) {}
  constexpr Name(uint32_t slot, uint32_t gen, Round round)
      : value(static_cast<uint64_t>(slot & kSlotMask) | static_cast<uint64_t>(gen & kGenMask) << kSlotBits |
              static_cast<uint64_t>(round) << (kSlotBits + kGenBits)) {}

  constexpr uint32_t slot() const { return static_cast<uint32_t>(value) & kSlotMask; }
  constexpr uint32_t gen() const { return static_cast<uint32_t>(value >> kSlotBits) & kGenMask; }
  constexpr Round round() const { return static_cast<Round>(value >> (kSlotBits + kGenBits)); }
  constexpr Name at(Round r) const { return Name(slot(), gen(), r); }
  constexpr bool same_request(Name o) const { return request() == o.request(); }
  /// The same in all rounds of one request.
  constexpr uint64_t request() const { return value & ((uint64_t{1} << (kSlotBits + kGenBits)) - 1); }
  constexpr explicit operator bool() const { return value != 0; }
  constexpr bool operator==(const Name&) const = default;
};
static_assert(sizeof(Name) == 8);

/// Name of one connection (rail) of two processes, equal on both sides: nonce pair and epoch. conn 0 = the
/// rail has no name (its BTL does not speak common/failover_btl.h): then it means "the rail this message came
/// in on".
struct RailName {
  uint64_t conn = 0;
  uint32_t epoch = 0;
  constexpr bool operator==(const RailName&) const = default;
};

}  // namespace bfo
