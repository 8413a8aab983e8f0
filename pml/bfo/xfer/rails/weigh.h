// SPDX-License-Identifier: BSD-3-Clause
//
// weigh.h: when what was measured of the rails of a peer (goodput.h) counts, and which of them then carry
// short messages. While all rails move about the same, everything goes by their nominal rates and loads.
#pragma once

#include <algorithm>
#include <utility>

#include "pml/bfo/xfer/rails/rail_choice.h"

namespace bfo::xfer {

/// What a piece of this size costs on each rail is compared.
inline constexpr uint64_t kCompared = 65536;
/// And of this size: READs that wait behind what goes the other way have a latency that hides the rate.
inline constexpr uint64_t kComparedLong = 1 << 20;
/// Rails are uneven from 1.3 times on, and even again below 1.2 times, after kInARow measurements in a row.
inline constexpr unsigned kUnevenTenths = 13;
inline constexpr unsigned kEvenTenths = 12;
/// A rail that takes so many times as long by the first of them gets short pieces until then.
inline constexpr unsigned kSeemsSlowTimes = 4;

/// What `rail` takes for a piece. A rail that was not measured counts like the fastest one that was, so that
/// it is. One whose READs end as fast as they are posted is limited by this process, and is not measured: it
/// moves at least a quarter of what it is said to (pace.h).
template <class P>
typename RailChoice<P>::Estimate RailChoice<P>::estimate(const RailT& rail) const {
  if (fixed()) [[unlikely]] {
    if (weighing_->weights == Weights::kNominal) return {{rail.limits.weight, 0}, Basis::kNominal};
    return {{uint64_t{rail.limits.given} * kGivenUnit, 0}, Basis::kGiven};
  }
  const Goodput& g = rail.goodput;
  if (rail.late == 0) {
    const Cost least{std::max<uint64_t>(rail.limits.weight / 4, 1), 0};
    if (measured_ && best_.ns(kCompared) < least.ns(kCompared)) return {best_, Basis::kKeepsUp};
    return {least, Basis::kKeepsUp};
  }
  if (g.only_alone())
    if (const Cost c = known_better(g.cost()); c.ns(kCompared) < g.cost().ns(kCompared))
      return {c, Basis::kLikeFastest};
  if (g.known())
    return {g.cost(), g.guessed() ? Basis::kPort : g.was_told() ? Basis::kTold : Basis::kMeasured};
  const Cost least{std::max<uint64_t>(g.least(), 1), 0};
  if (least.ns(kCompared) < best_.ns(kCompared)) return {least, Basis::kLeast};
  const Cost most{g.most(), 0};
  if (g.most() != 0 && most.ns(kCompared) > best_.ns(kCompared)) return {most, Basis::kMost};
  return {best_, Basis::kLikeFastest};
}

template <class P>
[[gnu::cold]] typename RailChoice<P>::Estimate RailChoice<P>::estimate_now(const RailT& rail) const {
  Estimate e = estimate(rail);
  const Cost now = cost_now(rail);
  if (now.rate != e.cost.rate) e = {now, Basis::kLate};
  return e;
}

template <class P>
[[gnu::cold]] uint64_t RailChoice<P>::exceeds_measured(const RailT& rail) const {
  const Estimate e = estimate(rail);
  return measured_ && e.basis == Basis::kLeast ? e.cost.rate : 0;
}

/// The cost of the fastest rail of which more is known than the time of one short piece alone, with its
/// latency; `own` if none is faster. A rail of which no more is known may be as fast as that one, and counts
/// like it.
template <class P>
typename RailChoice<P>::Cost RailChoice<P>::known_better(Cost own) const {
  for (unsigned i = 0; i < n_; ++i) {
    const Goodput& g = usable_[i]->goodput;
    if (g.known() && !g.only_alone() && g.cost().ns(kCompared) < own.ns(kCompared)) own = g.cost();
  }
  return own;
}

/// Does a piece of so many bytes take that many tenths of what it takes over the fastest rail, over the
/// slowest one? Both are set.
template <class P>
bool RailChoice<P>::far_apart(uint64_t bytes, unsigned tenths, RailT*& slow, RailT*& fast) {
  uint64_t most = 0;
  uint64_t least = UINT64_MAX;
  for (unsigned i = 0; i < n_; ++i) {
    const uint64_t ns = cost_now(*usable_[i]).ns(bytes);
    if (ns < least) fast = usable_[i];
    if (ns > most) slow = usable_[i];
    least = std::min(least, ns);
    most = std::max(most, ns);
  }
  return most * 10 > least * tenths;
}

/// Is the slowest rail so much slower than the fastest that this counts, or still does? What messages tell
/// counts if all that were timed over the one took longer than over the other; when the last one did,
/// `suspect_` is to be timed soon.
template <class P>
bool RailChoice<P>::differ() {
  RailT* slow = usable_[0];
  RailT* fast = usable_[0];
  suspect_ = nullptr;
  const unsigned tenths = uneven_ ? kEvenTenths : kUnevenTenths;
  if (!far_apart(kCompared, tenths, slow, fast) && !far_apart(kComparedLong, tenths, slow, fast))
    return false;
  if (uneven_ || fixed() || !(slow->goodput.by_messages() || fast->goodput.by_messages())) return true;
  if (slow->message_time.longer_than(fast->message_time)) return true;
  if (slow->message_time.last_longer_than(fast->message_time)) suspect_ = slow;
  return false;
}

/// Does what was measured last say that it takes so many times what the fastest does? One measurement does
/// not make rails uneven, but until there are enough its pieces are as short as those of one of which nothing
/// is known, and it carries no eager messages but those that are timed.
template <class P>
[[gnu::cold]] bool RailChoice<P>::seems_slow(const RailT& rail) const {
  const Goodput& g = rail.goodput;
  if (rail.late == 0) return false;
  if (g.by_messages()) {
    for (unsigned i = 0; i < n_; ++i)
      if (rail.message_time.last_longer_than(usable_[i]->message_time, kSeemsSlowTimes)) return true;
    return false;
  }
  if (against_ == 0 || (!g.known() && g.most() == 0)) return false;
  uint64_t least = UINT64_MAX;
  for (unsigned i = 0; i < n_; ++i) least = std::min(least, cost_now(*usable_[i]).ns(kCompared));
  return cost_now(rail).ns(kCompared) > kSeemsSlowTimes * least;
}

template <class P>
[[gnu::cold]] void RailChoice<P>::reconsider() {
  bool timed = false;
  for (unsigned i = 0; i < n_; ++i) timed = timed || usable_[i]->late != 0;
  doubted_ = n_ > 1 && timed && (against_ != 0 || (!measured_ && !all_proven()));
}

template <class P>
void RailChoice<P>::tries(RailT& rail, uint64_t now_ns) {
  if (weighing_ && !proven(rail) && rail.goodput.tries()) [[unlikely]]
    weighing_->ports.tries(rail.limits.port, &rail, now_ns);
}

template <class P>
[[gnu::cold]] bool RailChoice<P>::withheld(const RailT& rail, const RailT& other) const {
  return weighing_ && other.late != 0 && rail.inflight_bytes == 0 && other.inflight_bytes < kLongest &&
         !proven(rail) && weighing_->ports.tried(rail.limits.port, &rail, looked_ns_);
}

/// While this peer has measured nothing, a port that the rail of another peer tries comes last. And while
/// what was measured last contradicts that the rails are even, what seems to be slow does not have to be
/// proven to be.
template <class P>
[[gnu::cold]] bool RailChoice<P>::sooner_in_doubt(const RailT& a, const RailT& b, uint64_t bytes) const {
  if (!measured_)
    if (const bool held = withheld(b, a); held != withheld(a, b)) return held;
  if (uneven_ || seems_slow(a) || seems_slow(b)) return end_ns(a, bytes) < end_ns(b, bytes);
  return lighter(a, b);
}

template <class P>
[[gnu::cold]] void RailChoice<P>::weigh() {
  if (fixed()) [[unlikely]] {
    uneven_ = false;
    uneven_ = n_ > 1 && differ();
    doubted_ = false;
    return choose_swift();
  }
  best_ = Cost{};
  measured_ = false;
  for (unsigned i = 0; i < n_; ++i) {
    const Goodput& g = usable_[i]->goodput;
    if (!g.known() || (measured_ && g.cost().ns(kCompared) >= best_.ns(kCompared))) continue;
    best_ = g.cost();
    measured_ = true;
  }
  if (!measured_) return reconsider();
  if (const bool now = differ(); now == uneven_)
    against_ = 0;
  else if (++against_ >= kInARow) {
    uneven_ = now;
    against_ = 0;
  }
  was_uneven_ = uneven_;
  if (against_ != 0 || suspect_) until_sample_ = std::min(until_sample_, kSampleSoon);
  reconsider();
  choose_swift();
}

/// Short messages cost latency: they take the rails that are within the factor of the fastest, or, while
/// rails count as even, those that do not seem to be slow. Suspect rails carry none while others are up.
template <class P>
void RailChoice<P>::choose_swift() {
  n_swift_ = 0;
  uint64_t least = UINT64_MAX;
  for (unsigned i = 0; uneven_ && i < n_up_; ++i)
    least = std::min(least, cost_now(*usable_[i]).ns(kCompared));
  const auto slow = [&](const RailT& r) {
    if (uneven_) return cost_now(r).ns(kCompared) * 10 > least * kUnevenTenths;
    return questioned(r) && seems_slow(r);
  };
  for (unsigned i = 0; i < n_up_; ++i)
    if (!slow(*usable_[i])) swift_[n_swift_++] = static_cast<uint8_t>(i);
  // Messages say this of one, and pieces of all others.
  for (unsigned i = 0; n_swift_ == 0 && i < n_up_; ++i) swift_[i] = static_cast<uint8_t>(i);
  if (n_swift_ == 0) n_swift_ = n_up_;
  for (unsigned i = 0; !uneven_ && !fixed() && advised_ && i < n_up_; ++i) {
    if (usable_[i] != advised_) continue;
    swift_[0] = static_cast<uint8_t>(i);
    n_swift_ = 1;
  }
  if (next_ >= n_swift_) next_ = 0;
}

/// Pairs of processes use different rails for short messages. One that takes longer for them than another one
/// is not used while it does.
template <class P>
[[gnu::cold]] void RailChoice<P>::choose_nearer() {
  RailT* const usual_one = usual();
  if (!usual_one) return;
  RailT* nearest = usual_one;
  for (unsigned i = 0; i < n_swift_; ++i) {
    RailT* const r = usable_[swift_[i]];
    if (r->short_time.known() && r->short_time.ns() < nearest->short_time.ns()) nearest = r;
  }
  const ShortTime& now = (nearer_ && swift(*nearer_) ? nearer_ : usual_one)->short_time;
  if (now.longer_than(nearest->short_time))
    nearer_ = nearest;
  else if (nearer_ && usual_one->short_time.as_short_as(now))
    nearer_ = nullptr;
}

template <class P>
[[gnu::cold]] void RailChoice<P>::sample_short(uint32_t messages, uint64_t now_ns) {
  const uint64_t from_ns = std::exchange(short_from_ns_, now_ns);
  short_gap_ns_ = from_ns == 0 || messages == 0 ? 0 : (now_ns - from_ns) / messages;
  if (n_ < 2 || fixed()) return;
  if (!preferred_ || timed_) return short_untimed();
  const auto idle = [](const RailT& r) { return r.samples_out == 0 && r.inflight_bytes == 0; };
  RailT* chosen = idle(*preferred_) ? preferred_ : nullptr;
  bool timing = false;  // what is timed now is followed by others soon
  for (unsigned i = 0; i < n_; ++i) {
    RailT& r = *usable_[i];
    timing = timing || r.samples_out != 0;
    if (!idle(r) || !r.short_time.forgotten(now_ns)) continue;
    if (!chosen || r.short_time.last_ns() < chosen->short_time.last_ns()) chosen = &r;
  }
  if (!chosen) return timing ? void() : short_untimed();
  timed_ = chosen;
  preferred_ = nullptr;
}

template <class P>
[[gnu::cold]] void RailChoice<P>::short_ended(RailT& rail, uint64_t took_ns, uint64_t now_ns) {
  if (short_gap_ns_ != 0 && took_ns > kShortAhead * short_gap_ns_ && &rail == default_preferred()) {
    short_soon_ = 0;
    return;
  }
  const bool news = rail.short_time.ended(took_ns, now_ns);
  if (short_soon_ != 0)
    --short_soon_;
  else if (news)
    short_soon_ = ShortTime::kSamples;
  for (unsigned i = 0; i < n_; ++i)
    if (!usable_[i]->short_time.known()) short_soon_ = ShortTime::kSamples;
  choose_nearer();
}

template <class P>
uint8_t RailChoice<P>::first_sample() const {
  return weighing_ && weighing_->choices >= kManyPeers ? kSampleFirst : kSampleSoon;
}

/// The rail of an eager message that is timed: one that was not measured well, or that seems to be slow, or
/// that has not been used for long, or the usual one.
template <class P>
[[gnu::cold]] Rail<P>* RailChoice<P>::sample_rail() {
  until_sample_ = kSampleEvery;
  RailT* const usual = preferred_ ? preferred_ : next();
  if (fixed()) return usual;
  if (against_ != 0) until_sample_ = kSampleSoon;
  if (usual && usual->samples_out == 0) timed_ = usual;
  RailT* doubted = nullptr;
  RailT* few = nullptr;
  for (unsigned i = 0; i < n_; ++i) {
    RailT& r = *usable_[(turn_ + i) % n_];
    if (r.late == 0) continue;
    const bool known = r.goodput.known() || r.goodput.least() != 0;
    const bool doubt = &r == suspect_ || (questioned(r) && seems_slow(r));
    const bool compared = uneven_ || r.message_time.known();
    if (!known) until_sample_ = first_sample();
    if (doubt || !compared) until_sample_ = std::min(until_sample_, kSampleSoon);
    if (r.samples_out != 0) continue;
    if (!known) {
      ++turn_;
      return timed_ = &r;
    }
    if (doubt) doubted = &r;
    if (!compared && !doubt && !few) few = &r;
    if (r.goodput.forgotten(estimate(r).cost.ns(kRun), looked_ns_)) timed_ = &r;
  }
  if (few)
    timed_ = few;
  else if (doubted)
    timed_ = doubted;
  return timed_ ? timed_ : usual;
}

template <class P>
[[gnu::cold]] bool RailChoice<P>::take_advice(RailT* rail) {
  if (rail && !has(rail)) return false;
  advised_ = rail;
  fast_ = rail ? rail->index : kMaxRails;
  if (fixed()) return false;
  choose_swift();
  return true;
}

/// Is the suspect `rail` so much faster than all that are up that its silence is more likely to end than they
/// are to move as much? What it holds grows old meanwhile, and it counts as slower with each look. While
/// rails do not count as uneven yet, it has to be much faster.
template <class P>
[[gnu::cold]] bool RailChoice<P>::much_faster(const RailT& rail) const {
  const unsigned tenths = was_uneven_ ? kUnevenTenths : 10 * kSeemsSlowTimes;
  const auto ns = [this](const RailT& r) { return estimate(r).cost.ns(kComparedLong); };
  for (unsigned i = 0; i < n_up_; ++i)
    if (ns(*usable_[i]) * 10 <= ns(rail) * tenths) return false;
  return true;
}

/// What others have measured three times in a row counts at once.
template <class P>
[[gnu::cold]] void RailChoice<P>::consult(uint64_t now_ns) {
  news_ = weighing_->ports.news();
  bool any = false;
  for (unsigned i = 0; i < n_; ++i) {
    RailT& r = *usable_[i];
    if (r.goodput.own()) continue;
    const PortModels::Guess g = weighing_->ports.guess(r.limits.port, now_ns);
    if (g.ns == 0) continue;
    r.goodput.guess(g.cost, g.ns);
    any = true;
  }
  if (!any) return;
  against_ = kInARow - 1;
  weigh();
}

/// Of an empty rail the latency counts: its piece is to end with those of the others. And what looks like one
/// may be a rate, while all pieces are of one size: a piece of another size shows that.
template <class P>
Share RailChoice<P>::uneven_share(const RailT& rail, uint64_t left) const {
  const uint64_t bytes = std::clamp(left, kCompared, kComparedLong);
  const auto moves = [this, bytes](const RailT& r) {
    const Cost c = cost_now(r);
    return r.inflight_bytes == 0 ? c.rate_alone(bytes) : c.rate;
  };
  Share s{moves(rail), 1, 0, proven(rail), false, longest(rail)};
  for (unsigned i = 0; i < n_; ++i) {
    const uint64_t rate = moves(*usable_[i]);
    s.best = std::max(s.best, rate);
    s.sum += rate;
  }
  s.alone = left != 0 && ends_first(rail, left);
  return s;
}

/// Would `rail` have moved `bytes` more before any other one has moved as much as a piece is long at least?
/// No, if another one is to be tried.
template <class P>
bool RailChoice<P>::ends_first(const RailT& rail, uint64_t bytes) const {
  const uint64_t end = cost_now(rail).ns(rail.inflight_bytes + bytes);
  for (unsigned i = 0; i < n_; ++i)
    if (usable_[i] != &rail && end_ns(*usable_[i], kTry) <= end) return false;
  return true;
}

}  // namespace bfo::xfer
