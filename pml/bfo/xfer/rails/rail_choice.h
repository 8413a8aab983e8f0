// SPDX-License-Identifier: BSD-3-Clause
//
// rail_choice.h: which rail of a peer takes what. It has the usable rails of one peer and knows their states,
// weights and loads; what waits, and in which order it has to go, the engine decides (pump.h, order.h).
// Only pointers: the rails belong to the peer. Used under the engine's lock. Needs no memory, cannot fail: a
// function that returns a rail returns nullptr when there is none.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/plan_trace.h"
#include "pml/bfo/xfer/rails/port_models.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

/// Messages below are one piece: a second rail would save less time than a second piece costs.
inline constexpr uint64_t kUncut = 65536;
/// A rail that is tried gets so much of a longer one.
inline constexpr uint64_t kTry = Goodput::kFirstPiece;

/// What a rail moves at most in one piece, when it is slower than others, or may be: 10 ms of it.
constexpr uint64_t most_in_time(uint64_t mbits) {
  return mbits * 1250;
}

/// No rail wants longer pieces than this of a message that several share, by default.
inline constexpr uint64_t kLongest = 1 << 20;

/// What one rail moves, the fastest, and all, in the same unit.
struct Share {
  uint64_t rate = 1;
  uint64_t best = 1;
  uint64_t sum = 1;
  bool proven =
      true;  ///< false: nothing of it has ended yet, so that it may be much slower than it is said to be
  bool alone = false;  ///< no other rail would have moved a piece before this one has moved all that is left
  uint64_t longest = UINT64_MAX;  ///< bytes of a piece, of a message that can be cut
};

/// What all choices of a process have in common.
struct Weighing {
  Weights weights = Weights::kMeasured;
  PortModels ports;
  uint32_t choices = 0;  ///< peers that this process has or had
};

template <class P>
class RailChoice {
 public:
  using RailT = Rail<P>;

  bool empty() const { return n_ == 0; }
  /// Is a suspect rail connected that is not used while others are, though the peer found it faster?
  bool leaves_out() const { return left_out_; }
  unsigned size() const { return n_; }
  RailT& operator[](unsigned i) const { return *usable_[i]; }
  bool has(const RailT* rail) const {
    bool there = false;
    for (unsigned i = 0; i < n_; ++i) there = there || usable_[i] == rail;
    return there;
  }
  /// The same of a rail that is connected.
  bool uses(const RailT& rail) const { return rail.state == RailState::kUp || has(&rail); }
  /// The rail of short messages; nullptr: none, or it refused one, or they have to wait.
  RailT* preferred() const { return preferred_; }

  /// Chooses the preferred rail by default_preferred(). The same on both sides.
  void set_key(uint64_t key) { key_ = key; }
  /// It outlives this one.
  void set_weighing(Weighing& w) {
    weighing_ = &w;
    ++w.choices;
  }
  void rebuild(RailSet<P>& rails, unsigned n);
  /// No rail is used any more.
  void clear() {
    n_ = 0;
    n_swift_ = 0;
    preferred_ = nullptr;
    nearer_ = nullptr;
    backoff_ = 0;
    uneven_ = false;
    sampled();
  }

