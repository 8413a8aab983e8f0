// SPDX-License-Identifier: BSD-3-Clause
//
// args.h: what MPI calls pass to the engine, and the names of the engine's records.
#pragma once

#include <cstdint>

#include "pml/bfo/core/wire.h"

namespace bfo::xfer {

inline constexpr int32_t kAnySource = -1;
inline constexpr int32_t kAnyTag = -1;
inline constexpr unsigned kMaxRails = 8;
static_assert(kMaxRails <= core::kMaxWireRails);

enum class SendMode : uint8_t { kStandard, kSync, kReady };

template <class P>
struct Comm;
template <class P>
struct Proc;
template <class P>
struct Peer;
template <class P>
struct Rail;
template <class P>
struct SendRndv;
template <class P>
struct RecvRndv;
template <class P>
struct Eager;
template <class P>
struct RndvCopy;
template <class P>
struct Offer;
template <class P>
struct Rget;
template <class P>
struct Writes;
template <class P>
struct Rput;
template <class P>
struct Registering;
template <class P>
struct Exposure;
template <class P>
struct Oneself;
template <class P>
struct RestartMessages;
template <class P>
struct Transfers;

/// What isend() is asked for. A buffered send is a standard send of the copy, which the port makes.
template <class P>
struct SendArgs {
  Comm<P>* comm = nullptr;
  int32_t dst = 0;
  int32_t tag = 0;
  uint64_t length = 0;  ///< packed bytes
  SendMode mode = SendMode::kStandard;
  bool blocking = false;  ///< the caller waits until it may use its buffer again
};

/// What irecv() is asked for.
template <class P>
struct RecvArgs {
  Comm<P>* comm = nullptr;
  int32_t src = kAnySource;
  int32_t tag = kAnyTag;
  uint64_t capacity = 0;  ///< bytes that fit
  /// a receive from any source that continues when a peer has failed (wildcard.h)
  bool keeps_waiting = false;
};

struct TagRange {
  int32_t lowest = 1;
  int32_t highest = 0;
  bool has(int32_t tag) const { return tag >= lowest && tag <= highest; }
};

/// The messages of a communicator that nobody receives any more, because it was revoked: those with `tags`,
/// but not those with the tags `still`.
struct Refusal {
  TagRange tags;
  TagRange still;
  bool any() const { return tags.lowest <= tags.highest; }
  bool has(int32_t tag) const { return tags.has(tag) && !still.has(tag); }
};

/// A communicator, for comm_add().
template <class P>
struct CommDesc {
  typename P::CommHandle handle{};
  uint16_t ctx = 0;
  int32_t my_rank = 0;
  int32_t size = 0;  ///< of an intercommunicator: of the remote group
  bool inter = false;
};

}  // namespace bfo::xfer
