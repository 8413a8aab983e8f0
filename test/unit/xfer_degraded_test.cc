// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_degraded_test.cc: what is said of rails whose rates change, in virtual time: the real model, choice of
// rails and judge, over wires that move pieces one after the other.
#include "pml/bfo/xfer/rails/degraded.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <string>

#include "pml/bfo/xfer/moves/pace.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kKiB = 1024;
constexpr double kFull = 0.1;  // bytes per nanosecond of a good rail: 800 Mbit/s

/// Part of its full rate that a rail has at a time.
using Course = std::function<double(uint64_t)>;

Course steady(double part) {
  return [part](uint64_t) { return part; };
}
Course slow_from(uint64_t t, double part) {
  return [=](uint64_t now) { return now < t ? 1 : part; };
}
Course slow_between(uint64_t from, uint64_t to, double part) {
  return [=](uint64_t now) { return now < from || now >= to ? 1 : part; };
}
Course wave(uint64_t half, double part) {
  return [=](uint64_t now) { return now / half % 2 == 0 ? 1 : part; };
}
Course ramp(uint64_t from, uint64_t ns, double to) {
  return [=](uint64_t now) {
    if (now < from) return 1.0;
    const double x = std::min(1.0, static_cast<double>(now - from) / static_cast<double>(ns));
    return 1 + (to - 1) * x;
  };
}

/// One way of a process to its peer: what it says, and what it costs.
struct Job {
  explicit Job(std::vector<Course> of) : courses(std::move(of)), p(static_cast<unsigned>(courses.size())) {
    for (unsigned i = 0; i < courses.size(); ++i) {
      p.rails[i].limits.weight = 100'000;
      p.rails[i].late = kLate;
    }
    port.now = kSecond;
  }
  ~Job() {
    for (auto& r : p.rails) free_degraded(base, r);
    EXPECT_EQ(port.live, 0);
  }
  struct Piece {
    std::unique_ptr<TinyPort::Frag> f;
    uint64_t ends;
  };

  /// When a piece that is served from `t` on has been moved.
  uint64_t moved(unsigned rail, uint64_t t, uint64_t bytes) {
    auto left = static_cast<double>(bytes) * (jitter ? spread(dice) : 1);
    for (;;) {
      const double rate = kFull * courses[rail](t - kSecond);
      const double step = std::min(static_cast<double>(kMs), left / rate);
      left -= step * rate;
      t += static_cast<uint64_t>(step) + 1;
      if (left < 1) return t + latency_ns;
    }
  }
  /// Posts until every rail has its depth.
  void post() {
    for (;;) {
      Rail<TinyPort>* const r = p.peer.choice.lightest(full(), length);
      if (!r) return;
      uint64_t bytes = length;
      const Share s = p.peer.choice.share(*r);
      if (!whole && p.peer.choice.uneven()) bytes = std::max<uint64_t>(16 * kKiB, length * s.rate / s.best);
      // Where it would end later than over the fastest rail it is not used: then that one's queue is full.
      Piece piece{std::make_unique<TinyPort::Frag>(), 0};
      auto& x = piece.f->xfer;
      x.peer = &p.peer;
      x.rail = r;
      x.length = bytes;
      pace.begin(*piece.f);
      r->inflight_bytes += bytes;
      auto& q = queues[r->index];
      piece.ends = moved(r->index, std::max(port.now, q.empty() ? free_at[r->index] : q.back().ends), bytes);
      free_at[r->index] = piece.ends;
      q.push_back(std::move(piece));
    }
  }
  uint32_t full() const {
    uint32_t refused = 0;
    unsigned all = 0;
    for (unsigned i = 0; i < courses.size(); ++i) {
      if (queues[i].size() >= depth) refused |= 1u << i;
      all += static_cast<unsigned>(queues[i].size());
    }
    return all >= window ? ~0u : refused;
  }
  /// The first look at or after `t`.
  uint64_t look_after(uint64_t t) const {
    const uint64_t at = (t + gap_ns - 1) / gap_ns * gap_ns;
    const uint64_t since = (at - kSecond) % (away_every_ns + 1);
    return away_ns != 0 && since < away_ns ? at + away_ns - since : at;
  }
  void run(uint64_t ns) {
    const uint64_t end = port.now + ns;
    post();
    while (port.now < end) {
      uint64_t next = UINT64_MAX;
      for (unsigned i = 0; i < courses.size(); ++i)
        if (!queues[i].empty()) next = std::min(next, queues[i].front().ends);
      const uint64_t look = look_after(std::max(next, port.now + 1));
      // The looks that found nothing.
      if (away_ns == 0 && look > port.now + gap_ns) port.now = look - gap_ns;
      pace.turn();
      port.now = look;
      for (unsigned i = 0; i < courses.size(); ++i) {
        auto& q = queues[i];
        while (!q.empty() && q.front().ends <= port.now) {
          p.rails[i].inflight_bytes -= q.front().f->xfer.length;
          bytes[i] += q.front().f->xfer.length;
          pace.ended(*q.front().f);
          p.rails[i].late = kLate;
          q.pop_front();
        }
      }
      pace.turn();
      post();
    }
  }
  unsigned words(bool degraded) const {
    unsigned n = 0;
    for (const DegradedEvent& e : port.told) n += e.degraded == degraded;
    return n;
  }