  /// Control messages, and user messages that are spread: one after the other.
  RailT* next() {
    if (n_ == 0) return nullptr;
    RailT* const r = usable_[swift_[next_]];
    next_ = static_cast<uint8_t>(next_ + 1 >= n_swift_ ? 0 : next_ + 1);
    return r;
  }
  /// A short message costs latency, not bandwidth. So short messages of a pair, in both directions, use its
  /// preferred rail, whose queues are then in the caches of both sides, but for a few that are timed.
  /// nullptr: spread() has to choose.
  RailT* for_short(size_t length, size_t short_limit) const {
    return preferred_ && (length < short_limit || n_ == 1) ? preferred_ : nullptr;
  }
  RailT* spread(size_t length, size_t short_limit);
  /// The message that spread() has just chosen a rail for is to be sent with a record, and timed.
  bool samples() const { return timed_ != nullptr; }
  void sampled() {
    timed_ = nullptr;
    behind_ = false;
  }
  /// It is behind others of which nothing is known: the next one is to go over the same rail, and is timed.
  void sampled_behind(RailT& rail) {
    timed_ = &rail;
    behind_ = true;
  }
  /// Is the message that is timed next, over `rail`, behind one whose end is known?
  bool samples_behind(const RailT& rail) const { return behind_ && timed_ == &rail; }
  /// The next message, a short one, is to be timed. Its rail is the preferred one, or one that is to be
  /// tried. preferred() is nullptr until then: settle_preferred() chooses it again. `messages`: so many were
  /// sent to the peer since the last one that was to be timed.
  void sample_short(uint32_t messages, uint64_t now_ns);
  /// After how many messages to the peer, which may have several rails, the next one is to be timed like
  /// that; 0: none. `is_short`: this one is.
  uint32_t short_every(bool is_short) const {
    if (fixed()) return 0;
    return n_ < 2 ? kShortAlone : is_short && short_soon_ != 0 ? kShortSoon : kShortEvery;
  }
  /// It is not, because its rail has other work: not soon again, or all of many would be tried.
  void short_untimed() { short_soon_ = 0; }
  /// A short message of `rail` has ended. The rail of short messages is to be chosen anew (order.h).
  void short_ended(RailT& rail, uint64_t took_ns, uint64_t now_ns);
  /// It is not sent as an eager message, and so cannot be timed: a later one is. Not 128 messages later, or
  /// in a stream that repeats it would be one of that kind again.
  void not_sampled() {
    sampled();
    until_sample_ = kSampleEvery - 1;
  }
  RailT* lightest(uint32_t refused, uint64_t bytes);
  /// Does `rail` carry short messages now?
  bool swift(const RailT& rail) const {
    for (unsigned i = 0; i < n_swift_; ++i)
      if (usable_[swift_[i]] == &rail) return true;
    return false;
  }
  /// Would `a` have moved `bytes` more before `b`? What may be slower than it counts has to wait, if the
  /// other one may not.
  bool sooner(const RailT& a, const RailT& b, uint64_t bytes) const {
    if (doubted_) [[unlikely]]
      return sooner_in_doubt(a, b, bytes);
    return uneven_ ? end_ns(a, bytes) < end_ns(b, bytes) : lighter(a, b);
  }

  // ---- measured rails: weigh.h
  /// Do the rails differ so much that what was measured counts, and not what they are said to move?
  bool uneven() const { return uneven_; }
  /// The measured cost of a rail has changed. The rail of short messages is to be chosen anew (order.h).
  void weigh();
  /// Do the weights stay, whatever is measured?
  bool fixed() const { return weighing_ && weighing_->weights != Weights::kMeasured; }
  /// Was something measured of ports that may concern rails of this peer?
  bool outdated() const { return n_ > 1 && weighing_ && weighing_->ports.news() != news_; }
  /// Rails that were not measured begin with what others over their ports were. The rail of short messages is
  /// to be chosen anew (order.h).
  void consult(uint64_t now_ns);
  /// `rail` was measured: others over its port can begin with that.
  void share_measured(const RailT& rail, uint64_t now_ns) {
    if (weighing_ && rail.goodput.own())
      weighing_->ports.measured(rail.limits.port, &rail, rail.goodput.cost(), now_ns);
  }
  /// A piece goes out over `rail`. The first one of a rail of which nothing is known tries its port for the
  /// rails of other peers.
  void tries(RailT& rail, uint64_t now_ns);
  /// Something was measured of `rail`: its trial is over.
  void has_tried(const RailT& rail) {
    if (weighing_ && proven(rail)) weighing_->ports.has_tried(rail.limits.port, &rail);
  }
  /// Is `rail` left to the peer whose rail tries the same port? Nothing is known of it yet, and `other` has
  /// room (P4). Not while `other` keeps up: its pieces are not timed, and nothing would tell that the trial
  /// has taken too long.
  bool withheld(const RailT& rail, const RailT& other) const;
  /// A rail keeps up again.
  void reconsider();
  /// May a rail be slower than it counts, so that sooner() needs to know how long the piece is?
  bool doubted() const { return doubted_; }
  /// `rail` has moved so many timed bytes more.
  void carries(const RailT& rail, uint64_t bytes) {
    if (weighing_) weighing_->ports.carries(rail.limits.port, bytes);
  }
  /// Timed bytes that rails over its port have moved until now, to and from all peers of this process.
  uint64_t carried(const RailT& rail) const {
    return weighing_ ? weighing_->ports.carried(rail.limits.port) : 0;
  }
  /// What `rail` is taken to move now. For reports.
  struct Estimate {
    Goodput::Cost cost;
    Basis basis = Basis::kLikeFastest;
  };
  Estimate estimate_now(const RailT& rail) const;
  /// Mbit/s that `rail`, which was not measured, is seen to move at least, if that is more than the fastest
  /// of those that were; else 0.
  uint64_t exceeds_measured(const RailT& rail) const;
  /// When all rails were looked at last: something in flight had not ended then.
  void looked(uint64_t ns) { looked_ns_ = ns; }
  uint64_t looked_ns() const { return looked_ns_; }
  /// Is anything known of what it moves, or does that not matter?
  bool proven(const RailT& rail) const {
    const Goodput& g = rail.goodput;
    return fixed() || rail.late == 0 || g.known() || g.least() != 0;
  }
  /// What `rail` moves, what the fastest does, and all: for the size of pieces of a message of which `left`
  /// bytes are to be moved; 0: that does not matter.
  Share share(const RailT& rail, uint64_t left = 0) const {
    if (!uneven_) [[likely]]
      return {1, 1, n_, proven(rail) && !(questioned(rail) && seems_slow(rail)), false, longest(rail)};
    return uneven_share(rail, left);
  }
  /// Index of the rail that lightest() and READs consider first: equal loads take them in turn.
  unsigned take_turn() { return turn_++; }

