// SPDX-License-Identifier: BSD-3-Clause
//
// goodput.h: the model of one rail of a peer: what it moves in a second while it is busy, and how much longer
// a piece takes that finds it empty. Learned from pieces of long messages that end on it anyway. The sizes
// are bytes, the times nanoseconds of the port's clock. Used under the engine's lock. Needs no memory, cannot
// fail.
//
// A piece is served from the end of the one before it, or from its own posting when the rail was empty.
// Pieces that one look at the rail finds ended are one sample. When a piece ended is known no better than the
// rail is looked at: so a sample gives two bounds, and the estimate moves when it is outside. A process that
// was away learns little, and nothing wrong.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::xfer {

class Goodput {
 public:
  /// Samples: until then a faster one counts at once, and pieces are shorter than usual.
  static constexpr uint8_t kYoung = 5;
  static constexpr uint64_t kFirstPiece = 16384;  ///< bytes
  static constexpr uint64_t kMbitNs = 8000;       ///< nanoseconds that a byte takes at 1 Mbit/s
  /// Mbit/s of that many bytes in that time, at least 1.
  static uint64_t rate_of(uint64_t bytes, uint64_t ns) {
    return std::clamp<uint64_t>(bytes * kMbitNs / std::max<uint64_t>(ns, 1), 1, UINT32_MAX);
  }
  /// What a piece takes.
  struct Cost {
    uint64_t rate = 1;        ///< Mbit/s
    uint64_t latency_ns = 0;  ///< besides
    /// Time until a rail with so many bytes in flight, the new piece among them, has moved them all.
    uint64_t ns(uint64_t bytes) const { return latency_ns + bytes * kMbitNs / rate; }
    /// Mbit/s at which a piece of so many bytes moves that finds the rail empty.
    uint64_t rate_alone(uint64_t bytes) const { return latency_ns == 0 ? rate : rate_of(bytes, ns(bytes)); }
  };

  /// Pieces that one look found ended. They ended up to `gap_ns` before; and unless the first one found the
  /// rail empty, they were begun up to `gap_before_ns` before.
  struct Sample {
    uint64_t bytes = 0;  ///< 0: there is none
    uint64_t took_ns = 0;
    uint64_t gap_ns = 0;
    uint64_t gap_before_ns = 0;
    bool alone = false;  ///< the first piece found the rail empty: its latency is in the time
    bool busy = false;   ///< the next piece was there all that time: the rail went on
  };

  /// The rail is a new connection, maybe over another link: nothing is known but its nominal rate in Mbit/s.
  void reset() { *this = Goodput(); }

  /// What is timed: pieces, one after the other, or a message now and then.
  enum class Kind : uint8_t { kPiece, kMessage };
  /// Does what is known come from messages?
  bool by_messages() const { return by_messages_; }

  /// A piece was posted, as the only one in flight, or behind others, of `ahead` bytes or less.
  void posted(uint64_t bytes, uint64_t now_ns, bool alone, uint64_t ahead = 0) {
    if (skipped_) [[unlikely]] {
      skipped_ = false;
      if (!alone) untimed();
    }
    if (!alone) {
      if (served_from_ == kNever) served_from_ = now_ns;
    } else {
      served_from_ = now_ns;
      behind_ = Behind::kTimed;
      together_ = false;
      if (known() && try_after_ < kTryAfterMost && forgotten(cost().ns(bytes), now_ns)) ++try_after_;
    }
    last_ns_ = now_ns;
    try_again_ = false;
    if (longest_ == 0 && behind_ == Behind::kUntimed) bytes_ = ahead;
    longest_ = alone ? bytes : std::max(longest_, bytes);
  }
  /// The same of a grant. Its FIN comes behind all that the peer has posted over the rail by then: what is in
  /// flight is seen to end together.
  void granted(uint64_t bytes, uint64_t now_ns, uint64_t ahead) {
    posted(bytes, now_ns, ahead == 0, ahead);
    together_ = true;
  }
  /// Until now its pieces were not timed: how long what is in flight is, and since when it is served, is not
  /// known.
  void timed_from(uint64_t now_ns) {
    served_from_ = now_ns;
    longest_ = 0;
    bytes_ = 0;
    to_ = 0;
    behind_ = Behind::kUntimed;
  }
  /// The same, from the next piece on.
  void untimed() { timed_from(kNever); }
  /// A piece was posted that is not timed, because no other rail could have had it.
  void skipped() { skipped_ = true; }
  /// A piece that was posted at `posted_ns` was found to have ended at `now_ns`, by look number `look`; the
  /// look before it was at `looked_ns`, or earlier than all pieces when nobody looked. True: the cost has
  /// changed. `sample` gets the sample before, if it ends with that.
  bool ended(uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, uint32_t look, uint64_t looked_ns,
             Sample* sample = nullptr, Kind kind = Kind::kPiece);