  std::vector<Course> courses;
  uint64_t length = 128 * kKiB;
  unsigned depth = 2;
  unsigned window = 1000;
  bool whole = false;  // pieces are not cut for slow rails
  uint64_t gap_ns = 20 * kUs;
  uint64_t latency_ns = 5 * kUs;
  uint64_t away_ns = 0;
  uint64_t away_every_ns = 0;
  bool jitter = false;
  std::mt19937 dice{7};
  std::lognormal_distribution<double> spread{0, 1};  // a piece takes so many times as long
  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  Pace<TinyPort> pace{base};
  TinyPeer p;
  std::deque<Piece> queues[kMaxRails];
  uint64_t free_at[kMaxRails] = {};
  uint64_t bytes[kMaxRails] = {};
};

constexpr uint64_t kTenMinutes = 600 * kSecond;

// ---- what must be said, once, and soon

struct Told {
  const char* name;
  std::vector<Course> courses;
  uint64_t at;      // when the last rail gets slow
  uint64_t within;  // a second is the bound
  bool before;      // it was well before
};

TEST(Degraded, RailThatGotSlow_IsToldOnceAfterTheBound) {
  const Told all[] = {
      {"a tenth", {steady(1), slow_from(5 * kSecond, 0.1)}, 5 * kSecond, 1800 * kMs, true},
      {"a sixth", {steady(1), slow_from(5 * kSecond, 0.16)}, 5 * kSecond, 1800 * kMs, true},
      {"a hundredth", {steady(1), slow_from(5 * kSecond, 0.01)}, 5 * kSecond, 2500 * kMs, true},
      {"from the start", {steady(1), steady(0.1)}, 0, 1800 * kMs, false},
      {"one of four", {steady(1), steady(1), steady(1), slow_from(kSecond, 0.1)}, kSecond, 1800 * kMs, true},
      {"ramp", {steady(1), ramp(kSecond, 10 * kSecond, 0.1)}, 10 * kSecond, 2500 * kMs, true},
  };
  for (const Told& t : all) {
    SCOPED_TRACE(t.name);
    Job job(t.courses);
    const auto last = static_cast<int32_t>(t.courses.size()) - 1;
    job.run(t.at);
    const uint64_t from = job.port.now;
    while (job.port.told.empty() && job.port.now < from + t.within + kSecond) job.run(10 * kMs);
    ASSERT_EQ(job.words(true), 1u);
    EXPECT_LE(job.port.now - from, t.within);
    if (std::string(t.name) != "ramp") {
      EXPECT_GE(job.port.now - from, 950 * kMs) << "the bound";
    }
    const DegradedEvent e = job.port.told[0];
    EXPECT_EQ(e.rail, last);
    EXPECT_TRUE(e.in);
    EXPECT_EQ(e.before != 0, t.before);
    if (t.before) {
      EXPECT_NEAR(e.before, 800, 100);
    }
    EXPECT_NEAR(e.others, 800, 100);
    EXPECT_LT(e.rate * 4, e.others);
    job.run(60 * kSecond);
    EXPECT_EQ(job.port.told.size(), 1u) << "said once, and it lasts";
    EXPECT_EQ(job.base.counters.rails_degraded, 1u);
    EXPECT_GT(job.bytes[last], 0u);
  }
}