  /// The preferred rail while both sides see the same rails. Different pairs use different ones.
  RailT* default_preferred() const {
    if (nearer_ && swift(*nearer_)) [[unlikely]]
      return nearer_;
    return usual();
  }
  void prefer(RailT* rail) { preferred_ = rail; }
  /// The default again, unless it refused a message a short while ago.
  void prefer_default() { preferred_ = backoff_ == 0 ? default_preferred() : nullptr; }
  void congested(const RailT& rail);
  /// The peer says whether its READs over the rail of short messages end as fast as they are posted. It is
  /// what FIN said last, maybe of a rail that is not preferred any more.
  void set_keeps_up(bool does) { keeps_up_ = does; }
  /// The peer measures the rails, and finds them uneven: it says that `rail` is a fast one; nullptr: they are
  /// even. True: the rail of short messages is to be chosen anew (order.h).
  bool follow(RailT* rail) {
    if (rail == advised_ && (rail || fast_ == kMaxRails)) [[likely]]
      return false;
    return take_advice(rail);
  }
  bool keeps_up() const { return keeps_up_; }
  /// The peer has sent a message.
  void answered() { ahead_ = 0; }

 private:
  static constexpr uint32_t kBackoff = 64;      ///< messages that are spread after a refusal
  static constexpr uint32_t kAhead = 4;         ///< longer eager messages that a sender may always be ahead
  static constexpr uint8_t kInARow = 3;         ///< measurements that make rails uneven, or even
  static constexpr uint8_t kSampleEvery = 128;  ///< one of so many messages that are not short is timed
  /// Then one of so many, while a rail was not measured, or what was measured last is against `uneven_`.
  static constexpr uint8_t kSampleSoon = 8;
  /// Then one of so many, while nothing is known of a rail, if there are many peers: what each of them sends
  /// over a slow port until then waits for what the others do.
  static constexpr uint8_t kSampleFirst = 2;
  static constexpr uint32_t kManyPeers = 4;
  /// One of so many messages to the peer is timed if it is short. Odd: who sends in pairs sends all kinds.
  static constexpr uint32_t kShortEvery = 251;
  /// Then one of so many, while too few of a rail were timed, and for a few after one that took another time
  /// than those before.
  static constexpr uint32_t kShortSoon = 3;
  /// One that takes so many times what is between two messages waits for others before it on its rail.
  static constexpr uint32_t kShortAhead = 16;
  static constexpr uint32_t kShortAlone = 17;  ///< there may be another rail then
  static constexpr uint32_t kRun = 16384;      ///< bytes of eager messages until the next rail carries them
  /// What a rail moves in 10 us, in bytes: eager messages of a sender that is ahead by less do not fill it.
  static uint64_t backlog(const RailT& rail) { return uint64_t{rail.limits.weight} * 5 / 4; }

