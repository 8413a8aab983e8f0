// SPDX-License-Identifier: BSD-3-Clause
//
// standing.h: can a peer be reached, has it failed, has it finalized, and what does either side know about
// that? The park time runs here; what ends it, and what happens then, the engine decides (peer_failure.h).
// Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <cstdint>

#include "common/clock.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

class Standing {
 public:
  // ---- the way to it
  bool unreachable() const { return reach_ == Reach::kUnreachable; }
  /// A rail is usable, and the peer has not failed.
  void set_reachable() { reach_ = Reach::kReachable; }
  /// No rail is usable since `now_ns`.
  void set_unreachable(uint64_t now_ns) {
    reach_ = Reach::kUnreachable;
    absence_credited_ = heard_ = false;
    lost_ns_ = since_ns_ = now_ns;
    word_after_s_ = kFirstWord;
  }
  /// The park time begins anew: the wait before the peer showed life, or while it does, does not count.
  void heard(uint64_t now_ns) {
    since_ns_ = now_ns;
    heard_ = true;
  }
  bool park_time_over(uint64_t now_ns, uint64_t bound_ns) const {
    return time_since(since_ns_, now_ns) >= bound_ns;
  }
  void credit_absence(uint64_t now_ns, uint64_t bound_ns);
  uint64_t unreachable_since_ns() const { return lost_ns_; }
  /// Whoever waits is told of it after a second, and then every ten seconds. Is it time? `alive`: a rail says
  /// that the peer only computes, which it may have said before the last one was lost.
  bool word_due(uint64_t now_ns, bool alive) const {
    return !(alive && heard_) && time_since(lost_ns_, now_ns) >= word_after_s_ * kSecond &&
           time_since(since_ns_, now_ns) >= kFirstWord * kSecond;
  }
  void word_given(uint64_t now_ns) {
    const auto seconds = static_cast<uint32_t>(time_since(lost_ns_, now_ns) / kSecond);
    word_after_s_ = (seconds / kNextWord + 1) * kNextWord;
  }

  // ---- its end
  /// Declared failed. Stays.
  bool failed() const { return reach_ == Reach::kFailed; }
  void set_failed(uint64_t now_ns) {
    reach_ = Reach::kFailed;
    since_ns_ = now_ns;
  }
  uint64_t failed_ns() const { return since_ns_; }
  /// It is declared failed when the engine is left. Stays.
  bool failing() const { return failing_; }
  void set_failing() { failing_ = true; }
  /// Its process has finalized in order. Stays.
  bool finalized() const { return finalized_; }
  void set_finalized() { finalized_ = true; }
  /// Nothing is sent to it any more.
  bool ended() const { return failed() || finalized_; }
  /// How its requests end.
  const PeerLoss& loss() const { return loss_; }
  void set_loss(const PeerLoss& loss) { loss_ = loss; }

  // ---- who knows of it
  /// It declared this process failed first: PEERLOST is not needed.
  bool declared_by_peer() const { return declared_by_peer_; }
  void set_declared_by_peer() { declared_by_peer_ = true; }
  /// PEERLOST has to be sent.
  bool notice_pending() const { return notice_pending_; }
  void set_notice_pending(bool pending) { notice_pending_ = pending; }

 private:
  /// These exclude each other. The other flags do not: a peer that has finalized may be in any of them, and
  /// one that is failing is so until the engine is left, whatever its rails do meanwhile.
  enum class Reach : uint8_t { kReachable, kUnreachable, kFailed };

  static constexpr uint64_t kSecond = 1'000'000'000;
  static constexpr uint32_t kFirstWord = 1;  ///< seconds
  static constexpr uint32_t kNextWord = 10;

  uint64_t lost_ns_ = 0;   ///< when the last rail was lost
  uint64_t since_ns_ = 0;  ///< the park time runs since then; of a failed peer: when it was declared failed
  PeerLoss loss_;
  uint32_t word_after_s_ = kFirstWord;
  Reach reach_ = Reach::kReachable;
  bool heard_ : 1 = false;  ///< since the last rail was lost
  bool absence_credited_ : 1 =
      false;  ///< the park time began anew once, because this process was outside MPI
  bool finalized_ : 1 = false;
  bool failing_ : 1 = false;
  bool declared_by_peer_ : 1 = false;
  bool notice_pending_ : 1 = false;
};

/// This process was outside MPI, where no connection is made. A port that came back meanwhile gets one more
/// second before the park time ends. It gets it once: a program that enters MPI only now and then must not
/// wait for ever.
[[gnu::cold]] inline void Standing::credit_absence(uint64_t now_ns, uint64_t bound_ns) {
  constexpr uint64_t kGrace = 1'000'000'000;
  if (!unreachable() || absence_credited_) return;
  if (bound_ns > kGrace && time_since(since_ns_, now_ns) <= bound_ns - kGrace) return;
  absence_credited_ = true;
  since_ns_ = bound_ns > kGrace ? now_ns - bound_ns + kGrace : now_ns;
}

}  // namespace bfo::xfer
