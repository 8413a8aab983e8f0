// SPDX-License-Identifier: BSD-3-Clause
//
// segments.h: into what a long message is cut that is moved by READs or writes.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::xfer {

/// Messages below are one segment: a second rail would save less time than a second segment costs. So are
/// those of up to kMaxResent bytes that are read over a rail that keeps up (single.h).
inline constexpr std::uint64_t kUncut = 65536;
inline constexpr std::uint64_t kMaxResent = 1 << 20;

/// Size of one segment of a message of `length` bytes over `rails` rails, each with `depth` of them under
/// way: all of a short one, else an equal share for each, in segments that are neither tiny nor longer than
/// `limit`, which the rail wants. What is in flight on a rail that fails is sent again over the others, so
/// all segments in flight on one rail together are at most kMaxResent or 2 % of the message (P4).
constexpr std::uint64_t segment_size(std::uint64_t length, unsigned rails, std::uint64_t limit,
                                     const std::uint32_t& depth) {
  constexpr std::uint64_t kAlign = 4096;
  constexpr std::uint64_t kLeast = 16384;
  if (rails <= 1 || length < kUncut) return length < limit ? length : limit;
  std::uint64_t n = (length / rails + kAlign - 1) / kAlign * kAlign;
  const std::uint64_t at_risk = length / 50 > kMaxResent ? length / 50 : kMaxResent;
  const std::uint64_t share = at_risk / (depth ? depth : 1) / kAlign * kAlign;
  if (n > share) n = share;
  if (n < kLeast) n = kLeast;
  return n < limit ? n : limit;
}

/// Size of a READ of such a message while further ones are queued behind it, if `depth` allows that. The
/// rails get their first READs one after the other, and end their last ones so, each later by the processor's
/// work for one READ. In a thirty-second of what a rail moves that hardly counts; shorter than this a READ
/// costs too much.
constexpr std::uint64_t queued_size(std::uint64_t length, unsigned rails, std::uint64_t limit,
                                    const std::uint32_t& depth) {
  constexpr std::uint64_t kLeast = 131072;
  const std::uint64_t n = segment_size(length, rails, limit, depth);
  return rails <= 1 || depth <= 1 ? n : std::min(n, std::max(kLeast, length / rails / 32 / 4096 * 4096));
}

/// What a message may have in flight in READs over its only rail, in segments as long as the rail wants. With
/// one rail P4 has nothing to keep: a message whose rail is lost waits for its return, much longer than it
/// takes to read these bytes again. And each READ costs some microseconds.
inline constexpr std::uint64_t kSegmentsAlone = 16;

constexpr std::uint64_t most_over_one_rail(std::uint64_t limit) {
  return limit <= UINT64_MAX / kSegmentsAlone ? limit * kSegmentsAlone : limit;
}

/// Size of a READ of a message of `length` bytes over its only rail: all that may be in flight; of a longer
/// message half of that. A multiple of `limit`, and so of the rail's alignment.
constexpr std::uint64_t size_over_one_rail(std::uint64_t length, std::uint64_t limit) {
  const std::uint64_t most = most_over_one_rail(limit);
  if (length <= most) return length;
  return most > limit ? most / 2 : limit;
}

}  // namespace bfo::xfer
