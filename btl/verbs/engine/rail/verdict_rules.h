// SPDX-License-Identifier: BSD-3-Clause
//
// verdict_rules.h: when a rail may be ended on the watchdog's word, and by whom. Decisions without effects:
// verdict.cc acts on them; the closure model (test/sim/closure_verdict.h) walks the same functions.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

/// So many rounds answered over another rail, and over that alone, prove a path dead: with a failed probe of
/// it, and without (the probe is still under way, or failed earlier in this epoch and can be sent no more).
inline constexpr uint32_t kRoundsWithProbe = 3;
inline constexpr uint32_t kRoundsAlone = 16;

/// A port that is slow and alive goes on taking in bytes while everything else of it waits: the questions and
/// the probe stand in a queue behind long work. At such a pace the oldest work, and as much of others, would
/// end within this time; what is slower is as good as dead.
inline constexpr uint64_t kWorkEndsNs = 4'000'000'000;
/// Others' work that ends with it.
inline constexpr uint64_t kOthersBytes = 1 << 20;
/// Others' work that a question may have before it, besides the own: above all what the peer reads, which is
/// not known here. By default the longest piece of a READ; four times as much may come in.
inline constexpr uint64_t kOthersQueued = 16 << 20;

/// What comes in at one end of a rail while it is asked about. Each end counts: work needs the way there and
/// the way back. It delays a verdict, but not for long: a question has its turn when what stood before it has
/// moved, and what moves then is others'.
class Intake {
 public:
  /// `oldest`: bytes of the oldest work, `queued`: of all.
  void begin(uint64_t oldest, uint64_t queued, uint64_t now_ns) {
    *this = Intake{};
    pace_ = oldest + kOthersBytes;
    left_ = 4 * (queued + kOthersQueued);
    begun_ns_ = from_ns_ = now_ns;
  }
  /// The port has taken in so many bytes in all; 0: not known. True: enough since the last time, or since the
  /// first look, that what stands before a question has moved on.
  bool goes_on(uint64_t bytes, uint64_t now_ns) {
    if (bytes == 0) return false;
    if (bytes_ == 0 || bytes < bytes_) {  // the first look; or somebody has reset the counter
      bytes_ = bytes;
      from_ns_ = now_ns;
      return false;
    }
    const uint64_t moved = bytes - bytes_;
    if (moved == 0 || moved < pace_ * ((now_ns - from_ns_) / 1000) / (kWorkEndsNs / 1000)) return false;
    if (now_ns - begun_ns_ > kWorkEndsNs || moved > left_) return false;
    left_ -= moved;
    bytes_ = bytes;
    from_ns_ = now_ns;
    return true;
  }

 private:
  uint64_t pace_ = 0;   ///< bytes in kWorkEndsNs
  uint64_t left_ = 0;   ///< bytes that may still come in until a question must have had its turn
  uint64_t bytes_ = 0;  ///< at the last time that it went on
  uint64_t begun_ns_ = 0;
  uint64_t from_ns_ = 0;  ///< of the last time
};

/// The inquiry of one suspected rail, at the side that waits for its work.
struct Inquiry {
  bool on = false;        ///< questions are being asked
  bool open = false;      ///< the last one has no answer yet
  bool counted = false;   ///< `count` is known
  uint32_t first = 0;     ///< number of the first question of this inquiry
  uint32_t round = 0;     ///< number of the last one. Never used again: a late answer names another inquiry
  uint32_t answered = 0;  ///< rounds that came back over another rail alone
  uint64_t count = 0;     ///< what had moved over the rail at the peer, by its first answer
  Intake here;            ///< what comes in meanwhile
  Intake there;
};

/// An answer and how it came.
struct InquiryAnswer {
  uint32_t number;
  uint32_t flags;
  uint64_t count;
  bool same_rail;   ///< over the rail in question itself
  bool carrier_up;  ///< the rail it came over is up here, in the epoch it was sent in, and not suspect
};

enum class Hearing : uint8_t {
  kIgnore,
  kAlive,  ///< the path answers, or work moves over it: nothing is wrong but the time it takes
  kOver,   ///< the peer has ended the epoch
  kRound   ///< one more round that only another rail answered
};

/// What `answer` means for `inquiry`.
constexpr Hearing hear(const Inquiry& inquiry, const InquiryAnswer& answer) {
  if (!inquiry.on || answer.number < inquiry.first || answer.number > inquiry.round) return Hearing::kIgnore;
  if ((answer.flags & kInquiryOver) != 0) return Hearing::kOver;
  if (answer.same_rail) return Hearing::kAlive;
  if ((answer.flags & kInquiryAlive) == 0) return Hearing::kIgnore;
  if (inquiry.counted && answer.count != inquiry.count) return Hearing::kAlive;
  if (!inquiry.open || answer.number != inquiry.round) return Hearing::kIgnore;
  // It counts only when the rail that would be left is usable at both ends.
  return (answer.flags & kInquiryCarrier) != 0 && answer.carrier_up ? Hearing::kRound : Hearing::kIgnore;
}

/// Enough has been heard to end the rail. `probe_failed`: by an error of the device. `suspect`: silent for
/// the whole time, not only long enough to ask. `counting`: what came in is being counted, and that counting
/// is waited for, but not long.
constexpr bool proven(const Inquiry& inquiry, bool probe_failed, bool suspect, bool counting) {
  if (!inquiry.on) return false;
  const uint32_t more = counting ? kRoundsAlone : 0;
  return probe_failed ? inquiry.answered >= kRoundsWithProbe + more
                      : suspect && inquiry.answered >= kRoundsAlone + more;
}

/// An end request as the peer sees it.
struct EndRequest {
  bool decider;     ///< this side decides: of the two processes, the one that initiates connections
  bool rail_up;     ///< the epoch in question is up here
  bool same_rail;   ///< the request came over that rail: then its path works
  bool carrier_up;  ///< the rail the request came over is up here, in the epoch it was sent in, and not
                    ///< suspect
  bool unmoved;     ///< nothing has moved over the rail here since the inquiry began
};

/// Is the rail ended? One side alone decides for all rails of a pair, so that two verdicts cannot cross; and
/// the rail that is left is up as both sides see it: the asking side sends it over rails that are up there.
constexpr bool granted(const EndRequest& request) {
  return request.decider && request.rail_up && !request.same_rail && request.carrier_up && request.unmoved;
}

}  // namespace bfo::engine
