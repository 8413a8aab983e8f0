// SPDX-License-Identifier: BSD-3-Clause
//
// verdict_rules.h: when a rail may be ended on the watchdog's word, and by whom. Decisions without effects:
// verdict.cc acts on them; the closure model (test/sim/closure_verdict.h) walks the same functions.
#pragma once

#include <cstdint>

namespace bfo::engine {

/// What a datagram of a trial says besides its numbers.
enum TrialFlag : uint8_t {
  kTrialPlea = 1,     // QUESTION: the trial is over; the peer, who decides, is asked to end the rail
  kTrialLives = 2,    // ANSWER: the epoch in question exists at the peer, and nothing has ended it there
  kTrialOver = 4,     // ANSWER: it is closed there, or is being closed
  kTrialCarrier = 8,  // ANSWER: the rail it comes over is up at the peer, and not suspect
};

/// So many rounds answered over another rail, and over that alone, prove a path dead: with a failed probe of
/// it, and without (the probe is still under way, or failed earlier in this epoch and can be sent no more).
inline constexpr uint32_t kRoundsWithProbe = 3;
inline constexpr uint32_t kRoundsAlone = 16;

/// The trial of one suspected rail, at the side that waits for its work.
struct Trial {
  bool on = false;        // questions are being asked
  bool open = false;      // the last one has no answer yet
  bool counted = false;   // `count` is known
  uint32_t first = 0;     // number of the first question of this trial
  uint32_t round = 0;     // .. and of the last one. Never used again: a late answer names another trial
  uint32_t answered = 0;  // rounds that came back over another rail alone
  uint64_t count = 0;     // what had moved over the rail at the peer, by its first answer
};

/// An answer and how it came.
struct TrialAnswer {
  uint32_t number;
  uint32_t flags;
  uint64_t count;
  bool same_rail;   // over the rail in question itself
  bool carrier_up;  // the rail it came over is up here, in the epoch it was sent in, and not suspect
};

enum class Hearing : uint8_t {
  kIgnore,
  kAlive,  // the path answers, or work moves over it: nothing is wrong but the time it takes
  kOver,   // the peer has ended the epoch
  kRound   // one more round that only another rail answered
};

/// What `answer` means for `trial`.
constexpr Hearing hear(const Trial& trial, const TrialAnswer& answer) {
  if (!trial.on || answer.number < trial.first || answer.number > trial.round) return Hearing::kIgnore;
  if ((answer.flags & kTrialOver) != 0) return Hearing::kOver;
  if (answer.same_rail) return Hearing::kAlive;
  if ((answer.flags & kTrialLives) == 0) return Hearing::kIgnore;
  if (trial.counted && answer.count != trial.count) return Hearing::kAlive;
  if (!trial.open || answer.number != trial.round) return Hearing::kIgnore;
  // It counts only when the rail that would be left is usable at both ends.
  return (answer.flags & kTrialCarrier) != 0 && answer.carrier_up ? Hearing::kRound : Hearing::kIgnore;
}

/// Enough has been heard to end the rail. `probe_failed`: by an error of the device. `suspect`: silent for
/// the whole time, not only long enough to ask.
constexpr bool proven(const Trial& trial, bool probe_failed, bool suspect) {
  if (!trial.on) return false;
  return probe_failed ? trial.answered >= kRoundsWithProbe : suspect && trial.answered >= kRoundsAlone;
}

/// A plea as the peer sees it.
struct Plea {
  bool judge;       // this side decides: of the two processes, the one that initiates connections
  bool rail_up;     // the epoch in question is up here
  bool same_rail;   // the plea came over that rail: then its path works
  bool carrier_up;  // the rail the plea came over is up here, in the epoch it was sent in, and not suspect
  bool unmoved;     // nothing has moved over the rail here since the trial began
};

/// Is the rail ended? One side alone decides for all rails of a pair, so that two verdicts cannot cross; and
/// the rail that is left is up as both sides see it: the plaintiff pleads over rails that are up there.
constexpr bool granted(const Plea& plea) {
  return plea.judge && plea.rail_up && !plea.same_rail && plea.carrier_up && plea.unmoved;
}

}  // namespace bfo::engine
