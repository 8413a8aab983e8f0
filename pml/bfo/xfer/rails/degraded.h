// SPDX-License-Identifier: BSD-3-Clause
//
// degraded.h: is a rail much worse than it should be, for longer than a moment? What it moved is judged in
// terms: against what the other rails of its peer moved in the same term, and against what it moved itself
// before. That is a word for people: what a rail carries follows from its measured cost (weigh.h), and no
// word ends a rail. Rates in Mbit/s, times in nanoseconds of the port's clock. Used under the engine's lock.
// Needs no memory, cannot fail.
//
// All samples (goodput.h) of a term together took a time between two bounds: what is not known of the end of
// one is not known of the begin of the next, if the rail was busy meanwhile, and their sum is. A term counts
// against a rail when the most it can have moved is too little beside the least that another one moved; else
// it proves nothing. So a process that was away, or looks seldom, says nothing wrong. Nor does a term of
// which the process has seen less than three quarters: what is known of a few of its samples is not known of
// the rest.
//
// A piece also waits behind those of other peers over the same port. So a term in which the port of the rail
// has moved mostly pieces of other peers, and about as much as the ports of its sisters, proves nothing: else
// a rail that others fill, and its sister not, looks slow. What a port has moved is what is timed of this
// process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "pml/bfo/xfer/rails/goodput.h"

namespace bfo::xfer {

class Degraded {
 public:
  enum class Word : uint8_t { kNone, kDegraded, kRecovered };

  /// Below a quarter of what it should move a rail is degraded, from a half on it is well. Between the two
  /// nothing changes.
  static constexpr uint64_t kLowTimes = 4;
  static constexpr uint64_t kWellTimes = 2;
  /// It is degraded after so many terms in a row, each with so many samples.
  static constexpr uint8_t kTerms = 4;
  static constexpr uint32_t kSamples = 2;
  /// Terms that count are in a row when no longer time is between them.
  static constexpr uint64_t kRowBounds = 16;
  /// It has recovered when it was well for ten times as long as it took to call it degraded; twice as long
  /// after each relapse, up to 64 times. One that was well for ten times that long begins anew.
  static constexpr uint64_t kWellBounds = 10;
  static constexpr uint8_t kMostRelapses = 6;

  /// `carried`: bytes that the port of the rail has moved until now.
  explicit Degraded(uint64_t carried = 0) : port_from_(carried) {}

  /// Of what a rail can be called degraded for.
  struct Term {
    uint64_t from_ns = 0;
    uint64_t now_ns = 0;
    uint64_t bound_ns = 0;  ///< so long a rail must be low
  };

  /// Terms are counted by one rail of a peer for all. 0: this one is not over; else when it began: then the
  /// next one has begun. They end when something was moved: one that lasted more than twice as long as it has
  /// to was idle for a while, which proves nothing, and counts as no longer than that.
  uint64_t term_over(uint64_t now_ns, uint64_t term_ns) {
    if (term_from_ns_ != 0 && now_ns - term_from_ns_ < term_ns) [[likely]]
      return 0;
    const uint64_t from_ns = std::exchange(term_from_ns_, now_ns);
    return from_ns != 0 && now_ns - from_ns > 2 * term_ns ? now_ns - term_ns : from_ns;
  }
  /// What it moved in this term; `in`: to this process. False: it is too short to count.
  bool moved(const Goodput::Sample& s, bool in) {
    if (s.bytes < kLeastSample) {
      follows_ = false;
      return false;
    }
    const uint64_t unseen = s.busy ? 0 : s.gap_ns;
    const uint64_t unknown = unseen + (s.alone ? kSlackNs : 0);
    bytes_ += s.bytes;
    unseen_ns_ += std::min(s.took_ns, unseen);
    least_ns_ += s.took_ns - std::min(s.took_ns, unknown);
    most_ns_ += s.took_ns + (s.alone || follows_ ? 0 : s.gap_before_ns);
    if (in) in_ns_ += s.took_ns;
    last_gap_ns_ = s.busy ? s.gap_ns : 0;
    follows_ = s.busy;
    ++samples_;
    return true;
  }
  /// The rate that this term proves; 0: none.
  uint64_t at_least() const { return samples_ < kSamples ? 0 : Goodput::rate_of(bytes_, most_ns_); }
  uint64_t at_most() const {
    return least_ns_ <= last_gap_ns_ ? UINT32_MAX : Goodput::rate_of(bytes_, least_ns_ - last_gap_ns_);
  }
  /// Mbit/s that its port, which has moved `carried` bytes until now, has moved in this term; 0: that is not
  /// known.
  uint64_t port_rate(uint64_t carried, uint64_t now_ns) const {
    if (from_ns_ == 0 || now_ns <= from_ns_) return 0;
    return Goodput::rate_of(carried - std::min(carried, port_from_), now_ns - from_ns_);
  }