/// With enough under way the rails are busy whenever the process is not there.
TEST(Degraded, ProcessThatLooksSeldom_SeesIt_IfTheRailsAreBusyMeanwhile) {
  for (const uint64_t gap : {3 * kMs, 20 * kMs, 60 * kMs}) {
    SCOPED_TRACE(gap);
    Job job({steady(1), slow_from(2 * kSecond, 0.1)});
    job.gap_ns = gap;
    job.depth = 100;
    job.jitter = true;
    job.run(2 * kSecond);
    EXPECT_EQ(job.port.told.size(), 0u);
    job.run(12 * kSecond);
    EXPECT_EQ(job.words(true), 1u);
  }
}

TEST(Degraded, RailThatIsWellAgain_IsToldAfterTenTimesTheBound) {
  Job job({steady(1), slow_between(2 * kSecond, 12 * kSecond, 0.1)});
  job.run(12 * kSecond);
  ASSERT_EQ(job.words(true), 1u);
  job.run(9 * kSecond);
  EXPECT_EQ(job.words(false), 0u);
  job.run(4 * kSecond);
  EXPECT_EQ(job.words(false), 1u);
  EXPECT_EQ(job.base.counters.rails_degraded, 0u);
  EXPECT_EQ(job.base.counters.degradations, 1u);
  job.run(60 * kSecond);
  EXPECT_EQ(job.port.told.size(), 2u);
}

// ---- no oscillation: not more words than the holds that double allow

TEST(Degraded, SquareWaves_HaveFewWords) {
  for (const uint64_t half :
       {5ul, 10ul, 50ul, 100ul, 250ul, 500ul, 1000ul, 2000ul, 5000ul, 10000ul, 20000ul}) {
    for (const double part : {0.5, 0.1, 0.02}) {
      SCOPED_TRACE(std::to_string(half) + " ms, " + std::to_string(part));
      Job job({steady(1), wave(half * kMs, part)});
      job.run(kTenMinutes / 4);
      EXPECT_LE(job.words(true), half <= 5000 ? 1u : 4u);
      EXPECT_LE(job.words(false), half <= 5000 ? 0u : 4u);
      if (part == 0.5) {
        EXPECT_EQ(job.port.told.size(), 0u);
      }
    }
  }
}

// ---- what must never be said

struct Never {
  const char* name;
  std::vector<Course> courses;
  std::function<void(Job&)> set;
};

TEST(Degraded, NothingWrong_NothingIsSaidInTenMinutes) {
  const auto busy = [](Job& j) { j.jitter = true; };
  const Never all[] = {
      {"equal rails with jitter", {steady(1), steady(1)}, busy},
      {"four of them", {steady(1), steady(1), steady(1), steady(1)}, busy},
      {"half as fast", {steady(1), steady(0.5)}, busy},
      {"a third", {steady(1), steady(0.34)}, [](Job&) {}},
      {"all slow from a moment on",
       {slow_from(kSecond, 0.05), slow_from(kSecond, 0.05)},
       [](Job& j) { j.jitter = true; }},
      {"all slow in turn, together", {wave(700 * kMs, 0.05), wave(700 * kMs, 0.05)}, [](Job&) {}},
      {"process away most of the time",
       {steady(1), steady(1)},
       [](Job& j) { j.away_ns = 300 * kMs, j.away_every_ns = 400 * kMs; }},
      {"process that looks seldom",
       {steady(1), steady(1)},
       [](Job& j) { j.gap_ns = 3 * kMs, j.jitter = true; }},
      {"the same, and much under way",
       {steady(1), steady(0.3)},
       [](Job& j) { j.gap_ns = 40 * kMs, j.depth = 50, j.jitter = true; }},
      {"64 KiB only",
       {steady(1), steady(1)},
       [](Job& j) { j.length = 64 * kKiB, j.whole = true, j.window = 1, j.jitter = true; }},
      {"64 KiB only, four under way",
       {steady(1), steady(1)},
       [](Job& j) { j.length = 64 * kKiB, j.whole = true, j.window = 4, j.jitter = true; }},
      {"long pieces", {steady(1), steady(1)}, [](Job& j) { j.length = 1024 * kKiB, j.jitter = true; }},
      {"far", {steady(1), steady(1)}, [](Job& j) { j.latency_ns = kMs, j.jitter = true; }},
  };
  for (const Never& n : all) {
    SCOPED_TRACE(n.name);
    Job job(n.courses);
    n.set(job);
    job.run(kTenMinutes);
    EXPECT_EQ(job.port.told.size(), 0u);
    EXPECT_GT(job.bytes[0], 0u);
  }
}

