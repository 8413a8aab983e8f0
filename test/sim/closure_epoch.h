// SPDX-License-Identifier: BSD-3-Clause
//
// closure_epoch.h: model M2 of the table closure: one rail between two processes, epoch after epoch: the
// handshake, the end of an epoch at each side, and what the two messaging layers are told about it. It walks
// the decisions of btl/verbs/engine/rail/rules.h, the ones cm.cc and drain.cc act on.
//
// Model M1 (closure_dance.h) takes a rail for granted. This is what it assumes and what is proved here:
//   I3   a rail is closed by its own side alone, whatever the peer does, and from then on neither a message
//        of that epoch arrives nor memory of this side is read or written by it;
//   I4   what the sender saw acknowledged is delivered before the receiver's side closes, or, when a device
//        was lost, handed back by the sender's side or reported; nothing is delivered after;
//   I5   the rail is reported down before its fragments come back, and they come back once (I13), before the
//        device can read them no more;
//   and: a rail dead at one side becomes dead at the other; a new epoch begins only when both sides have
//   closed the one before, so that M1 may take it for another rail; a peer said to be closed is.
//
// What the model keeps apart: datagrams may be lost and come again as stale ones at any later time; a work
// request is queued, in the fabric, executed and completed; the control verbs of an attempt and of a drain
// take their own time, and may fail;
// the device of a queue pair in ERR may still send
// what is queued until the marker comes back, and accept what is in the fabric until it is destroyed; the
// notices of the messaging layer take their own time, over another rail, if there is one.
//
// Either side may lose a completion, its port, its device (with what it had acknowledged; the device may also
// refuse to destroy the queue pair), or die, at any moment. Assumed: the bound on the last receive is long
// enough, and a device that is lost sends nothing any more.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "btl/verbs/engine/rail/rules.h"

namespace bfo::closure::epoch {

using engine::Answer;
using engine::PacketType;
using engine::Phase;

inline constexpr int kEpochs = 6;  ///< more are never needed
inline constexpr int kDepth = 4;   ///< work requests under way in one direction

/// A rule that a mutation leaves out.
enum class Without : int {
  kNothing,
  kAsyncFence,          // H2: a queue pair in ERR counts as fenced
  kDeliverBeforeClose,  // H3: destroyed although successful receives wait in the queue
  kLastReceive,         // H3: not waiting for the last receive
  kMarker,              // I16: fragments come back while the device may read them
  kHandBack,            // I13: no marker, no fragments
  kAnnounce,            // I5: rail down is reported at the end
  kUnfenceable,         // H12: a refused destroy counts as fenced
  kCounts,              // H4: what the peer received is not compared
  kCountNamesEpoch,     // H4: it is compared with whatever epoch closed last
  kReconnect,           // H10: a closed rail stays closed
  kRepeat,              // H18: handshake packets are sent once
  kReadyAgain,          // H18: a lost READY is not repeated
  kNonce,               // H18: a packet of another life is taken
  kRequestEndsEpoch,    // H18: REQ(n) leaves an older epoch alone
  kReplyAfterFence,     // H18: REQ(n) is answered while the older epoch drains
  kRequestAfterFence,   // H18: REQ(n) is sent while the own older epoch drains
  kSolicitEndsEpoch,    // H19: SOLICIT(n) leaves epoch n alone
  kEpochOfEvidence,     // H19: a notice about an older epoch counts
  kTellDown,            // H19: no notice tells the peer that the rail is down
  kFreshQueuePairs,     // H17: a queue pair takes the packets of its predecessor
  kFirstMessage,        // H18: messages that arrive before READY are dropped
  kTellClosed,          // H5: the peer is not told that the rail is closed
  kEarlyNotices,        // H5: notices about an epoch that is not up here yet are dropped
  kUpAtOneSide,         // H5: an epoch that was up at the other side only is closed without a word
  kNeverUp,             // H5: the closing of an epoch that was never up here is waited for
  // Each of these windows is a few microseconds of a handshake:
  kQueuedBeforeStart,  // cm_step: the device is lost before the first poll, what is queued stays queued
  kLostReply,          // finish, report_lost_reply, note_peer_closed: a responder whose device is lost before
                       // the first message says nothing
  kNewestCount,        // note_peer_closed: an older EPOCHCLOSED, delayed, displaces a newer one that waits
  kCountTwice,         // cm_failed: reports the last closed epoch again, with nothing delivered
  kAbandoned,  // gap_step: an attempt given up here, up at the peer, is not reported closed when asked
  // While a control thread makes or connects the queue pairs:
  kEndWhilePreparing,  // ends_epoch: no evidence ends an attempt whose command runs
  kCount
};
inline constexpr const char* kWithoutNames[] = {"nothing",
                                                "fenced means destroyed",
                                                "deliver before close",
                                                "wait for the last receive",
                                                "marker before hand-back",
                                                "hand-back without a marker",
                                                "rail down before hand-back",
                                                "unfenceable is a result",
                                                "counts are compared",
                                                "counts name their epoch",
                                                "reconnection",
                                                "handshake packets are repeated",
                                                "READY is repeated",
                                                "nonces",
                                                "REQ ends older epochs",
                                                "REP after the fence",
                                                "REQ after the own fence",
                                                "SOLICIT ends its epoch",
                                                "evidence names its epoch",
                                                "RAILDOWN",
                                                "fresh queue pairs",
                                                "first message establishes",
                                                "EPOCHCLOSED",
                                                "early notices count",
                                                "epochs up at one side are reported",
                                                "epochs never up are not waited for",
                                                "queued before the start, and given back",
                                                "a lost responder is reported",
                                                "the newest count is kept",
                                                "an epoch has one count",
                                                "an abandoned attempt is reported",
                                                "an attempt ends while its command runs"};
static_assert(sizeof kWithoutNames / sizeof *kWithoutNames == static_cast<size_t>(Without::kCount));

/// What a run of the model contains.
struct Bounds {
  int faults = 1;
  bool other_rail = true;          ///< a second rail comes up at some time, and stays
  bool in_slot = true;             ///< payloads can be sent again from their slots
  bool message[2] = {true, true};  ///< who sends one
  bool write = true;               ///< side 0 also writes to the memory of side 1
};

enum QpState : uint8_t { kNoQp, kInit, kReady, kError, kRefused };
enum Busy : uint8_t { kFree, kPrepares, kUnwanted };
enum RailView : uint8_t { kIdle, kUp, kDown, kClosed, kUnusable };  ///< the messaging layer's
enum Fate : uint8_t { kToPost, kAccepted, kPosted, kDone, kFailed, kNothing };
enum Where : uint8_t { kQueued, kFlying, kExecuted };
enum Ended : uint8_t { kOpen, kSuccess, kReturned };

struct Work {
  uint8_t used, write, epoch, where, polled, ended;
};

/// One process.
struct Half {
  Phase phase;
  uint8_t epoch, asked, announced, ever_up, connect_wanted;
  uint8_t busy;  // a command is under way: 0, or which (Busy)
  uint8_t qp, marker_posted, handed_back, last_receive, overdue, wait_over, seen_empty;
  uint8_t acked, delivered;  // SENDs of this epoch
  uint8_t any_closed, closed_epoch, closed_acked, closed_delivered, reported, closed_reported;
  uint8_t gap_asked, gap_epoch, gap_count;
  uint8_t port_down, device_dead, purged, dead, foreign;
  // the messaging layer
  uint8_t view, name, up_epoch, fenced, peer_closed, dead_epoch, dead_delivered, down_pending, closed_pending,
      lost;
  uint8_t message, write, got;  // what it sends; what it received
};

struct State {
  Half half[2];
  Work work[2][kDepth];        // by direction: 0 = from side 0 to side 1
  uint8_t packets[2][8];       // to this side: per packet type, one bit per epoch
  uint8_t down[2], closed[2];  // notices on their way to this side, one bit per epoch
  uint8_t count[2][kEpochs];   // what the second one carries
  uint8_t lost_reported[2];
  uint8_t other, faults;
};

class Epochs {
 public:
  Epochs(Bounds bounds, Without without) : bounds_(bounds), without_(without) {}

