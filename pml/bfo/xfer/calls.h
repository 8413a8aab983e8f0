// SPDX-License-Identifier: BSD-3-Clause
//
// calls.h: what functions of the engine pass to each other during one call, and what they return to tools.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/core/opened.h"
#include "pml/bfo/xfer/args.h"

namespace bfo::xfer {

/// Where a message came from, and how long it is with its header. What it says is passed beside it, decoded:
/// nobody but the function that decodes it has its bytes.
template <class P>
struct Arrival {
  Rail<P>* rail;
  uint32_t epoch;
  size_t size;

  /// Did it come over that rail in that epoch? 0: the BTL names none.
  bool over(const Rail<P>& r, uint32_t of_epoch) const {
    return rail == &r && (epoch == 0 || epoch == of_epoch);
  }
};

/// What the actions of the sender's table need besides the request.
template <class P>
struct SendInput {
  const core::PutHdr* put = nullptr;
  const core::RestartHdr* restart = nullptr;
  const core::WireRange* ranges = nullptr;
  const Arrival<P>* arrival = nullptr;
  bool all_read = false;  ///< the receiver has finished; if it read in this round, it has read everything
};

/// The same for the receiver's table.
template <class P>
struct RecvInput {
  core::Bytes payload;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t grant = 0;
  Rail<P>* rail = nullptr;
  const core::RestartHdr* restart = nullptr;
  const core::WireRail* clean = nullptr;
  const core::Opened* open = nullptr;  ///< an RNDV or RGET
  const Arrival<P>* arrival = nullptr;
};

/// What a receive has found among the messages that no receive has matched. One word, because each receive
/// returns it.
template <class P>
class KeptResult {
 public:
  using SendRequest = typename P::SendRequest;
  KeptResult() = default;                               ///< no message
  static KeptResult filled() { return KeptResult(1); }  ///< a whole one: the receive ends
  static KeptResult begun() { return KeptResult(2); }   ///< the receive ends later, see Engine::take_kept()
  /// A send to oneself: the receive is filled from its buffer, and both end.
  static KeptResult own(SendRequest& s) { return KeptResult(reinterpret_cast<uintptr_t>(&s)); }

  bool found() const { return word_ != 0; }
  bool is_filled() const { return word_ == 1; }
  SendRequest* own() const { return word_ > 2 ? reinterpret_cast<SendRequest*>(word_) : nullptr; }

 private:
  explicit KeptResult(uintptr_t word) : word_(word) {}
  uintptr_t word_ = 0;
};

/// How a send to oneself begins. `taken`: its bytes have been copied, or `taker` is to be filled with them
/// when the lock is released.
template <class P>
struct OwnStart {
  bool taken = false;
  typename P::RecvRequest* taker = nullptr;
};

/// Receives posted for one rank of a communicator, and its messages that no receive has matched.
struct QueueLengths {
  uint32_t posted = 0;
  uint32_t unexpected = 0;
};

/// What waits for a peer's rails, and what is between two of its messages.
struct PeerLoad {
  uint32_t ready_sends = 0;  ///< with something to post
  uint32_t ready_recvs = 0;
  uint32_t live_sends = 0;  ///< in a rendezvous
  uint32_t live_recvs = 0;
  uint32_t stored = 0;   ///< messages that wait for a rail
  uint32_t stalled = 0;  ///< sends that wait for the sequence window
};

}  // namespace bfo::xfer
