// SPDX-License-Identifier: BSD-3-Clause
//
// read_plan.h: how long the READs of a message are that several rails share, or its only rail reads in
// pieces, and how many of them are in flight. `depth`: how many a rail may have queued.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <algorithm>
#include <cstdint>

#include "pml/bfo/xfer/protocol/rndv_state.h"
#include "pml/bfo/xfer/protocol/segments.h"

namespace bfo::xfer {

template <class P>
struct ReadPlan {
  /// The sender's keys have come. `keep_up`: all rails that they are for do; `rail` is one of them.
  static void choose(RecvRndv<P>& d, std::uint32_t depth, bool keep_up, const Rail<P>* rail) {
    if (d.in_flight != 0) return late(d);
    d.reads = Reads::kQueued;
    if (!keep_up) return;
    const std::uint64_t usual = usual_size(*rail);
    if (queued_size(d.want, d.n_keys, usual, depth) < std::min(kMaxResent, usual)) d.reads = Reads::kLong;
  }
  /// A rail of this message does not keep up, or has failed.
  static void late(RecvRndv<P>& d) {
    if (d.reads == Reads::kLong) d.reads = Reads::kLongEnding;
  }

  /// What the rail wants.
  static std::uint64_t usual_size(const Rail<P>& rail) {
    return std::min<std::uint64_t>(rail.limits.rdma_frag_size, rail.limits.get_limit);
  }

  /// Several rails share a message in segments that are balanced and always queued on each of them, unless
  /// all of them keep up: then their READs end as fast as the processor posts them, a queue would stay empty,
  /// and fewer, longer READs cost less. One of those is what a failed rail may leave to be read again (P4).
  static std::uint64_t size(const RecvRndv<P>& d, std::uint32_t depth, const Rail<P>& rail,
                            std::uint64_t wanted) {
    const std::uint64_t usual = usual_size(rail);
    const std::uint64_t n = d.n_keys == 1 ? size_over_one_rail(d.want, rail.limits.rdma_frag_size)
                            : d.reads == Reads::kQueued ? queued_size(d.want, d.n_keys, usual, depth)
                                                        : std::min(kMaxResent, usual);
    return std::min({n, wanted, static_cast<std::uint64_t>(rail.limits.get_limit)});
  }

  /// No further READ now. Over one rail what counts is the bytes.
  static bool enough(RecvRndv<P>& d, std::uint32_t depth, const Rail<P>* rail) {
    if (d.reads == Reads::kLongEnding) {
      if (d.in_flight != 0) return true;
      d.reads = Reads::kQueued;
    }
    if (d.in_flight >= (d.reads == Reads::kLong ? 1 : depth) * d.n_keys) return true;
    if (d.n_keys != 1 || d.in_flight == 0 || !rail) return false;
    const std::uint64_t limit = rail->limits.rdma_frag_size;
    return (d.in_flight + 1) * size_over_one_rail(d.want, limit) > most_over_one_rail(limit);
  }
};

}  // namespace bfo::xfer
