// SPDX-License-Identifier: BSD-3-Clause
//
// pulse.h: proof that this process lives, for peers that wait for its first answer. A process that computes
// outside MPI answers no handshake; a dead one does not either. So each port has a second datagram queue
// pair, with a completion queue of its own, that only the event thread serves: it answers PING with PONG and
// knows nothing of connections. It shares no state with the progress function, so neither waits for the
// other.
//
// A PING names both processes and carries both port nonces, as every packet of connect.h; the PONG goes to
// the address and the connection manager's queue pair and Q_Key that the PING names. Anything else is dropped
// and counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/ud.h"

namespace bfo::engine {

/// Opened and closed by the progress function's side while the event thread does not serve it.
class Pulse {
 public:
  /// Makes the queue pair with its completion queue and channel. `own_name` and `nonce` are what a PING must
  /// name. False with errno; nothing is left behind then.
  bool open(const VerbsApi& api, ibv_context* context, ibv_pd* pd, Arena& arena, const QpSettings& settings,
            uint64_t own_name, uint64_t nonce);
  /// False when the device refused something. Idempotent.
  bool close();

  /// Readable when serve() has something to do; -1 when closed.
  int fd() const { return channel_ == nullptr ? -1 : channel_->fd; }
  /// The queue pair to send a PING to; 0 when closed.
  uint32_t number() const { return ud_.number(); }

  /// Event thread: answers what waits. False: there is more to do, or the queue pair had to be repaired; call
  /// again after a pause.
  bool serve();

  /// Packets that were no PING for this port. Any thread.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  bool open_queue(ibv_context* context);
  void finish(const ibv_wc& wc);
  void answer(const char* data, uint32_t length, bool global);
  void drop_handles();

  const VerbsApi* api_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  Ud ud_;
  QpSettings settings_;
  uint64_t own_name_ = 0;
  uint64_t nonce_ = 0;
  std::array<ibv_ah*, Ud::kSends> handles_{};  // of the answers under way, by send buffer
  bool broken_ = false;                        // a completion failed: repair before the next answer
  bool dead_ = false;                          // the device refuses: silent for good
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace bfo::engine