  /// Nothing else that is timed is under way: the sample that is being taken is over. True: the cost has
  /// changed.
  bool settle(uint64_t now_ns) { return to_ != 0 && close(0, now_ns); }

  /// The peer, which times its pieces, says that so many bytes were moved.
  void written(uint64_t bytes) {
    if (behind_ != Behind::kUntimed || longest_ == 0) return;
    bytes_ -= std::min(bytes_, bytes);
    if (bytes_ == 0) behind_ = Behind::kTimed;
  }
  /// A grant has ended, of which the time is not known here.
  void grant_ended() {
    grant_ended_ = true;
    if (samples_ < kYoung) ++samples_;
  }
  bool grant_has_ended() const { return grant_ended_; }
  /// Mbit/s that it is known to move; 0: nothing is known.
  uint64_t moves() const { return rate_; }
  /// The peer has measured it. `timing`: pieces of this process are timed meanwhile: the end of each says
  /// since when the next one is served, and what the peer says does not.
  void told(uint64_t mbits, uint64_t now_ns, bool timing = false) {
    if (known() && mbits > rate_ + rate_ / 16) try_again_ = true;
    if (mbits >= 2 * uint64_t{rate_} || 2 * mbits <= rate_) try_after_ = kTryAfter;
    rate_ = static_cast<uint32_t>(std::clamp<uint64_t>(mbits, 1, UINT32_MAX));
    latency_ns_ = 0;
    if (!timing) served_from_ = now_ns;
    guessed_ = false;
    only_alone_ = false;
    by_messages_ = false;
    told_ = true;
    if (samples_ < kYoung) ++samples_;
  }
  /// It was not measured, but others over its port were, at `ns`: it counts like them until it is.
  void guess(Cost cost, uint64_t ns) {
    rate_ = static_cast<uint32_t>(std::clamp<uint64_t>(cost.rate, 1, UINT32_MAX));
    latency_ns_ = static_cast<uint32_t>(std::min<uint64_t>(cost.latency_ns, UINT32_MAX));
    last_ns_ = std::max(last_ns_, ns);
    guessed_ = true;
    only_alone_ = false;
    by_messages_ = false;
    if (samples_ < kGuessed) samples_ = kGuessed;
  }
  /// Is what is known of it of its own pieces, or of the peer's?
  bool own() const { return known() && !guessed_; }
  bool guessed() const { return guessed_; }
  bool was_told() const { return told_; }
  /// Has it had no piece for so many times what one takes? One more costs at most so much less of the time.
  /// A rail that has just become slow is tried soon, because one bad piece may have made it look so; each try
  /// that finds it slow doubles the wait. One that moved at twice what the rail is taken to move, or more, is
  /// followed by another at once.
  bool forgotten(uint64_t piece_ns, uint64_t now_ns) const {
    return try_again_ || (now_ns > last_ns_ && now_ns - last_ns_ > (piece_ns << try_after_));
  }
  /// Mbit/s that it is known to move by few samples, at least; 0: nothing is known of it. UINT64_MAX: by
  /// enough.
  uint64_t little_known() const {
    return samples_ >= kYoung ? UINT64_MAX : samples_ == 0 ? 0 : std::max(rate_, least_);
  }
  /// A piece goes out. True: it is the first one that asks, and tries the port for the rails of other peers.
  bool tries() {
    const bool first = !tried_;
    tried_ = true;
    return first;
  }
  /// Was it ever measured, or guessed?
  bool known() const { return rate_ != 0; }
  /// Is what is known of it only how long single short pieces took, their latency included? They took no
  /// longer than the latency of any rail may be, so that it may be much faster.
  bool only_alone() const { return known() && only_alone_ && latency_ns_ <= kSlackNs; }
  /// Mbit/s that it moves at least, while it was not measured well enough; 0: nothing is known.
  uint64_t least() const { return least_; }
  /// The same, at most.
  uint64_t most() const { return most_; }
  /// So long `bytes` take, as far as anything is known.
  uint64_t lasts_ns(uint64_t bytes) const {
    return known() ? cost().ns(bytes) : least_ != 0 ? Cost{least_, 0}.ns(bytes) : 0;
  }
  /// It was measured.
  Cost cost() const { return {rate_, latency_ns_ > kSlackNs ? latency_ns_ : 0}; }
  /// For so long what is in flight had been served at the last look.
  uint64_t age_ns(uint64_t looked_ns) const {
    return looked_ns > served_from_ ? looked_ns - served_from_ : 0;
  }
  /// The same, of a rail with `in_flight` bytes that had not ended at the last look: what is much later than
  /// it should be proves that the rail is slower, before it ends. Which of its pieces is served now is not
  /// kept: it may be the longest one.
  Cost cost_by_age(Cost c, uint64_t looked_ns, uint64_t in_flight) const {
    const uint64_t age = age_ns(looked_ns);
    if (age == 0 || longest_ == 0 || skipped_) return c;
    const uint64_t longest = together_                     ? in_flight
                             : behind_ == Behind::kUntimed ? bytes_ + longest_
                                                           : longest_;
    if (age > kLateTimes * c.ns(longest)) c = {rate_of(longest, age), 0};
    return c;
  }

