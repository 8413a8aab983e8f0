// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_checkpoint_test.cc: have all messages numbered before a checkpoint ended, by the work of the rails?
#include "pml/bfo/xfer/moves/checkpoint.h"

#include <gtest/gtest.h>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

TEST(Checkpoint, IsPassedWhenEveryRailHasEndedWhatItHadAccepted) {
  TinyPort port;
  TinyPeer p(2);
  Checkpoint<TinyPort> c;
  EXPECT_FALSE(c.holds());
  port.work_of[0] = {10, 5};
  port.work_of[1] = {20, 20};
  c.take(port, p.peer, 77);
  EXPECT_TRUE(c.holds());
  EXPECT_EQ(c.seq(), 77);
  EXPECT_FALSE(c.passed(port, p.peer));
  port.work_of[1] = {30, 21};  // newer work does not count
  port.work_of[0] = {12, 9};
  EXPECT_FALSE(c.passed(port, p.peer));
  port.work_of[0] = {12, 10};
  EXPECT_TRUE(c.passed(port, p.peer));
  c.drop();
  EXPECT_FALSE(c.holds());
}

TEST(Checkpoint, RailWhoseFragmentsComeBackIsNotPast) {
  TinyPort port;
  TinyPeer p(1);
  Checkpoint<TinyPort> c;
  port.work_of[0] = {10, 10};
  c.take(port, p.peer, 1);
  p.rails[0].state = RailState::kDown;
  EXPECT_FALSE(c.passed(port, p.peer));
  p.rails[0].name.epoch = 2;  // an attempt that never was up carried nothing
  EXPECT_TRUE(c.passed(port, p.peer));
  p.rails[0].name.epoch = 1;
  p.rails[0].state = RailState::kClosed;
  EXPECT_TRUE(c.passed(port, p.peer));
}

TEST(Checkpoint, RailWithoutTheContractIsLeftOut) {
  TinyPort port;
  TinyPeer p(1, false);
  Checkpoint<TinyPort> c;
  port.work_of[0] = {10, 0};
  c.take(port, p.peer, 1);
  EXPECT_TRUE(c.passed(port, p.peer));
  p.rails[0].state = RailState::kDown;
  EXPECT_TRUE(c.passed(port, p.peer));
}

TEST(Checkpoint, RailThatWasAddedLaterHadAcceptedNothing) {
  TinyPort port;
  TinyPeer p(2);
  Checkpoint<TinyPort> c;
  port.work_of[0] = {1, 1};
  port.work_of[1] = {9, 0};
  p.peer.n_rails = 1;
  c.take(port, p.peer, 1);
  p.peer.n_rails = 2;
  EXPECT_TRUE(c.passed(port, p.peer));
}

}  // namespace
}  // namespace bfo::xfer
