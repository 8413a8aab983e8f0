// SPDX-License-Identifier: BSD-3-Clause
//
// btl_receive_batch_test.cc: when consumed receive buffers are posted again.
#include <algorithm>

#include "test/unit/btl_rails_world.h"

namespace bfo::test {
namespace {

engine::Config large_buffers() {
  engine::Config config = RailsWorld::config();
  config.receive_bytes = 65536;
  config.receive_depth = 512;
  config.send_depth = 128;
  return config;
}

/// A consumed buffer is not posted alone: the sender's device would wait for the queue's head at each
/// message. While nothing else is to be done, eight are; what is left is posted when time passes.
TEST(Receives, MessagesOneByOne_BuffersPostedInBatches) {
  RailsWorld w(1);
  w.open(large_buffers());
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  engine::Port& port = w.right.rails[0].port;
  const uint64_t before = w.fabric.receive_posts;
  constexpr int kMessages = 64;
  for (int i = 0; i < kMessages; ++i) {
    w.left.write("one");
    w.left.pump();
    w.fabric.run();
    for (int poll = 0; poll < 4; ++poll) port.poll();
  }
  EXPECT_EQ(w.right.received.size(), 1u + kMessages);
  EXPECT_LE(w.fabric.receive_posts - before, kMessages / 8 + 2u);
  EXPECT_GE(w.fabric.receive_posts - before, kMessages / 8 - 2u) << "they are posted at all";
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(port.srq().waiting(), 0u);
}

/// Of few buffers, at most a quarter is ever held back.
TEST(Receives, FewBuffers_ThreeQuartersStayPosted) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.receive_depth = 16;
  w.open(config);
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  engine::Srq& srq = w.right.rails[0].port.srq();
  ASSERT_LE(srq.made(), 16u);
  for (int i = 0; i < 40; ++i) {
    w.left.write("one");
    w.left.pump();
    w.fabric.run();
    w.right.rails[0].port.poll();
    EXPECT_LE(srq.waiting(), std::max(srq.made() / 4, 1u) - 1);
  }
}

/// Where the peer's retries are bounded, an idle poll posts all: nobody knows when the next poll comes.
TEST(Receives, BoundedRetries_NoneHeldBackByAnIdlePort) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.receive_depth = 64;
  config.qp.rnr_retry = 3;
  w.open(config);
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  engine::Port& port = w.right.rails[0].port;
  ASSERT_EQ(port.srq().made(), 64u);
  for (int i = 0; i < 20; ++i) {
    w.left.write("one");
    w.left.pump();
    w.fabric.run();
    while (port.poll() != 0) {
    }
    EXPECT_EQ(port.srq().waiting(), 0u);
  }
}

}  // namespace
}  // namespace bfo::test
