// SPDX-License-Identifier: BSD-3-Clause
//
// pace.h: which rails keep up with the process, and what the others move. A rail keeps up while each of its
// READs has ended by the next look at that rail (Rail::late): then the processor is the limit, and not the
// rail. Of the others, the pieces of long messages are timed, for the model of the rail (rails/goodput.h).
// Counts the looks at all rails, and reads the clock at a look while a piece is timed. turn() may be called
// by any thread, the rest under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pml/bfo/xfer/rails/judge.h"
#include "pml/bfo/xfer/rails/order.h"
#include "pml/bfo/xfer/rails/rail_state.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Pace {
 public:
  using Frag = typename P::Frag;

  /// `base` outlives it.
  explicit Pace(Base<P>& base) : base_(base), port_(base.port) {}

  /// All rails have been read since the last call.
  void turn() {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (watch_until_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      look(port_.now_ns());
  }
  /// Notes that the READ or FRAG `f`, or an RNDV with first bytes, is about to be posted, if another rail
  /// could have it. Its bytes are not counted as in flight yet.
  void begin(Frag& f) {
    if (f.xfer.peer->choice.size() >= 2)
      begin_of_several(f);
    else
      f.xfer.rail->goodput.skipped();
  }
  /// The same, of an RNDV with first bytes. Alone on its rail it is not timed: it is short, so that what is
  /// slow for FRAGs would pass for the latency of any rail.
  void begin_first(Frag& f) {
    if (f.xfer.rail->inflight_bytes != 0)
      begin(f);
    else
      f.xfer.rail->goodput.skipped();
  }
  /// A message to or from `p` is about to be planned.
  void plan(Peer<P>& p) {
    if (p.choice.outdated()) [[unlikely]]
      consult(p);
  }
  /// The READ `f` has ended well.
  void ended(const Frag& f) {
    if (f.xfer.posted_ns != 0) judge(f);
  }
  /// The FRAG or RNDV `f` has ended well.
  void frag_ended(const Frag& f) {
    const auto& x = f.xfer;
    if (x.posted_ns > kUntimed) measure(*x.rail, x.length, x.posted_ns, port_.now_ns(), Way::kOut);
  }
  /// The write `f` has ended, well or not.
  void write_ended(const Frag& f) {
    f.xfer.rail->writes.ended(f.xfer.length, turns_.load(std::memory_order_relaxed));
  }
  /// The sample message `f` has ended well. It ends its sample: the next one is some time away.
  void sample_ended(const Frag& f) {
    const auto& x = f.xfer;
    if (x.posted_ns == 0) return;
    const uint64_t now = port_.now_ns();
    if (x.length < base_.config.short_limit) return short_ended(*x.rail, now - x.posted_ns, now);
    x.rail->message_time.ended(now - x.posted_ns);
    measure(*x.rail, x.length, x.posted_ns, now, Way::kGuessed);
    if (x.rail->inflight_bytes == 0 && x.rail->goodput.settle(now))
      x.rail->peer->choice.share_measured(*x.rail, now);
    weigh(*x.rail->peer);
  }
  /// A grant of `bytes` to `rail` goes out.
  void granted(Rail<P>& rail, uint64_t bytes) {
    if (rail.peer->choice.size() < 2) return rail.goodput.skipped();
    const uint64_t now = port_.now_ns();
    rail.peer->choice.tries(rail, now);
    rail.goodput.granted(bytes, now, rail.inflight_bytes);
    watch(rail, bytes, now, kWatchNs);
  }
  /// The peer, which writes, says that `rail` moves so many Mbit/s. FINs of several grants come at once,
  /// behind the last of the writes: their receiver cannot tell.
  /// `bytes` were written. `at_least`: it was not measured, and moves that or more: what is known here counts
  /// if it is more.
  void told(Rail<P>& rail, uint64_t mbits, uint64_t bytes = 0, bool at_least = false) {
    if (rail.peer->choice.size() < 2) return;
    const uint64_t now = port_.now_ns();
    rail.goodput.written(bytes);
    if (at_least && mbits <= rail.goodput.moves()) return;
    rail.goodput.told(mbits, now, !rail.writes.empty());
    rail.peer->choice.has_tried(rail);
    if (!at_least) rail.peer->choice.share_measured(rail, now);
    weigh(*rail.peer);
  }
  /// The message `f` has ended, or was not posted.
  static void sample_over(const Frag& f) {
    if (f.xfer.posted_ns != 0) [[unlikely]]
      --f.xfer.rail->samples_out;
  }
  /// The same of a short message: how long it takes tells nothing about what the rail moves.
  uint64_t begin_short(Rail<P>& rail) {
    if (rail.inflight_bytes != 0 || rail.samples_out != 0) return 0;
    ++rail.samples_out;
    return port_.now_ns();
  }
  /// What its rail has to send before a message that is to be timed.
  enum class Before : uint8_t {
    kNothing,
    kUnknown,  ///< how much is not known: the end of this one is when the next one begins
    kSample    ///< one that was begun with kUnknown
  };
  /// A message of `bytes` is about to be posted to be timed, behind others of at most `ahead` bytes. 0: it is
  /// not, because pieces of long messages are under way, or another sample, which are: their time would not
  /// be known any more.
  uint64_t begin_sample(Rail<P>& rail, uint64_t bytes, Before before = Before::kNothing, uint64_t ahead = 0) {
    plan(*rail.peer);
    if (rail.inflight_bytes != 0 || (rail.samples_out != 0 && before != Before::kSample)) return 0;
    if (before == Before::kUnknown) rail.goodput.skipped();
    ++rail.samples_out;
    const bool alone = before == Before::kNothing;
    return begin_timed(rail, bytes, alone, ahead, alone ? kWatchSampleNs : kWatchNs);
  }

 private:
  void begin_of_several(Frag& f);
  void judge(const Frag& f);
  void keeps_up_no_more(Rail<P>& rail);
  void look(uint64_t now_ns);
  void consult(Peer<P>& p);
  static void weigh(Peer<P>& p) {
    p.choice.weigh();
    settle_preferred(p);
  }
  void short_ended(Rail<P>& rail, uint64_t took_ns, uint64_t now_ns);
  uint64_t begin_timed(Rail<P>& rail, uint64_t bytes, bool alone, uint64_t ahead,
                       uint64_t watch_ns = kWatchNs);
  void watch(Rail<P>& rail, uint64_t bytes, uint64_t now_ns, uint64_t watch_ns);
  /// Where the bytes of a timed piece went; how many they were is a guess.
  enum class Way : uint8_t { kIn, kOut, kGuessed };
  void measure(Rail<P>& rail, uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, Way way);
  static void learned(Rail<P>& rail, uint64_t now_ns) {
    rail.peer->choice.has_tried(rail);
    rail.peer->choice.share_measured(rail, now_ns);
    weigh(*rail.peer);
  }
  static bool soon(const Rail<P>& rail, uint64_t bytes, uint64_t ns);

  static constexpr uint64_t kUntimed = 1;  ///< posted_ns of a READ on a rail that keeps up
  /// So long after the last one looks read the clock: as long as a piece of a slow rail takes, and what eager
  /// messages stand before one there, and one that is alone; and twice as long as it takes on that rail, as
  /// far as that is known.
  static constexpr uint64_t kWatchNs = 50'000'000;
  static constexpr uint64_t kWatchSampleNs = 5'000'000;
  static constexpr uint64_t kMostWatchNs = 10'000'000'000;

  Base<P>& base_;
  P& port_;
  std::atomic<uint32_t> turns_ = 0;
  std::atomic<uint64_t> watch_until_ = 0;  ///< looks read the clock; 0: no piece was timed for a while
  std::atomic<uint64_t> looked_ns_ = 0;    ///< the last look that did
};