  using Cost = Goodput::Cost;
  /// Bytes of its next piece at most, until enough of it were measured. The first one is short, because the
  /// rail may move a hundredth of the others; and one that stood behind long pieces of others in the queue of
  /// a port says very little. What is slow must not get much either while another rail may be much faster.
  uint64_t longest(const RailT& rail) const {
    if (rail.late == 0 || fixed()) return UINT64_MAX;
    const uint64_t moves = rail.goodput.little_known();
    if (moves != UINT64_MAX) return std::max(most_in_time(moves), kTry);
    const uint64_t in_time = most_in_time(rail.goodput.moves());
    return in_time == 0 || in_time >= kLongest || all_proven() ? UINT64_MAX : std::max(in_time, kTry);
  }
  bool all_proven() const {
    for (unsigned i = 0; i < n_; ++i)
      if (!proven(*usable_[i])) return false;
    return true;
  }
  /// May it be slower than it counts?
  bool questioned(const RailT& rail) const {
    return against_ != 0 || (!uneven_ && rail.goodput.by_messages());
  }
  bool seems_slow(const RailT& rail) const;
  uint8_t first_sample() const;
  bool sooner_in_doubt(const RailT& a, const RailT& b, uint64_t bytes) const;
  Share uneven_share(const RailT& rail, uint64_t left) const;
  bool ends_first(const RailT& rail, uint64_t bytes) const;
  bool much_faster(const RailT& rail) const;
  Estimate estimate(const RailT& rail) const;
  Cost cost_now(const RailT& rail) const {
    const Cost c = estimate(rail).cost;
    // Of a rail that keeps up no piece is timed: what is in flight has no age.
    const bool timed = rail.inflight_bytes != 0 && rail.late != 0 && !fixed();
    return timed ? rail.goodput.cost_by_age(c, looked_ns_, rail.inflight_bytes) : c;
  }
  uint64_t end_ns(const RailT& rail, uint64_t bytes) const {
    const Cost c = cost_now(rail);
    const uint64_t tried = bytes < kUncut ? bytes : kTry;
    if (rail.inflight_bytes == 0 && !fixed() && rail.goodput.forgotten(c.ns(tried), looked_ns_)) return 0;
    return c.ns(rail.inflight_bytes + bytes);
  }
  RailT* usual() const { return n_ != 0 ? usable_[swift_[key_ % n_swift_]] : nullptr; }
  void choose_nearer();
  void choose_swift();
  RailT* sample_rail();
  bool take_advice(RailT* rail);
  Cost known_better(Cost own) const;
  bool differ();
  bool far_apart(uint64_t bytes, unsigned tenths, RailT*& slow, RailT*& fast);

  uint8_t n_ = 0;        ///< rails in `usable_`
  uint8_t n_swift_ = 0;  ///< rails in `swift_`: at least one if there is any
  uint8_t next_ = 0;     ///< index in `swift_`: rail of the next message when they are spread
  uint8_t turn_ = 0;     ///< index: first rail to be considered for a long message
  bool keeps_up_ = false;
  bool uneven_ = false;
  uint8_t until_sample_ = kSampleEvery;
  uint8_t against_ = 0;  ///< measurements in a row that contradict `uneven_`
  Cost best_;            ///< of the fastest rail that was measured
  uint64_t looked_ns_ = 0;
  RailT* advised_ = nullptr;
  RailT* timed_ = nullptr;
  RailT* suspect_ = nullptr;  ///< the last message that was timed over it took longer than over others
  RailT* nearer_ = nullptr;   ///< short messages take so much less time over it than over the usual rail
  RailT* preferred_ = nullptr;
  uint64_t key_ = 0;
  Weighing* weighing_ = nullptr;
  uint32_t news_ = 0;           ///< of the ports, when they were looked at last
  uint32_t backoff_ = 0;        ///< messages that are spread before the default is preferred again
  uint32_t ahead_ = 0;          ///< bytes of longer eager messages since the peer sent one
  bool measured_ = false;       ///< any rail was: there is a `best_`
  bool was_uneven_ = false;     ///< the last time that several rails were weighed
  bool left_out_ = false;       ///< the rail that the peer found fast is suspect, and not in `usable_`
  uint8_t short_soon_ = 1;      ///< short messages that are to be timed soon
  uint64_t short_from_ns_ = 0;  ///< when one was to be timed last
  uint64_t short_gap_ns_ = 0;   ///< from one message to the next since the one before that; 0: not known
  bool behind_ = false;       ///< `timed_` carries a message that is behind others: another one is to follow
  bool doubted_ = false;      ///< a rail may be slower than it counts: sooner_in_doubt()
  uint8_t n_up_ = 0;          ///< the first of `usable_`: the others are suspect, and much faster
  uint8_t fast_ = kMaxRails;  ///< index of the rail that the peer found fast last; kMaxRails: none
  RailT* usable_[kMaxRails] = {};
  /// indexes in `usable_` of the ones that carry short messages: all of them, or the fastest
  uint8_t swift_[kMaxRails] = {};
};

