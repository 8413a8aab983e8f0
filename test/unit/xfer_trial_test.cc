// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_trial_test.cc: what goes over a rail before it is known to be slow. Many peers share its port, and
// what each of them sends over it waits for what all others do. So one peer at a time tries a port.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pml/bfo/xfer/moves/pace.h"
#include "pml/bfo/xfer/moves/plan.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1 << 20;

/// Peers over the same ports, one for each of their rails.
struct Crowd {
  explicit Crowd(unsigned n, unsigned n_rails = 2) {
    for (unsigned k = 0; k < n; ++k) {
      TinyPeer& p = *peers.emplace_back(std::make_unique<TinyPeer>(n_rails));
      p.peer.choice.set_weighing(all);
      for (unsigned i = 0; i < n_rails; ++i) {
        auto& limits = p.rails[i].limits;
        limits.port = static_cast<uint8_t>(i);
        limits.get_limit = limits.put_limit = limits.rdma_frag_size = kMiB;
        p.rails[i].late = kLate;
      }
      p.peer.choice.rebuild(p.peer.rails, n_rails);
    }
    port.now = kSecond;
  }
  RailChoice<TinyPort>& choice(unsigned k) { return peers[k]->peer.choice; }
  Rail<TinyPort>& rail(unsigned k, unsigned i) { return peers[k]->rails[i]; }
  /// The rail of peer `k` that reads a message of 40 KiB, which came over its rail `carrier`, in whichever
  /// order the keys come.
  Rail<TinyPort>* reader(unsigned k, unsigned carrier = 0) {
    OnlyRead<TinyPort> plan(choice(k), &rail(k, carrier), 40 * kKiB);
    OnlyRead<TinyPort> turned(choice(k), &rail(k, carrier), 40 * kKiB);
    const unsigned n = choice(k).size();
    for (unsigned i = 0; i < n; ++i) {
      plan.prefers(rail(k, i));
      turned.prefers(rail(k, n - 1 - i));
    }
    EXPECT_EQ(plan.rail(), turned.rail());
    return plan.rail();
  }
  /// A piece goes out over it, and is timed.
  void post(unsigned k, unsigned i) {
    typename TinyPort::Frag f;
    f.xfer.peer = &peers[k]->peer;
    f.xfer.rail = &rail(k, i);
    f.xfer.length = 40 * kKiB;
    pace.begin(f);
    rail(k, i).inflight_bytes += 40 * kKiB;
  }
  void measured(unsigned k, unsigned i, uint64_t mbits) {
    rail(k, i).inflight_bytes = 0;
    pace.told(rail(k, i), mbits);
  }
  void later(uint64_t ns) {
    port.now += ns;
    pace.turn();  // the clock is read, for something is under way
  }

  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  Pace<TinyPort> pace{base};
  Weighing all;
  std::vector<std::unique_ptr<TinyPeer>> peers;
};

TEST(Trial, OnePeerTriesAPort_OthersReadOverWhatTheyKnow) {
  Crowd c(3);
  for (unsigned k : {0u, 1u, 2u}) c.rail(k, 0).goodput.told(8000, kSecond);
  EXPECT_EQ(c.reader(0), &c.rail(0, 1)) << "it was never tried";
  c.post(0, 1);
  for (unsigned k : {1u, 2u}) EXPECT_EQ(c.reader(k), &c.rail(k, 0)) << k;
  c.rail(0, 1).inflight_bytes = 0;
  EXPECT_EQ(c.reader(0), &c.rail(0, 1)) << "it tries again: its piece has told nothing";
}