/// Could `rail` have moved `bytes` in that time at its nominal rate, or at a quarter of it? What took longer,
/// because the rail is slower or this process was away meanwhile, does not tell that the rail keeps up.
template <class P>
bool Pace<P>::soon(const Rail<P>& rail, uint64_t bytes, uint64_t ns) {
  constexpr uint64_t kSlackNs = 20'000;
  constexpr uint64_t kMbitNs = 8000;  // nanoseconds of one byte at 1 Mbit/s
  return ns < kSlackNs || (ns - kSlackNs) * rail.limits.weight < 4 * kMbitNs * bytes;
}

template <class P>
[[gnu::noinline]] void Pace<P>::begin_of_several(Frag& f) {
  auto& x = f.xfer;
  x.turn = turns_.load(std::memory_order_relaxed);
  x.posted_ns = kUntimed;  // of a rail that keeps up only turns count
  if (x.rail->late == 0) return;
  const uint64_t ahead = x.rail->inflight_bytes;
  x.posted_ns = begin_timed(*x.rail, x.length, ahead == 0, ahead);
}

/// A piece that is not in flight yet is about to be posted; `alone`: there is nothing before it, else at most
/// `ahead` bytes. Returns the time.
template <class P>
uint64_t Pace<P>::begin_timed(Rail<P>& rail, uint64_t bytes, bool alone, uint64_t ahead, uint64_t watch_ns) {
  const uint64_t now = port_.now_ns();
  rail.peer->choice.tries(rail, now);
  rail.goodput.posted(bytes, now, alone, ahead);
  watch(rail, bytes, now, watch_ns);
  return now;
}