 private:
  /// What was in flight before the pieces that end next.
  enum class Behind : uint8_t {
    kTimed,
    kUntimed,  ///< how long and since when is not known
    kLook      ///< the same, until the next look: it may all have been found by one
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr uint8_t kGuessed = 2;        ///< what others measured stands for so many samples
  static constexpr uint64_t kLateTimes = 4;     ///< a piece is late after so many times its cost
  static constexpr uint8_t kTryAfter = 5;       ///< log2 of the pieces, at first
  static constexpr uint8_t kTryAfterMost = 8;   ///< and at most
  static constexpr uint64_t kSlackNs = 50'000;  ///< latency of any rail; less is not worth a choice
  bool behind_untimed(uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, uint32_t look, uint64_t looked_ns,
                      bool* changed);
  bool moved_at_most(uint64_t bytes, uint64_t ns);
  bool close(uint64_t next, uint64_t next_posted_ns);
  void test_guess(uint64_t least_ns, uint64_t most_ns);
  bool learn_rate(uint64_t sample);
  bool learn_latency(uint64_t sample);
  bool raise(uint64_t sample);
  void is_faster() {
    try_again_ = true;
    try_after_ = kTryAfter;
  }

  uint64_t served_from_ = kNever;  ///< when the piece that is served now found the rail free
  uint64_t from_ = 0;              ///< the sample that is being taken: its pieces were served from here
  uint64_t to_ = 0;                ///< to here; 0: there is none
  uint64_t bytes_ = 0;             ///< in all; kUntimed: of what is ahead of the first piece that is timed
  uint64_t first_ = 0;             ///< the first of them
  uint64_t gap_ns_ = 0;            ///< the process had not looked for so long before it saw that
  uint64_t gap_before_ = 0;        ///< the same of the sample before
  uint64_t longest_ = 0;           ///< of the pieces that were posted since the rail was empty
  uint64_t last_ns_ = 0;           ///< when a piece was posted last
  uint32_t look_ = 0;
  uint32_t rate_ = 0;  ///< Mbit/s; 0: it was not measured
  uint32_t least_ = 0;
  uint32_t most_ = 0;
  uint32_t latency_ns_ = 0;
  bool alone_ = false;   ///< the first piece found the rail empty
  bool raised_ = false;  ///< what the first piece proves counts already
  bool try_again_ = false;
  uint8_t try_after_ = kTryAfter;
  Behind behind_ = Behind::kUntimed;
  bool guessed_ : 1 = false;
  bool told_ : 1 = false;         ///< what is known is what the peer has measured
  bool skipped_ : 1 = false;      ///< pieces that are not timed were posted since the last one that is
  bool grant_ended_ : 1 = false;  ///< a grant has ended
  bool together_ : 1 = false;     ///< grants were sent since the rail was empty
  bool by_messages_ : 1 = false;  ///< what was timed last was a message
  bool tried_ : 1 = false;        ///< tries() was called
  bool only_alone_ : 1 = false;   ///< `rate_` has the latency of short pieces in it
  uint8_t samples_ : 3 = 0;       ///< at most kYoung
};

inline bool Goodput::ended(uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, uint32_t look,
                           uint64_t looked_ns, Sample* sample, Kind kind) {
  bool changed = false;
  by_messages_ = kind == Kind::kMessage;
  if (behind_ != Behind::kTimed) [[unlikely]]
    if (behind_untimed(bytes, posted_ns, now_ns, look, looked_ns, &changed)) return changed;
  if (to_ != 0 && look != look_) {
    if (sample) *sample = {bytes_, to_ - from_, gap_ns_, gap_before_, alone_, posted_ns + gap_ns_ <= to_};
    changed = close(bytes, posted_ns);
  }
  if (to_ == 0) {
    from_ = std::max(posted_ns, served_from_);
    alone_ = posted_ns >= served_from_;
    first_ = bytes;
    bytes_ = 0;
    look_ = look;
    gap_ns_ = now_ns - std::min(now_ns, std::max(looked_ns, from_));
    to_ = std::max(now_ns, from_ + 1);
    served_from_ = to_;
    const uint64_t took = to_ - from_;
    raised_ = false;
    // A rail that is tried and is fast again must not wait for the next try to be seen to be.
    if (own() && alone_ && 2 * took <= cost().ns(bytes)) {
      is_faster();
      latency_ns_ = static_cast<uint32_t>(std::min<uint64_t>(latency_ns_, took));
      raised_ = raise(rate_of(bytes, took));
      changed = true;
    }
  }
  bytes_ += bytes;
  return changed;
}

/// A piece ended: is it the first behind some that were not timed, or one of those before it? When those were
/// served is not known, so that its time tells only that the rail moved no more than them and it since it was
/// posted, and when the rail was free for the next one. One that the same look finds took no longer than
/// since the look before, or since it was posted.
inline bool Goodput::behind_untimed(uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, uint32_t look,
                                    uint64_t looked_ns, bool* changed) {
  if (behind_ == Behind::kUntimed) {
    if (posted_ns < served_from_) return true;
    // FIN of a grant comes behind what was posted after it.
    if (bytes_ != 0 && !together_ && looked_ns > posted_ns)
      *changed = moved_at_most(bytes_ + bytes, looked_ns - posted_ns);
    behind_ = Behind::kLook;
    look_ = look;
    to_ = 0;
  } else if (look != look_) {
    behind_ = Behind::kTimed;
    return false;
  } else if (const uint64_t since = std::max(looked_ns, posted_ns); since < now_ns) {
    const uint64_t slowest = rate_of(bytes, now_ns - since);
    least_ = static_cast<uint32_t>(std::max<uint64_t>(least_, slowest));
    raise(slowest);
  }
  gap_before_ = now_ns - std::min(now_ns, std::max(looked_ns, served_from_));
  served_from_ = now_ns;
  return true;
}

/// So many bytes took so long or longer. That may be due to the peer, which had no room for them: of a rail
/// that was measured it does not count.
inline bool Goodput::moved_at_most(uint64_t bytes, uint64_t ns) {
  if (known()) return false;
  const uint64_t fastest = rate_of(bytes, ns);
  most_ = static_cast<uint32_t>(std::max(fastest, least()));
  return true;
}

/// All pieces of the sample are known: learns from it. They were moved in a time between two bounds: they
/// began before `from_` by at most the gap of the sample before, and ended before `to_` by at most their own.
/// The next piece, of `next` bytes, was posted at `next_posted_ns`: when that was before the process was
/// away, the rail was busy all the time.
inline bool Goodput::close(uint64_t next, uint64_t next_posted_ns) {
  const bool busy = next_posted_ns + gap_ns_ <= to_;
  const uint64_t took = to_ - from_;
  const uint64_t began_earlier = alone_ ? 0 : gap_before_;
  const bool one = alone_ && bytes_ == first_;
  const uint64_t least = took - std::min(took, gap_ns_);
  gap_before_ = gap_ns_;
  to_ = 0;
  told_ = false;
  if (samples_ < kYoung) ++samples_;
  if (guessed_) test_guess(least, took + began_earlier);
  if (only_alone_ && (!one || took > kSlackNs)) {  // better than all before
    only_alone_ = false;
    rate_ = 0;
    latency_ns_ = 0;
  }
  if (known() && least > 2 * cost().ns(bytes_)) try_after_ = kTryAfter;  // slow since just now
  const uint64_t slowest = rate_of(bytes_, took + began_earlier);
  if (!known() && !busy && took + began_earlier > 2 * least) {
    least_ = static_cast<uint32_t>(std::max<uint64_t>(least_, slowest));
    return true;
  }
  if (!known()) {
    only_alone_ = one && took <= kSlackNs;
    return learn_rate(std::max<uint64_t>(slowest, only_alone_ ? least_ : 0));
  }
  if (rate_ < slowest && samples_ < kYoung) {
    rate_ = static_cast<uint32_t>(slowest);
    return true;
  }
  if (rate_ < slowest) return raised_ || raise(slowest);
  if (one) {
    const uint64_t moving = bytes_ * kMbitNs / rate_;
    return least > moving ? learn_latency(least - moving) : learn_latency(0);
  }
  uint64_t fastest = rate_of(bytes_, least);
  if (busy) fastest = std::min(fastest, rate_of(bytes_ + next, took));
  return rate_ > fastest ? learn_rate(fastest) : true;
}

/// The first sample of its own: it took a time between these two. A rail that deviates from others over its
/// port by more than two is another one, and nothing is known of it.
inline void Goodput::test_guess(uint64_t least_ns, uint64_t most_ns) {
  guessed_ = false;
  const uint64_t should_ns = cost().ns(bytes_);
  if (least_ns <= 2 * should_ns && should_ns <= 2 * most_ns) return;
  rate_ = 0;
  latency_ns_ = 0;
  grant_ended_ = false;
}

/// Falls by half of the difference, rises by an eighth of it: a rail that got slow must not be used much
/// longer, one that got fast again has to prove it.
inline bool Goodput::learn_rate(uint64_t sample) {
  if (known() && sample > rate_) return raise(sample);
  rate_ = static_cast<uint32_t>(known() ? rate_ - (rate_ - sample) / 2 : sample);
  rate_ = std::max(rate_, 1u);
  return true;
}

inline bool Goodput::raise(uint64_t sample) {
  if (!known() || sample <= rate_) return false;
  const uint64_t step = std::min<uint64_t>((sample - rate_ + 7) / 8, rate_ / 4 + 1);
  rate_ = static_cast<uint32_t>(std::min<uint64_t>(rate_ + step, UINT32_MAX));
  return true;
}

inline bool Goodput::learn_latency(uint64_t sample) {
  const auto ns = static_cast<uint32_t>(std::min<uint64_t>(sample, UINT32_MAX));
  latency_ns_ = ns <= latency_ns_ ? ns : latency_ns_ + (ns - latency_ns_ + 3) / 4;
  return true;
}

}  // namespace bfo::xfer