  /// What the ports of this process have moved.
  struct Ports {
    uint64_t carried = 0;  ///< bytes, that of this rail, until now
    uint64_t others = 0;   ///< Mbit/s, the best other one in this term, for this rail's nominal rate
  };
  /// The term ends. `others`: the most that another rail of the peer is known to have moved in it, for this
  /// rail's nominal rate; 0: nothing is known. `keeps_up`: its work ends as fast as it is posted.
  Word end_term(uint64_t others, bool keeps_up, const Term& term, const Ports& ports);
  Word end_term(uint64_t others, bool keeps_up, const Term& term) {
    return end_term(others, keeps_up, term, Ports{});
  }
  /// The rail has another connection, or none. True: it was degraded.
  bool restart(uint64_t carried = 0) {
    const bool was = degraded_;
    forget_term(0, carried);
    term_from_ns_ = 0;
    degraded_ = false;
    low_ = well_ = 0;
    return was;
  }

  bool degraded() const { return degraded_; }
  /// Have terms of late counted against it?
  bool low() const { return degraded_ || low_ != 0; }
  /// Is anything known of it?
  bool judged() const { return rate_ != 0; }
  // ---- of the last term that was judged
  uint32_t rate() const { return rate_; }
  uint32_t others() const { return others_; }
  /// The most it was seen to move in a term before; 0: it was never well.
  uint32_t before() const { return best_; }
  bool in() const { return in_; }
  /// When the first term began that counted against it.
  uint64_t since_ns() const { return since_ns_; }

 private:
  static constexpr uint64_t kLeastSample = 16384;  ///< bytes; shorter ones tell of latency
  static constexpr uint64_t kSlackNs = 200'000;    ///< latency of any rail

  void forget_term(uint64_t now_ns, uint64_t carried) {
    bytes_ = least_ns_ = most_ns_ = unseen_ns_ = in_ns_ = 0;
    samples_ = 0;
    follows_ = false;
    from_ns_ = now_ns;
    port_from_ = carried;
  }
  /// Has its port moved mostly what is not its own in this term, and with that a part of what the best other
  /// port has moved, one of `times`?
  bool port_moves(const Ports& ports, uint64_t now_ns, uint64_t times) const {
    const uint64_t all = ports.carried - std::min(ports.carried, port_from_);
    return all > 2 * bytes_ && port_rate(ports.carried, now_ns) * times >= ports.others;
  }
  Word look_for_low(uint64_t should, uint64_t least, uint64_t most, bool seen, const Term& term);
  Word look_for_well(bool well, bool low, const Term& term);

