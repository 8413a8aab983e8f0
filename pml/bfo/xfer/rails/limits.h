// SPDX-License-Identifier: BSD-3-Clause
//
// limits.h: makes consistent limits out of those that a BTL reports. They are parameters that users set one
// by one, so none follows from another. A message that is longer than its rail takes would be refused for
// ever; so every size that the engine posts is bounded here.
#pragma once

#include <algorithm>
#include <cstddef>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

/// A rail that takes less than this in one piece cannot be used: no room for a header and an element.
inline constexpr size_t kLeastPost = 64;

/// Shorter segments of RDMA cost more than a copy. A rail that allows no longer ones does no RDMA.
inline constexpr size_t kLeastRdma = 256;

/// Longest message, header included, that a BTL takes: the larger of its two buffer sizes.
constexpr size_t post_limit(size_t eager_limit, size_t max_send_size) {
  return eager_limit > max_send_size ? eager_limit : max_send_size;
}

/// The limits of one rail, each of which can be kept whatever the others are. `in.post_limit` is at least
/// kLeastPost, or 0: then it follows from eager_limit and max_send_size.
constexpr RailLimits keepable(const RailLimits& in) {
  RailLimits l = in;
  if (l.post_limit == 0) l.post_limit = post_limit(l.eager_limit, l.max_send_size);
  l.eager_limit = std::min(l.eager_limit, l.post_limit);
  l.inline_limit = std::min(l.inline_limit, l.eager_limit);
  l.blocking_limit = std::clamp(l.blocking_limit, l.inline_limit, l.post_limit);
  // Room for a header, and for an element of any type behind it.
  const size_t least = std::min(l.post_limit, core::kMaxFixedHdr);
  l.max_send_size = std::clamp(l.max_send_size, least, l.post_limit);
  l.rndv_eager_limit = std::clamp(l.rndv_eager_limit, sizeof(core::RndvHdr), l.post_limit);
  if (l.get_alignment == 0) l.get_alignment = 1;
  l.get_limit -= l.get_limit % l.get_alignment;
  l.rdma_frag_size = std::max(l.rdma_frag_size - l.rdma_frag_size % l.get_alignment, l.get_alignment);
  // PUT is the longest header of fixed length; RGET names at least the rail that carries it.
  if (l.put_limit < kLeastRdma || l.post_limit < sizeof(core::PutHdr)) l.put_limit = 0;
  if (l.get_limit < kLeastRdma || l.post_limit < core::rget_size(1u)) l.get_limit = 0;
  return l;
}

/// Shortest message that is longer than an eager one.
constexpr size_t beyond_eager(size_t eager_limit) {
  return eager_limit > sizeof(core::MatchHdr) ? eager_limit - sizeof(core::MatchHdr) + 1 : 1;
}

/// Number of entries of `entry` bytes that fit behind a header of `header` bytes on such a rail.
constexpr size_t entries_that_fit(const RailLimits& l, size_t header, size_t entry) {
  return l.post_limit < header ? 0 : (l.post_limit - header) / entry;
}

}  // namespace bfo::xfer