/// Looks read the clock until it should have ended.
template <class P>
void Pace<P>::watch(Rail<P>& rail, uint64_t bytes, uint64_t now_ns, uint64_t watch_ns) {
  rail.peer->choice.looked(looked_ns_.load(std::memory_order_relaxed));
  const uint64_t lasts_ns = std::min(2 * rail.goodput.lasts_ns(rail.inflight_bytes + bytes), kMostWatchNs);
  const uint64_t until = now_ns + std::max(watch_ns, lasts_ns);
  if (until > watch_until_.load(std::memory_order_relaxed))
    watch_until_.store(until, std::memory_order_relaxed);
}

template <class P>
[[gnu::cold]] void Pace<P>::short_ended(Rail<P>& rail, uint64_t took_ns, uint64_t now_ns) {
  rail.peer->choice.short_ended(rail, took_ns, now_ns);
  settle_preferred(*rail.peer);
}

/// A timed piece has ended well.
template <class P>
void Pace<P>::measure(Rail<P>& rail, uint64_t bytes, uint64_t posted_ns, uint64_t now_ns, Way way) {
  const uint64_t looked = looked_ns_.load(std::memory_order_relaxed);
  auto& choice = rail.peer->choice;
  choice.looked(looked);
  const uint32_t turn = turns_.load(std::memory_order_relaxed);
  Goodput::Sample sample;
  const Goodput::Kind kind = way == Way::kGuessed ? Goodput::Kind::kMessage : Goodput::Kind::kPiece;
  if (!rail.goodput.ended(bytes, posted_ns, now_ns, turn, looked, &sample, kind)) return;
  if (way != Way::kGuessed) note_moved(base_, rail, sample, way == Way::kIn);
  learned(rail, now_ns);
  judge_rails(base_, *rail.peer, now_ns);
}

template <class P>
[[gnu::cold, gnu::noinline]] void Pace<P>::consult(Peer<P>& p) {
  p.choice.consult(port_.now_ns());
  settle_preferred(p);
}

/// While pieces are timed it matters when the rails were looked at.
template <class P>
[[gnu::cold]] void Pace<P>::look(uint64_t now_ns) {
  looked_ns_.store(now_ns, std::memory_order_relaxed);
  if (now_ns > watch_until_.load(std::memory_order_relaxed)) watch_until_.store(0, std::memory_order_relaxed);
}

/// Its pieces are timed from now on.
template <class P>
void Pace<P>::keeps_up_no_more(Rail<P>& rail) {
  if (rail.late == 0) rail.goodput.timed_from(port_.now_ns());
  rail.late = port_.reads_in_time(kLate);
}

/// The READ `f` has ended well. Was that seen when its rail was read next, or was it under way while others
/// were?
template <class P>
[[gnu::noinline]] void Pace<P>::judge(const Frag& f) {
  const auto& x = f.xfer;
  const bool in_time = turns_.load(std::memory_order_relaxed) - x.turn <= 1;
  const uint64_t now = x.posted_ns > kUntimed ? port_.now_ns() : 0;
  if (!in_time)
    keeps_up_no_more(*x.rail);
  else if (x.rail->late != 0 && now != 0 && soon(*x.rail, x.length, now - x.posted_ns) && --x.rail->late == 0)
    x.rail->peer->choice.reconsider();
  if (now != 0) measure(*x.rail, x.length, x.posted_ns, now, Way::kIn);
}

}  // namespace bfo::xfer
