// SPDX-License-Identifier: BSD-3-Clause
//
// closure_seq.h: model M3 of the table closure: the messages of one sender and one receiver in order, over
// two rails that die and return, through one communicator that is freed and another with the same context id.
//
// Numbers go round every eight messages and the window is two of them: the model calls the functions of
// common/seq.h and pml/bfo/core/seq_window.h with numbers a multiple of 8192 apart, so that an eighth of the
// circle is one step. Fast rails carry many messages while a copy on a slow one waits: that is how a number
// comes round before its last user is gone (H5, H6), or before an answer about the window comes that was
// delayed up. The first message is a rendezvous whose header is repeated until it is answered (H7, H11).
//
// Assumed of the rails, and proved by M2: each takes its messages in order; one that dies at the sender may
// still deliver until it is closed at the receiver; what was acknowledged is delivered before; the sender
// learns of the closing; a rail comes up again only behind it. Every pass of progress polls every rail, so
// that what was acknowledged is taken before the window moves by a step of 8192 messages.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pml/bfo/core/seq_window.h"

namespace bfo::closure::seq {

inline constexpr int kMessages = 11;  ///< more than once round
inline constexpr int kFirstComm = 2;  ///< so many of them are in the first communicator
inline constexpr int kRails = 2;
inline constexpr int kDepth = 3;

/// A rule that a mutation leaves out.
enum class Without : int {
  kNothing,
  kWindow,           // H5: numbers run ahead of what the receiver has
  kHold,             // H5: the window does not wait for a copy that may still be on a dead rail
  kHoldUntilClosed,  // H5: it waits, but not for the closing at the receiver
  kHoldFreed,        // H5, H6: a message of a freed communicator that is sent again holds nothing
  kNumberingGoesOn,  // H6: the next communicator with the same context begins at zero
  kDuplicate,        // a number that is behind is taken
  kEarlyDuplicate,   // a number that is stored is stored again
  kKeepEarly,        // a number that is ahead is dropped
  kUnknownContext,   // a message for a communicator that is not there yet is dropped
  kNackProof,        // H7: an unmatched message is "finished"
  kAnswerAgain,      // H11: a header that comes again after the end is dropped
  kSameNumber,       // a message is sent again under a new number
  kPollEvery,        // H6: what is acknowledged lies in the receiver's queue while numbers go round
  kCompletion,       // H5: numbers run ahead of what the sender knows to be acknowledged
  kCheckpointAgain,  // H5: what is sent again is not among what the checkpoint counted
  kCheckpointDown,   // H5: a rail that is down is past the checkpoint though its messages have not come back
  kOldAnswer,        // H5: an answer about the window counts whatever question it is to
  kCount
};
inline constexpr const char* kWithoutNames[] = {"nothing",
                                                "the window",
                                                "the window waits for copies",
                                                "until the receiver has closed",
                                                "also of a freed communicator",
                                                "numbering goes on",
                                                "behind is a duplicate",
                                                "one copy is stored",
                                                "ahead is stored",
                                                "unknown context is kept",
                                                "NACK from proof only",
                                                "a header is answered again",
                                                "sent again unchanged",
                                                "every rail is polled",
                                                "the window waits for completions",
                                                "the checkpoint is taken anew for a copy",
                                                "a rail that is down is not past the checkpoint",
                                                "an answer to an old question does not count"};
static_assert(sizeof kWithoutNames / sizeof *kWithoutNames == static_cast<size_t>(Without::kCount));

struct Flight {
  uint8_t used, message, number, delivered, acked;
};

struct Rail {
  uint8_t dead, closed, told;  ///< at the sender; at the receiver; the sender knows
  uint8_t returned;            ///< dead, and the sender has back what was on it
  Flight flight[kDepth];
};

/// Numbers of messages count up without end; what the code sees of one is seq_of().
struct State {
  uint16_t again;            ///< one bit per message to be sent again
  uint16_t out_of_sequence;  ///< one bit per message stored: out of sequence, or of an unknown context
  Rail rail[kRails];
  // sender
  uint8_t next, stop, confirmed, resent_from, resent;
  uint8_t open_owed, open_done, s_freed, base;
  uint8_t question;                                ///< the number of the open one
  uint8_t slow_answer, slow_value, slow_question;  ///< SEQSYNC on a slow rail
  // receiver
  uint8_t accepted, expected;       ///< messages taken; the next number
  uint8_t r_freed, r_added, first;  ///< first: 0 not here, 1 unmatched, 2 received
  uint8_t twice;                    ///< a message is stored twice
  uint8_t deaths, slow;
  // sender: what the rails have reported the end of
  uint8_t acked, checkpoint, checkpoint_taken;
  uint8_t left[kRails];  ///< flights of before the checkpoint that have not ended
};

class Sequence {
 public:
  Sequence(int deaths, Without without) : deaths_(deaths), without_(without) {}
  struct Next {
    State state;
    const char* what;
    int rail;
    bool fault;
  };
  State initial() const;
  void successors(const State& from, std::vector<Next>& out);
  State canonical(const State& s) const { return s; }
  bool finished(const State& s) const { return s.accepted == kMessages && s.open_done && s.first == 2; }
  std::string describe(const State& s) const;
  const std::string& violation() const { return violation_; }

 private:
  bool off(Without w) const { return without_ == w; }
  void broken(const char* what) {
    if (violation_.empty()) violation_ = what;
  }
  void go(const State& from, std::vector<Next>& out, const char* what, int rail, bool fault = false);
  void sender(const State& from, std::vector<Next>& out);
  void window(const State& from, std::vector<Next>& out);
  void post(int rail, int message, int number);
  void returns(int rail);
  void note_resent(int message);
  bool unclosed(const State& s) const;
  core::SeqBounds bounds() const;
  bool past_checkpoint() const;
  void take_checkpoint();
  void note_ended();
  void ended(int rail);
  void answer(int value, int question);
  void arrive(int message, int number);
  void take(int message);
  void drain_early();
  void communicators(const State& from, std::vector<Next>& out);
  void rails(const State& from, std::vector<Next>& out, int x);

  int deaths_;
  Without without_;
  State c_;
  std::string violation_;
};

}  // namespace bfo::closure::seq
