// SPDX-License-Identifier: BSD-3-Clause
//
// closure_finalize.h: model M4 of the table closure: two processes exchange their last messages over two
// rails and finalize, in each of the three ways Open MPI can: a fence of the runtime that runs progress, an
// MPI barrier and a fence that does not, and none at all (async_mpi_finalize).
//
// A sends and then waits for the answer; B answers and has no more to wait for. Messages are sent without a
// completion of their own: only a marker behind them, or BYE, says that they arrived. A process acts on what
// happens to its rails only while it runs progress; its device acknowledges as long as the process lives and
// has not left. A process says BYE before it leaves, again and again, until the peer has answered. A rail, a
// BYE or a process may be lost at any moment. A marker to a queue pair that has gone fails: whoever has not
// heard BYE by then counts a rail as lost that nothing ever hurt.
//
// Assumed, and proved by M2 and M3: what a device acknowledged is delivered; copies are dropped.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bfo::closure::finalize {

enum class Ending : int { kFence, kBarrier, kNone };

/// A rule of pml/bfo/glue/module.cc and btl/verbs that a mutation leaves out.
enum class Without : int {
  kNothing,
  kProgressInFence,  // H20: nobody polls while the runtime's fence waits
  kDrain,            // H20: a process leaves with messages unacknowledged
  kMarker,           // H22: an idle tail of messages never completes
  kResendInDrain,    // H20: what fails in the drain is not sent again
  kBound,            // H20: the drain waits for a peer that died
  kSilent,           // H20: a rail lost after the fence is an error
  kBye,              // a process leaves without a word
  kByeCount,         // BYE does not say what was received
  kAnswer,           // a process that has said BYE leaves before it is answered
  // Not in the code yet: the layer is not told of that fence. No runtime of the supported releases uses it.
  kDrainBeforeFence,  // H20: a fence without progress is entered with messages unacknowledged
  kCount
};
inline constexpr const char* kWithoutNames[] = {"nothing",
                                                "progress in the fence",
                                                "drain",
                                                "marker",
                                                "sent again in the drain",
                                                "the drain ends",
                                                "errors after the fence are silent",
                                                "BYE",
                                                "BYE counts",
                                                "BYE is answered",
                                                "drain before a fence without progress"};
static_assert(sizeof kWithoutNames / sizeof *kWithoutNames == static_cast<size_t>(Without::kCount));

enum Phase : uint8_t { kSend, kReceive, kBarrier, kSettle, kFence, kDrain, kLeave, kGone, kFailed, kDead };

/// The last message of a process, or its barrier message. Masks have one bit per rail.
struct Message {
  uint8_t posted, flying, queued, acked, lost, known, got;
};

struct Process {
  Phase phase;
  uint8_t sent;        ///< its last message
  uint8_t bye;         ///< one is on its way to it
  uint8_t left;        ///< it knows that the peer goes, and the peer hears of that
  Message message[2];  ///< 0: the last one; 1: of the barrier
};

struct State {
  Process process[2];
  uint8_t dead_rails, faults;
};

class Finalize {
 public:
  Finalize(Ending ending, int faults, Without without)
      : ending_(ending), faults_(faults), without_(without) {}
  struct Next {
    State state;
    const char* what;
    int rail;  ///< the process
    bool fault;
  };
  State initial() const;
  void successors(const State& from, std::vector<Next>& out);
  State canonical(const State& s) const { return s; }
  bool finished(const State& s) const { return s.process[0].phase >= kGone && s.process[1].phase >= kGone; }
  std::string describe(const State& s) const;
  const std::string& violation() const { return violation_; }

 private:
  bool off(Without w) const { return without_ == w; }
  void broken(const char* what) {
    if (violation_.empty()) violation_ = what;
  }
  template <class Change>
  void step(const State& from, std::vector<Next>& out, const char* what, int x, Change&& change,
            bool fault = false);
  bool polls(const Process& p) const;
  bool quiet(const Process& p) const;
  void program(const State& from, std::vector<Next>& out, int x);
  void last_steps(const State& from, std::vector<Next>& out, int x);
  void traffic(const State& from, std::vector<Next>& out, int x);
  void faults(const State& from, std::vector<Next>& out, int x);
  void after_receive(Process& p) const;
  void leave(int x);

  Ending ending_;
  int faults_;
  Without without_;
  State c_;
  std::string violation_;
};

}  // namespace bfo::closure::finalize
