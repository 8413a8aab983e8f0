// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_name_table_test.cc: the request that a message names: of its peer, in its round, or none.
#include "pml/bfo/xfer/moves/names.h"

#include <gtest/gtest.h>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;
using Request = TinyPort::SendRequest;

/// A request of a peer, in round 3.
struct OneRequest {
  OneRequest() {
    proc.peer = &mine.peer;
    r.xfer.proc = &proc;
    r.xfer.rndv = &rndv;
    rndv.name = names.insert(&r).at(3);
  }
  Arrival<TinyPort> over(Rail<TinyPort>* rail) { return {rail, 1, {}}; }
  TinyPeer mine{1};
  TinyPeer other{1};
  Counters counters;
  Names<TinyPort, Request> names{counters, 8, 1};
  Proc<TinyPort> proc;
  SendRndv<TinyPort> rndv;
  Request r;
};

TEST(NameTable, FindsTheRequestOfItsPeerOrOfAnUnknownSender) {
  OneRequest t;
  NameState state;
  const Name name = t.rndv.name;
  EXPECT_EQ(t.names.live(), 1u);
  EXPECT_EQ(t.names.state_of(name), NameState::kLive);
  for (Rail<TinyPort>* rail : {&t.mine.rails[0], static_cast<Rail<TinyPort>*>(nullptr)}) {
    EXPECT_EQ(t.names.find(name, t.over(rail), state), &t.r);
    EXPECT_EQ(t.names.find_current(name, t.over(rail)), &t.r);
    EXPECT_EQ(t.names.find_here(name, t.over(rail)), &t.r);
  }
  EXPECT_EQ(t.counters.malformed + t.counters.stale, 0u);
}

TEST(NameTable, RequestOfAnotherPeerIsForged) {
  OneRequest t;
  NameState state = NameState::kLive;
  const auto a = t.over(&t.other.rails[0]);
  EXPECT_EQ(t.names.find(t.rndv.name, a, state), nullptr);
  EXPECT_EQ(state, NameState::kNever);
  EXPECT_EQ(t.names.find_here(t.rndv.name, a), nullptr);
  EXPECT_EQ(t.counters.malformed, 2u);
}

TEST(NameTable, OtherRoundsAreDropped) {
  OneRequest t;
  NameState state;
  const auto a = t.over(&t.mine.rails[0]);
  EXPECT_EQ(t.names.find(t.rndv.name.at(2), a, state), &t.r) << "find() leaves the round to its caller";
  EXPECT_EQ(t.names.find_current(t.rndv.name.at(2), a), nullptr);
  EXPECT_EQ(t.names.find_here(t.rndv.name.at(2), a), nullptr);
  EXPECT_EQ(t.counters.stale, 2u);
  EXPECT_EQ(t.names.find_current(t.rndv.name.at(4), a), nullptr);
  EXPECT_EQ(t.names.find_here(t.rndv.name.at(4), a), nullptr);
  EXPECT_EQ(t.counters.malformed, 2u);
}

TEST(NameTable, EndedRequestsAreToldFromNamesThatNeverWere) {
  for (const bool failed : {false, true}) {
    OneRequest t;
    NameState state;
    const auto a = t.over(&t.mine.rails[0]);
    const Name name = t.rndv.name;
    t.names.erase(name, failed);
    EXPECT_EQ(t.names.live(), 0u);
    EXPECT_EQ(t.names.state_of(name), failed ? NameState::kFailed : NameState::kFinished);
    EXPECT_EQ(t.names.find(name, a, state), nullptr);
    EXPECT_EQ(state, failed ? NameState::kFailed : NameState::kFinished);
    EXPECT_EQ(t.counters.stale, 1u);
    EXPECT_EQ(t.names.find(Name(), a, state), nullptr);
    EXPECT_EQ(state, NameState::kNever);
    EXPECT_EQ(t.counters.malformed, 1u);
  }
}

TEST(NameTable, IsBounded) {
  OneRequest t;
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(t.names.insert(&t.r));
  EXPECT_FALSE(t.names.insert(&t.r));
}

}  // namespace
}  // namespace bfo::xfer