/// Usable rails: those that are up, and suspect ones that are worth waiting for; else suspect ones; else one
/// that is being connected, or can be (H18). What is known of rails that stay holds.
template <class P>
void RailChoice<P>::rebuild(RailSet<P>& rails, unsigned n) {
  n_ = 0;
  for (const RailState want : {RailState::kUp, RailState::kSuspect}) {
    if (n_ != 0) break;
    for (unsigned i = 0; i < n; ++i)
      if (rails[i].state == want) usable_[n_++] = &rails[i];
  }
  n_up_ = n_;
  left_out_ = false;
  for (unsigned i = 0; i < n && n_ != 0 && usable_[0]->state == RailState::kUp; ++i) {
    if (rails[i].state != RailState::kSuspect) continue;
    if (much_faster(rails[i]))
      usable_[n_++] = &rails[i];
    else if (rails[i].index == fast_)
      left_out_ = true;
  }
  if (n_ == 0) {
    for (const RailState want : {RailState::kConnecting, RailState::kIdle}) {
      for (unsigned i = 0; i < n && n_ == 0; ++i)
        if (rails[i].state == want) usable_[n_++] = &rails[i];
    }
    n_up_ = n_;
  }
  backoff_ = 0;
  keeps_up_ = false;
  uneven_ = false;
  // weigh() counts again
  against_ = was_uneven_ ? kInARow - 1 : against_ == 0 ? 0 : against_ - 1;
  suspect_ = nullptr;
  until_sample_ = std::min(until_sample_, first_sample());
  news_ = 0;
  advised_ = nullptr;
  nearer_ = nullptr;
  sampled();
  choose_swift();
  reconsider();
  if (n_ > 1) weigh();
}

/// For longer messages, and for some short ones after the preferred rail had no room. While the peer answers
/// before the sender is ahead by what the preferred rail moves in some microseconds, or by a few messages,
/// they use that rail like short ones: another one would not carry them sooner, and its queues are in no
/// cache. Then all rails take their turns, for the bandwidth of all, each for a run of messages.
template <class P>
Rail<P>* RailChoice<P>::spread(size_t length, size_t short_limit) {
  if (backoff_ != 0 && --backoff_ == 0) preferred_ = default_preferred();
  if (timed_) [[unlikely]]
    return timed_;
  if (n_ > 1 && --until_sample_ == 0) [[unlikely]]
    return sample_rail();
  if (!preferred_ || short_limit == 0) return next();
  ahead_ += static_cast<uint32_t>(length);
  if (ahead_ <= backlog(*preferred_) || ahead_ <= kAhead * length) return preferred_;
  return usable_[swift_[ahead_ / kRun % n_swift_]];
}

/// The usable rail that would have moved `bytes` more before the others, not in the bit set `refused`.
/// nullptr: none.
template <class P>
Rail<P>* RailChoice<P>::lightest(uint32_t refused, uint64_t bytes) {
  RailT* best = nullptr;
  for (unsigned i = 0; i < n_; ++i) {
    RailT* const r = usable_[(turn_ + i) % n_];  // equal loads: take them in turn
    if (refused & (1u << r->index)) continue;
    if (!best || sooner(*r, *best, bytes)) best = r;
  }
  ++turn_;
  return best;
}

/// `rail` refused a message of the user.
template <class P>
[[gnu::cold]] void RailChoice<P>::congested(const RailT& rail) {
  if (preferred_ != &rail || n_ < 2) return;
  preferred_ = nullptr;
  backoff_ = kBackoff;
  if (usable_[swift_[next_]] == &rail) next();
}

}  // namespace bfo::xfer

#include "pml/bfo/xfer/rails/weigh.h"