/// Two samples of a MiB, 40 ms each, by a process that had not looked for 30 ms, and for 5 ms before the
/// first.
TEST(Degraded, TimeThatIsNotKnown_CountsForTheRail) {
  constexpr uint64_t kMiB = 1024 * kKiB;
  Degraded apart;
  Degraded together;
  for (const uint64_t before : {5 * kMs, 30 * kMs}) {
    apart.moved({kMiB, 40 * kMs, 30 * kMs, before, false, false}, true);
    together.moved({kMiB, 40 * kMs, 30 * kMs, before, false, true}, true);
  }
  EXPECT_EQ(apart.at_most(), Goodput::rate_of(2 * kMiB, 20 * kMs)) << "each may have ended 30 ms before";
  EXPECT_EQ(apart.at_least(), Goodput::rate_of(2 * kMiB, 115 * kMs)) << "each may have begun before";
  EXPECT_EQ(together.at_most(), Goodput::rate_of(2 * kMiB, 50 * kMs)) << "busy from one to the next";
  EXPECT_EQ(together.at_least(), Goodput::rate_of(2 * kMiB, 85 * kMs));
  Degraded away;
  away.moved({kMiB, 40 * kMs, 40 * kMs, 0, true, false}, true);
  away.moved({kMiB, 40 * kMs, 40 * kMs, 0, true, false}, true);
  EXPECT_EQ(away.at_most(), UINT32_MAX) << "nothing is known";
}

/// Of two samples of a MiB the process knows no more than that each took between 5 and 80 ms: a rail that is
/// as fast as the other one, 838 Mbit/s, or a tenth. Or it has seen nearly all of the time, and the rail
/// moved 195 Mbit/s or 247: a quarter of the other one is between the two.
TEST(Degraded, TermsThatProveNothing_DoNotCountAgainstTheRail) {
  constexpr uint64_t kMiB = 1024 * kKiB;
  const Goodput::Sample seldom{kMiB, 40 * kMs, 35 * kMs, 40 * kMs, false, false};
  const Goodput::Sample often{kMiB, 40 * kMs, 6 * kMs, 3 * kMs, false, false};
  for (const Goodput::Sample& sample : {seldom, often}) {
    Degraded d;
    for (uint64_t t = kSecond; t < 60 * kSecond; t += kSecond / 4) {
      for (int i = 0; i < 2; ++i) d.moved(sample, true);
      ASSERT_EQ(d.end_term(838, false, {t, t + kSecond / 4, kSecond}), Degraded::Word::kNone);
    }
    EXPECT_FALSE(d.low());
  }
}

/// A processor that moves the bytes itself (soft-RoCE) works on one rail after the other. So a short piece
/// takes as long as the long ones beside it over the other rail, and looks slow when the process happened to
/// look a moment before its end; of the others of its term nothing is known.
TEST(Degraded, OneSampleOfATermIsKnown_ItDoesNotStandForTheOthers) {
  Degraded d;
  for (uint64_t t = kSecond; t < 60 * kSecond; t += kSecond / 4) {
    d.moved({72 * kKiB, 30 * kMs, kMs, 25 * kMs, true, false}, false);
    for (int i = 0; i < 3; ++i) d.moved({72 * kKiB, 24 * kMs, 24 * kMs, 25 * kMs, true, false}, false);
    ASSERT_EQ(d.end_term(400, false, {t, t + kSecond / 4, kSecond}), Degraded::Word::kNone);
  }
  EXPECT_FALSE(d.low());
}

/// What a rail that keeps up is said to move is no evidence: its pieces end as fast as the process posts
/// them, however long that takes.
TEST(Degraded, OtherRailKeepsUp_ProvesNothing) {
  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  TinyPeer p(2);
  for (auto& r : p.rails) r.limits.weight = 100'000;
  uint64_t now = kSecond;
  const auto terms = [&](uint64_t other_ms) {
    for (int i = 0; i < 20; ++i) {
      for (int k = 0; k < 3; ++k) {
        note_moved(base, p.rails[1], {kKiB * 1024, 20 * kMs, kMs, kMs, false, true}, true);
        note_moved(base, p.rails[0], {kKiB * 1024, other_ms * kMs, 0, 0, false, true}, true);
      }
      now += 250 * kMs;
      judge_rails(base, p.peer, now);
    }
  };
  p.rails[0].late = 0;
  p.rails[1].late = kLate;
  terms(2);
  EXPECT_EQ(port.told.size(), 0u) << "420 Mbit/s beside one that was not measured";
  p.rails[0].late = kLate;
  terms(2);
  ASSERT_EQ(port.told.size(), 1u) << "420 Mbit/s beside 4194";
  p.rails[1].late = 0;
  for (int i = 0; i < 20; ++i) judge_rails(base, p.peer, now += kSecond);
  ASSERT_EQ(port.told.size(), 2u) << "it keeps up again: nothing is measured, and it is well";
  EXPECT_FALSE(port.told[1].degraded);
  free_degraded(base, p.rails[0]);
  free_degraded(base, p.rails[1]);
}