  struct Next {
    State state;
    const char* what;
    int rail;  ///< the side: A = 0, the initiator
    bool fault;
  };
  State initial() const;
  void successors(const State& from, std::vector<Next>& out);
  State canonical(const State& s) const { return s; }
  bool finished(const State&) const { return true; }  // successors() judges what has come to rest
  std::string describe(const State& s) const;
  const std::string& violation() const { return violation_; }

 private:
  bool off(Without w) const { return without_ == w; }
  void broken(const char* what) {
    if (violation_.empty()) violation_ = what;
  }
  void go(const State& from, std::vector<Next>& out, const char* what, int side, bool fault = false);
  /// Applies `change` to a copy of `from`.
  template <class Change>
  void step(const State& from, std::vector<Next>& out, const char* what, int side, Change&& change,
            bool fault = false) {
    c_ = from;
    change(c_.half[side]);
    go(from, out, what, side, fault);
  }
  void judge_state(const State& s);
  void judge_rest(const State& s);

  // the handshake (closure_epoch.cc)
  void handshake(const State& from, std::vector<Next>& out, int x);
  void send(int x, PacketType type, int epoch);
  void packet(int x, PacketType type, int epoch);
  void start(int x);
  void accept(int x, int epoch);
  void commands(const State& from, std::vector<Next>& out, int x);
  void prepared(int x);
  void attempt_begin(Half& h, int epoch);
  void attempt_drop(Half& h);
  void go_up(int x);
  void give_up(int x);

  // the end of an epoch (closure_epoch_drain.cc)
  void drain(const State& from, std::vector<Next>& out, int x);
  void drain_start(int x);
  void drain_step(int x, bool refused);
  void hand_back(int x);
  void return_queued(Half& h);
  void gap(int x);
  void end_epoch(Half& h, int epoch) {
    if (off(Without::kEndWhilePreparing) && h.busy == kPrepares) return;
    if (engine::ends_epoch(h.phase, h.asked, h.epoch, static_cast<uint32_t>(epoch))) h.asked = 1;
  }

  // work requests and devices (closure_epoch_drain.cc)
  void traffic(const State& from, std::vector<Next>& out, int x);
  void post(int x, bool write);
  void receive(int x, Work& w);
  bool reaches(const State& s, int x, const Work& w) const;
  bool can_send(const Half& h, const Work& w) const;
  bool emptied(const State& s, int x) const;
  void settle();
  void tidy_packets();
  void tidy_work();
  engine::DrainView view_of(const State& s, int x) const;

  // the messaging layers (closure_epoch_notices.cc)
  void send_notices(int x);
  void notices(const State& from, std::vector<Next>& out, int x);
  void rail_up(int x, int epoch);
  void rail_down(int x, int epoch);
  void rail_closed(int x, int epoch, bool fenced, int delivered);
  void lose_peer(int x);
  void faults(const State& from, std::vector<Next>& out, int x);

  Bounds bounds_;
  Without without_;
  State c_;  ///< the successor under construction
  std::string violation_;
};

}  // namespace bfo::closure::epoch
