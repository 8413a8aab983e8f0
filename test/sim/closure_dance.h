// SPDX-License-Identifier: BSD-3-Clause
//
// closure_dance.h: model M1 of the table closure: every state that one rendezvous request, its two machines,
// three rails and both memories can reach, walked with the same tables the component uses.
//
// What the model keeps apart, because real failures live between them: a fragment is posted, executed at the
// other HCA, delivered to the other process and completed at its own, the last two in any order; a rail dies
// at each side at its own time; until the other side has closed it, whatever was posted on it may still be
// executed; memory has contents, and an application that changes its buffer as soon as MPI lets it.
//
// With Extra either side may also give the other up, which lets every rail die, and headers may be forged.
//
// What it leaves out: payload in RNDV, unfenceable devices, reconnection, records and registration running
// out. Those are the simulator's.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "test/sim/cell_changes.h"

namespace bfo::closure {

inline constexpr int kRails = 3;
inline constexpr int kRanges = 2;
inline constexpr int kDepth = 3;  ///< entries one direction of a rail takes

enum class Mode { kCopy, kGet, kPut };

/// A rule of the protocol that a mutation leaves out. Each must lead to a counter-example.
enum class Without : int {
  kNothing,
  kGateAtReceiver,      // H8: complete with grants or READs open
  kFenceInQuiesce,      // H1, H2: RESTARTACK although an uncertified grant is not fenced
  kFenceNamedByPeer,    // H1: only rails the sender calls dirty are fenced, the certificate does not count
  kSynchronousFence,    // H2: asking for the fence counts as fenced
  kDeliverBeforeClose,  // H3: a rail closes although a message on it was not delivered
  kNackProof,           // H7: an unmatched message is "finished"
  kForeignFin,          // H9: FIN over another rail counts at once
  kFinResendRule,       // H9: FIN is posted together with the write, not after its success
  kPendingAnswer,       // H11: ACK, PUT, RESTARTACK, RECVERR are not repeated when lost
  kPendingRequest,      // H11: RNDV, RGET, NOTIFY are not repeated when lost
  kSendDone,            // H11: a finished sender does not answer RECVERR
  kAnswerDuplicate,     // H11: a duplicate NOTIFY is dropped
  kRoundInFrag,         // H13: FRAG and FIN carry no round
  kDrainBeforeNotify,   // H1: NOTIFY before the own writes have ended
  kUnionOfRanges,       // H14: RESTARTACK reports granted ranges as received
  kFinBehindGate,       // I16: FIN of a get before its READs are fenced
  kCount
};
inline constexpr const char* kWithoutNames[] = {"nothing",
                                                "gate at the receiver",
                                                "fence in quiesce",
                                                "own ledger decides",
                                                "asynchronous fence",
                                                "deliver before close",
                                                "NACK from proof only",
                                                "foreign FIN waits for the fence",
                                                "FIN after its write",
                                                "answers are pending",
                                                "requests are pending",
                                                "SENDDONE",
                                                "duplicates are answered",
                                                "round in FRAG and FIN",
                                                "drain before NOTIFY",
                                                "union of ranges",
                                                "FIN behind the gate"};

enum Type : uint8_t {
  kNone,
  kOpen,
  kFrag,
  kWrite,
  kFin,
  kFinFail,
  kNotify,
  kDone,  // S to R
  kAck,
  kPut,
  kRead,
  kRack,
  kRerr,
  kNack,
  kFinGet,  // R to S
  kLost     // either way: I have given you up
};
inline constexpr uint8_t kForged = 15;  ///< id of a message that nobody sent

/// What else may happen in a run of the model.
struct Extra {
  int give_ups = 0;  ///< so many times one side gives the other up; also: every rail may die
  bool forged =
      false;  ///< headers with a live name and its exact round that the sender of the name never sent
};

struct Entry {
  uint8_t type, round, arg, id;
  uint8_t executed, delivered, completed, bad;
};

enum Side : uint8_t { kUp, kDown, kClosed };

struct Fifo {
  uint8_t n;
  Entry e[kDepth];
};

struct State {
  // rails: state at S and at R; queue 0 = S to R, 1 = R to S
  uint8_t side[kRails][2];
  Fifo q[kRails][2];
  uint8_t deaths, gave_up, forged;
  // S
  uint8_t s_phase, s_round, s_done, s_open, s_data, s_notify;
  uint8_t s_todo, s_undel, s_flight, s_dirty, s_ledger, s_seen, s_put, s_total;
  uint8_t s_grant[kRanges], s_gid[kRanges];                        // 1 + rail
  uint8_t s_fin[kRanges], s_fin_id[kRanges], s_fin_rail[kRanges];  // round of a pending FIN
  uint8_t s_fail[kRanges], s_fail_id[kRanges];                     // round of a pending FIN with fail
  uint8_t s_stored_done, s_bad, s_tell;
  // R
  uint8_t stored, keys, r_phase, r_round, r_done, r_answer, r_ask, r_quiet;
  uint8_t have, r_todo, r_flight, doubtful, total, next_id, nack_pending, refused;
  uint8_t led[kRanges], led_id[kRanges], led_fin[kRanges], led_owed[kRanges];
  uint8_t led_sent[kRanges];
  uint8_t r_stored_nack, r_stored_ack, r_stored_fin;  // rounds of pending stored messages
  uint8_t r_bad, r_tell;
  uint8_t r_looks;              // kQuiescing: FRAGs that were delivered may still be in a queue
  uint8_t r_told;               // without kAnswerDuplicate: last round answered
  uint8_t dead_reads[kRanges];  // rails whose lost READ may still execute
  uint8_t cell[kRanges];        // 0 old, 1 data, 2 wrong
  uint8_t hidden[kRanges], hidden_value[kRanges];  // 1 + rail: written, but not yet visible (H9)
};

using cells::Tables;

class Dance {
 public:
  Dance(Mode mode, Without without, const Tables& tables, int max_deaths, int rails, int ranges = kRanges,
        Extra extra = {})
      : mode_(mode),
        without_(without),
        t_(tables),
        max_deaths_(max_deaths),
        rails_(rails),
        ranges_(ranges),
        all_(ranges == 1 ? 1 : 3),
        extra_(extra),
        split_(without == Without::kDeliverBeforeClose) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    s.s_phase = static_cast<uint8_t>(core::SendPhase::kOpening);
    s.s_round = 1;
    s.s_open = 1;
    for (int x = rails_; x < kRails; ++x) s.side[x][0] = s.side[x][1] = kClosed;
    return s;
  }
  struct Next {
    State state;
    const char* what;
    int rail;
    bool fault;
  };
  /// All successors. A broken property is in violation().
  void successors(const State& from, std::vector<Next>& out);
  std::string describe(const State& s) const;
  /// The same state under all renamings of rails and ranges: the smallest one.
  State canonical(const State& s) const;
  bool finished(const State& s) const { return s.s_done && s.r_done; }
  const std::string& violation() const { return violation_; }
  void clear() { violation_.clear(); }
  uint64_t send_used[core::kSendPhases][core::kSendEvents] = {};
  uint64_t recv_used[core::kRecvPhases][core::kRecvEvents] = {};

