// SPDX-License-Identifier: BSD-3-Clause
//
// port_models.h: what each port of this process was measured to move lately, to whichever peer it moved most
// to. The rails of a peer that is new begin with that (RailChoice::consult), so that not each of many peers
// has to find out by itself that a port is slow. A rail that only one peer has a slow end of does not make
// the port slow: the fastest counts. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/rails/goodput.h"

namespace bfo::xfer {

class PortModels {
 public:
  using Cost = Goodput::Cost;
  struct Guess {
    Cost cost;
    uint64_t ns = 0;  ///< when that was measured; 0: there is none
  };

  /// `rail`, one of those over `port`, was measured.
  void measured(unsigned port, const void* rail, Cost cost, uint64_t now_ns);
  /// What a rail over `port` is likely to cost.
  Guess guess(unsigned port, uint64_t now_ns) const {
    const One* const m = at(port);
    if (!m || m->ns == 0 || now_ns - m->ns > kForgottenNs) return {};
    return {m->cost, m->ns};
  }
  /// Rails over `port` have moved so many bytes more, in either direction, of pieces that were timed.
  void carries(unsigned port, uint64_t bytes) {
    if (port < kMaxRails) carried_[port] += bytes;
  }
  /// All of these until now, to and from all peers of this process.
  uint64_t carried(unsigned port) const { return port < kMaxRails ? carried_[port] : 0; }
  /// The first piece goes out over `rail`, of which nothing is known, and whose port is `port`.
  void tries(unsigned port, const void* rail, uint64_t now_ns) {
    if (port < kMaxRails && !tried(port, rail, now_ns)) trials_[port] = {rail, now_ns};
  }
  /// Something is known of `rail`.
  void has_tried(unsigned port, const void* rail) {
    if (port < kMaxRails && trials_[port].by == rail) trials_[port] = {};
  }
  /// Does another rail over `port` try it, and nothing is known of that one yet?
  bool tried(unsigned port, const void* rail, uint64_t now_ns) const {
    if (port >= kMaxRails) return false;
    const Trial& t = trials_[port];
    return t.by && t.by != rail && now_ns < t.ns + kTrialNs;
  }
  /// The port is another one than before: it was away, or its speed has changed.
  void forget(unsigned port) {
    if (port >= kMaxRails) return;
    ports_[port] = One{};
    trials_[port] = {};
  }
  /// Changes when another guess is worth a look.
  uint32_t news() const { return news_; }
  /// Mbit/s that were measured last; 0: none. May be read without the lock.
  uint64_t rate(unsigned port) const {
    const One* const m = at(port);
    return m ? m->shown : 0;
  }

 private:
  /// Whoever is as fast as the port can be says so more often, while it moves anything.
  static constexpr uint64_t kStaleNs = 1'000'000'000;
  static constexpr uint64_t kTrialNs = 100'000'000;  ///< a trial that has told nothing is over then
  static constexpr uint64_t kForgottenNs = 10'000'000'000;
  static constexpr uint64_t kPiece = 65536;  ///< costs of it are compared
  static constexpr unsigned kNewsTenths = 13;

  struct One {
    Cost cost;
    uint64_t ns = 0;
    const void* by = nullptr;
    uint64_t told_ns = 0;  ///< cost of a piece when it was news
    uint64_t shown = 0;
  };
  struct Trial {
    const void* by = nullptr;
    uint64_t ns = 0;
  };
  const One* at(unsigned port) const { return port < kMaxRails ? &ports_[port] : nullptr; }

  One ports_[kMaxRails];
  Trial trials_[kMaxRails];
  uint64_t carried_[kMaxRails] = {};
  uint32_t news_ = 0;
};

inline void PortModels::measured(unsigned port, const void* rail, Cost cost, uint64_t now_ns) {
  if (port >= kMaxRails) return;
  One& m = ports_[port];
  const uint64_t piece_ns = cost.ns(kPiece);
  if (m.ns != 0 && m.by != rail && piece_ns >= m.cost.ns(kPiece) && now_ns - m.ns <= kStaleNs) return;
  m.cost = cost;
  m.ns = now_ns;
  m.by = rail;
  m.shown = cost.rate;
  if (m.told_ns * kNewsTenths >= piece_ns * 10 && piece_ns * kNewsTenths >= m.told_ns * 10) return;
  m.told_ns = piece_ns;
  ++news_;
}

}  // namespace bfo::xfer