/// What it has told is known to all at once.
TEST(Trial, TrialEnds_OthersBeginWithWhatItTold) {
  Crowd c(2);
  for (unsigned i : {0u, 1u}) c.post(0, i);
  c.measured(0, 0, 8000);
  c.measured(0, 1, 80);
  c.pace.plan(c.peers[1]->peer);
  EXPECT_TRUE(c.choice(1).proven(c.rail(1, 1)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(c.reader(1), &c.rail(1, 0));
}

/// The rail that tries a port may be lost, or its peer.
TEST(Trial, TrialThatTellsNothing_IsFollowedByAnother) {
  Crowd c(2);
  c.rail(1, 0).goodput.told(8000, kSecond);
  c.post(0, 1);
  EXPECT_EQ(c.reader(1), &c.rail(1, 0));
  c.later(99 * kMs);
  c.post(1, 0);
  c.rail(1, 0).inflight_bytes = 0;
  EXPECT_EQ(c.reader(1), &c.rail(1, 0));
  c.later(2 * kMs);
  c.post(1, 0);
  c.rail(1, 0).inflight_bytes = 0;
  EXPECT_EQ(c.reader(1), &c.rail(1, 1));
}

/// One rail tries a port once, however many pieces go over it: those who grant are told nothing by writers
/// that look seldom, and would wait for each other for ever.
TEST(Trial, PortIsTriedOnceByARail) {
  Crowd c(2);
  c.rail(1, 0).goodput.told(8000, kSecond);
  for (int i = 0; i < 20; ++i) {
    c.pace.granted(c.rail(0, 1), 40 * kKiB);
    c.later(10 * kMs);
  }
  c.post(1, 0);
  c.rail(1, 0).inflight_bytes = 0;
  EXPECT_EQ(c.reader(1), &c.rail(1, 1));
}

/// What a rail moves at least ends its trial, though it is nothing that others could begin with.
TEST(Trial, RailOfWhichLittleIsKnown_HasTried) {
  Crowd c(2);
  c.rail(1, 0).goodput.told(8000, kSecond);
  c.post(0, 1);
  EXPECT_EQ(c.reader(1), &c.rail(1, 0));
  c.pace.told(c.rail(0, 1), 100, 0, true);
  EXPECT_EQ(c.reader(1), &c.rail(1, 1));
}

/// The header came over the port that is tried.
TEST(Trial, CarrierWhosePortIsTried_DoesNotRead) {
  Crowd c(2);
  c.pace.told(c.rail(1, 0), 8000);
  c.post(0, 1);
  EXPECT_EQ(c.reader(1, 1), &c.rail(1, 0));
}

/// P4: not more than a failed rail may leave to be sent again waits for a trial.
TEST(Trial, RailThatHasMuchToDo_IsNotPreferredToATrial) {
  Crowd c(2);
  c.post(0, 1);
  c.rail(1, 0).inflight_bytes = kMiB - 1;
  EXPECT_EQ(c.choice(1).lightest(0, 40 * kKiB), &c.rail(1, 0));
  c.rail(1, 0).inflight_bytes = kMiB;
  EXPECT_EQ(c.choice(1).lightest(0, 40 * kKiB), &c.rail(1, 1));
}

/// Its pieces are not timed: nothing would say that the trial takes too long.
TEST(Trial, PeerWhoseOtherRailKeepsUp_DoesNotWait) {
  Crowd c(2);
  c.post(0, 1);
  EXPECT_TRUE(c.choice(1).withheld(c.rail(1, 1), c.rail(1, 0)));
  c.rail(1, 0).late = 0;
  EXPECT_FALSE(c.choice(1).withheld(c.rail(1, 1), c.rail(1, 0)));
}

TEST(Trial, FixedWeights_NeedNone) {
  Crowd c(2);
  c.all.weights = Weights::kNominal;
  c.post(0, 1);
  EXPECT_FALSE(c.choice(1).withheld(c.rail(1, 1), c.rail(1, 0)));
}

/// Grants and FRAGs, too, and while nothing is known at all: the third peer is left with what nobody tries.
TEST(Trial, NothingIsKnown_PortThatNobodyTries_IsTaken) {
  Crowd c(2, 3);
  for (unsigned i : {0u, 2u}) c.post(0, i);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(c.choice(1).lightest(0, 40 * kKiB), &c.rail(1, 1));
    EXPECT_EQ(grants_whole(c.choice(1), 40 * kKiB), &c.rail(1, 1));
  }
  EXPECT_NE(c.choice(1).lightest(1u << 1, 40 * kKiB), nullptr) << "a port that is tried is better than none";
}

/// Three measurements make rails uneven. Until then a message that is not cut would go over both in turn.
TEST(Trial, WhatSeemsSlow_GetsNoWholeMessage_BeforeItIsProvenToBe) {
  Crowd c(1);
  auto& choice = c.choice(0);
  c.rail(0, 0).goodput.told(8000, kSecond);
  c.rail(0, 1).goodput.told(800, kSecond);
  choice.weigh();
  ASSERT_FALSE(choice.uneven());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(grants_whole(choice, 40 * kKiB), &c.rail(0, 0));
    EXPECT_EQ(c.reader(0), &c.rail(0, 0));
  }
  for (int i = 0; i < 20; ++i) c.rail(0, 1).goodput.told(8000, kSecond);
  choice.weigh();
  bool used[2] = {};
  for (int i = 0; i < 4; ++i) used[grants_whole(choice, 40 * kKiB)->index] = true;
  EXPECT_TRUE(used[0] && used[1]) << "it was chance";
}

/// With three processes the eighth message is the first that is timed; with many, the second.
TEST(Trial, EagerMessagesOfManyPeersAreTimedSooner) {
  for (const auto& [peers, untimed] : {std::pair{3u, 7u}, std::pair{4u, 1u}, std::pair{9u, 1u}}) {
    Crowd c(peers);
    auto& choice = c.choice(peers - 1);
    for (unsigned i = 0; i < untimed; ++i) {
      choice.spread(1000, 256);
      EXPECT_FALSE(choice.samples()) << peers << " peers, message " << i;
    }
    choice.spread(1000, 256);
    EXPECT_TRUE(choice.samples()) << peers << " peers";
  }
}

/// A READ over them costs no look at what is known.
TEST(Trial, RailsThatKeepUpAgain_AreNotDoubted) {
  Crowd c(1);
  auto& choice = c.choice(0);
  EXPECT_TRUE(choice.doubted()) << "nothing is known";
  c.rail(0, 0).goodput.told(8000, kSecond);
  c.rail(0, 1).goodput.told(800, kSecond);
  choice.weigh();
  EXPECT_TRUE(choice.doubted()) << "measured once";
  for (unsigned i : {0u, 1u}) c.rail(0, i).late = 0;
  choice.reconsider();
  EXPECT_FALSE(choice.doubted());
}

}  // namespace
}  // namespace bfo::xfer