/// In ten minutes nothing is moved. That is no evidence, and of what was moved before and after it there is
/// less than a second.
TEST(Degraded, TimeWithoutAnyPiece_DoesNotCountAgainstTheRail) {
  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  TinyPeer p(2);
  for (auto& r : p.rails) r.limits.weight = 100'000, r.late = kLate;
  uint64_t now = kSecond;
  judge_rails(base, p.peer, now);
  for (const uint64_t ns : {kSecond / 4, kTenMinutes, kSecond / 4, kSecond / 4, kSecond / 4}) {
    EXPECT_EQ(port.told.size(), 0u);
    for (int k = 0; k < 3; ++k) {
      note_moved(base, p.rails[0], {kKiB * 1024, 2 * kMs, 0, 0, false, true}, true);
      note_moved(base, p.rails[1], {kKiB * 1024, 40 * kMs, 0, 0, false, true}, true);
    }
    now += ns;
    judge_rails(base, p.peer, now);
  }
  ASSERT_EQ(port.told.size(), 1u);
  EXPECT_LE(port.told[0].low_ns, 1250 * kMs);
  for (auto& r : p.rails) free_degraded(base, r);
}

/// A program that computes most of the time.
TEST(Degraded, MessagesEveryTwoSeconds_TellOfASlowRailInTheEnd) {
  Job job({steady(1), steady(0.1)});
  for (int i = 0; i < 8; ++i) {
    job.run(50 * kMs);
    job.port.now += 2 * kSecond;
  }
  EXPECT_EQ(job.words(true), 1u);
}

TEST(Degraded, RailThatCountsTheTermsIsNew_TheTermsBeginAnew) {
  Degraded d;
  EXPECT_EQ(d.term_over(kSecond, kSecond), 0u);
  EXPECT_EQ(d.term_over(2 * kSecond, kSecond), kSecond);
  d.restart();
  EXPECT_EQ(d.term_over(kTenMinutes, kSecond), 0u);
}

TEST(Degraded, RailThatIsLost_IsNotDegradedAnyMore) {
  Job job({steady(1), steady(0.1)});
  job.run(3 * kSecond);
  ASSERT_EQ(job.base.counters.rails_degraded, 1u);
  not_degraded(job.base, job.p.rails[1]);
  EXPECT_EQ(job.base.counters.rails_degraded, 0u);
  EXPECT_EQ(job.words(false), 0u) << "its loss is told by another line";
}

TEST(Degraded, BoundOfZero_NothingIsSaid) {
  TinyPort port;
  Config c;
  c.degraded_ns = 0;
  Base<TinyPort> base{port, c};
  TinyPeer p(2);
  for (auto& r : p.rails) r.late = kLate;
  uint64_t now = kSecond;
  for (int i = 0; i < 40; ++i) {
    for (int k = 0; k < 3; ++k) {
      note_moved(base, p.rails[1], {kKiB * 1024, kSecond, 0, 0, false, true}, true);
      note_moved(base, p.rails[0], {kKiB * 1024, kMs, 0, 0, false, true}, true);
    }
    judge_rails(base, p.peer, now += kSecond);
  }
  EXPECT_EQ(port.told.size(), 0u);
  free_degraded(base, p.rails[0]);
  free_degraded(base, p.rails[1]);
}

TEST(Degraded, NoMemory_NothingIsSaid) {
  Job job({steady(1), steady(0.1)});
  job.port.allocs_left = 0;
  job.run(5 * kSecond);
  EXPECT_EQ(job.port.told.size(), 0u);
  EXPECT_GT(job.bytes[1], 0u);
}

}  // namespace
}  // namespace bfo::xfer
