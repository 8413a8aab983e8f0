// SPDX-License-Identifier: BSD-3-Clause
//
// closure_verdict.h: model M5 of the table closure: two rails between two processes whose clocks suspect
// whatever they like, whenever they like. It walks the decisions of
// btl/verbs/engine/rail/verdict_rules.h, the ones verdict.cc acts on. Proved here:
//   watchdogs alone never take the last rail of a process: at any moment each of the two has one that is up.
//
// What the model keeps apart: a rail is up, or ended, at each side by itself; the notice that it ended takes
// its time; it comes up again at the decider first, in a new epoch. A probe may fail for no reason. Answers
// and end requests are delivered at any later time, or lost; any other question is answered when it is asked,
// which is at any time. The paths lose everything at times, as faults: one after the other, too, so that each
// side can have its own evidence.
//
// One round is enough here: less evidence than the code asks for, so all that it can do, and more.
//
// Left out: both rails suspect at one side, which then has nobody to ask; a device that reports an error ends
// a rail whatever the clocks say; and what moves over a rail, which only ever saves it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "btl/verbs/engine/rail/verdict_rules.h"

namespace bfo::closure::verdict {

/// A rule that a mutation leaves out.
enum class Without : int {
  kNothing,
  kOneJudge,      // each side ends what it has proven
  kCarrierHere,   // the decider does not look whether the rail of an end request is up here
  kCarrierEpoch,  // answers and end requests do not name the epoch of the rail they come over
  kCount
};
inline constexpr const char* kWithoutNames[] = {"nothing", "one decider", "the carrier is up here",
                                                "the carrier's epoch"};
static_assert(sizeof kWithoutNames / sizeof *kWithoutNames == static_cast<size_t>(Without::kCount));

inline constexpr int kEpochs = 2;  ///< 1 .. kEpochs
inline constexpr int kRounds = 2;  ///< questions about one rail, of all inquiries
inline constexpr int kEased = 0;   ///< suspicions that end by themselves

/// A rail as one side sees it, and its inquiry there.
struct Rail {
  uint8_t up, epoch, suspect, probe_failed;
  uint8_t on, open, first, round, answered;
};
/// At most one of each kind is on its way, per rail and direction; one more is lost.
struct Datagram {
  uint8_t used, about, epoch, carrier, number, flags;
};
struct State {
  Rail rail[2][2];          // by side, then rail; side 0 is the decider
  Datagram request_end[2];  // to the decider, over this rail
  Datagram answer[2][2];    // to this side, over this rail
  uint8_t notice[2][2];     // to this side: the epoch of this rail that ended at the other one; 0: none
  uint8_t cut[2];           // the path of this rail loses everything
  uint8_t faults, eased;
};

class Verdicts {
 public:
  Verdicts(int faults, Without without) : faults_(faults), without_(without) {}
  struct Next {
    State state;
    const char* what;
    int rail;
    bool fault;
  };
  State initial() const;
  void successors(const State& from, std::vector<Next>& out);
  State canonical(const State& s) const { return s; }
  bool finished(const State&) const { return true; }
  std::string describe(const State& s) const;
  const std::string& violation() const { return violation_; }
  uint64_t verdicts() const { return verdicts_; }

 private:
  bool off(Without w) const { return without_ == w; }
  template <class Change>
  void step(const State& from, std::vector<Next>& out, const char* what, int rail, Change&& change,
            bool fault = false);
  void clocks(const State& from, std::vector<Next>& out, int x, int r);
  void packets(const State& from, std::vector<Next>& out, int x, int r);
  void faults(const State& from, std::vector<Next>& out, int r);
  void end(int x, int r);
  void ask(int x, int r);
  void on_question(int x, int over, const Datagram& m);
  void on_answer(int x, int over, const Datagram& m);
  bool carries(int x, int r) const { return c_.rail[x][r].up != 0; }
  /// The rail that `m` came over is up here, and is the one that it was sent over.
  bool here(int x, int over, const Datagram& m) const {
    return carries(x, over) && (m.carrier == c_.rail[x][over].epoch || off(Without::kCarrierEpoch));
  }
  static engine::Inquiry inquiry_of(const Rail& rail);

  int faults_;
  Without without_;
  State c_{};  ///< the successor under construction
  std::string violation_;
  uint64_t verdicts_ = 0;
};

}  // namespace bfo::closure::verdict