 private:
  using SP = core::SendPhase;
  using SE = core::SendEvent;
  using RP = core::RecvPhase;
  using RE = core::RecvEvent;

  State renamed(const State& s, const int* rail, bool swap) const;
  void normalise();
  bool off(Without w) const { return without_ == w; }
  void broken(const char* what) {
    if (violation_.empty()) violation_ = what;
  }
  bool up(int who, int x) const { return c_.side[x][who] == kUp; }
  bool room(int x, int dir) const { return c_.q[x][dir].n < kDepth; }
  void post(int x, int dir, uint8_t type, int round, int arg, int id);
  void tidy(int x, int dir);
  void go(const State& from, std::vector<Next>& out, const char* what, int rail, bool fault = false);

  void s_event(SE e, const Entry* m = nullptr, int rail = -1);
  void s_check();
  void s_complete(const Entry& e, int x, bool ok);
  void s_deliver(const Entry& e, int x);
  void r_event(RE e, const Entry* m = nullptr, int rail = -1);
  void r_check();
  void r_complete(const Entry& e, int x, bool ok);
  void r_deliver(const Entry& e, int x);
  void r_fence(int x) {
    if (c_.side[x][1] == kUp) lose(x, 1);
  }
  void quiesce(const Entry& m);
  void s_recall();
  void r_over(bool bad);
  void r_nack_again(int round);
  bool any_up(int who) const;
  void s_posts(const State& from, std::vector<Next>& out, int x);
  void r_posts(const State& from, std::vector<Next>& out, int x);
  void network(const State& from, std::vector<Next>& out, int x);
  void deaths(const State& from, std::vector<Next>& out, int x);
  void give_ups(const State& from, std::vector<Next>& out);
  void forgeries(const State& from, std::vector<Next>& out);
  /// Control messages whose success nobody acts on: executed and delivered in one step (split_: in two), and
  /// completed only when the queue is full or the rail dies.
  bool atomic(uint8_t type) const { return !split_ && type != kFrag && type != kWrite && type != kRead; }
  int leading_ok(int x, int who) const;
  void lose(int x, int who, int ok = 0);
  void close(int x, int who);
  void execute(int x, int dir);
  void open_round();
  void show(int x);
  bool r_ledger() const {
    for (int i = 0; i < kRanges; ++i)
      if (c_.led[i] || c_.dead_reads[i]) return true;
    return false;
  }
  bool key_up() const {
    for (int x = 0; x < rails_; ++x)
      if ((c_.keys >> x & 1) && up(1, x)) return true;
    return false;
  }

  Mode mode_;
  Without without_;
  Tables t_;
  int max_deaths_;
  int rails_;
  int ranges_;
  int all_;  ///< a bit per range
  Extra extra_;
  bool split_;
  State c_;  ///< the successor under construction
  std::string violation_;
};

}  // namespace bfo::closure