  uint64_t term_from_ns_ = 0;
  uint64_t from_ns_ = 0;    ///< since when what it moved is counted; 0: that is not known
  uint64_t port_from_ = 0;  ///< what its port had carried then
  uint64_t bytes_ = 0;
  uint64_t least_ns_ = 0;
  uint64_t most_ns_ = 0;
  uint64_t unseen_ns_ = 0;  ///< of the samples' time, what the process did not look
  uint64_t in_ns_ = 0;
  uint64_t last_gap_ns_ = 0;  ///< before so long the rail may have ended what it has moved in this term
  uint64_t since_ns_ = 0;
  uint64_t low_ns_ = 0;   ///< the last term that counted against it
  uint64_t well_ns_ = 0;  ///< since when it has been well
  uint32_t samples_ = 0;
  uint32_t rate_ = 0;
  uint32_t others_ = 0;
  uint32_t best_ = 0;
  uint8_t low_ = 0;   ///< terms in a row that counted against it
  uint8_t well_ = 0;  ///< the same, for it
  uint8_t relapses_ = 0;
  bool degraded_ = false;
  bool follows_ = false;  ///< the next sample of this term begins where the last one ended
  bool in_ = false;
};

inline Degraded::Word Degraded::end_term(uint64_t others, bool keeps_up, const Term& term,
                                         const Ports& ports) {
  if (keeps_up && degraded_) {
    forget_term(term.now_ns, ports.carried);
    return look_for_well(true, false, term);
  }
  if (samples_ < kSamples) return Word::kNone;  // they count in the next one
  const uint64_t least = at_least();
  const uint64_t most = at_most();
  const bool seen = unseen_ns_ * 4 <= most_ns_;
  const bool port_not_low = port_moves(ports, term.now_ns, kLowTimes);
  const bool port_well = port_moves(ports, term.now_ns, kWellTimes);
  in_ = in_ns_ * 2 >= most_ns_;
  forget_term(term.now_ns, ports.carried);
  if (others == 0) return Word::kNone;
  const uint64_t should = best_ != 0 ? std::min<uint64_t>(best_, others) : others;
  if (!keeps_up) {
    rate_ = static_cast<uint32_t>(most);
    others_ = static_cast<uint32_t>(std::min<uint64_t>(others, UINT32_MAX));
  }
  if (degraded_) {
    const bool well = port_well || least * kWellTimes >= should;
    return look_for_well(well, !well && most * kWellTimes < should, term);
  }
  if (port_not_low && least * kLowTimes < should) return Word::kNone;
  return look_for_low(should, least, most, seen, term);
}

inline Degraded::Word Degraded::look_for_low(uint64_t should, uint64_t least, uint64_t most, bool seen,
                                             const Term& term) {
  if (least * kLowTimes >= should) {
    best_ = std::max(best_, static_cast<uint32_t>(least));
    low_ = 0;
    if (relapses_ != 0 && term.now_ns - well_ns_ >= kWellBounds * kWellBounds * (term.bound_ns << relapses_))
      relapses_ = 0;
    return Word::kNone;
  }
  if (most * kLowTimes >= should) return Word::kNone;
  if (!seen) return Word::kNone;
  if (term.now_ns - low_ns_ > kRowBounds * term.bound_ns) low_ = 0;
  low_ns_ = term.now_ns;
  if (low_++ == 0) since_ns_ = term.from_ns;
  if (low_ < kTerms || term.now_ns - since_ns_ < term.bound_ns) {
    low_ = std::min(low_, kTerms);
    return Word::kNone;
  }
  degraded_ = true;
  low_ = well_ = 0;
  return Word::kDegraded;
}

inline Degraded::Word Degraded::look_for_well(bool well, bool low, const Term& term) {
  if (low) well_ = 0;
  if (!well) return Word::kNone;
  if (well_ == 0) well_ns_ = term.from_ns;
  well_ = static_cast<uint8_t>(std::min(well_ + 1, 2 * kTerms));
  if (well_ < 2 * kTerms || term.now_ns - well_ns_ < kWellBounds * (term.bound_ns << relapses_))
    return Word::kNone;
  degraded_ = false;
  well_ = 0;
  well_ns_ = term.now_ns;
  if (relapses_ < kMostRelapses) ++relapses_;
  return Word::kRecovered;
}

}  // namespace bfo::xfer
