// SPDX-License-Identifier: BSD-3-Clause
//
// softhca_links_test.cc: the time that messages take on the link of a port of the software HCA.
#include "contrib/softhca/engine/links.h"

#include <gtest/gtest.h>

namespace bfo::softhca {
namespace {

constexpr uint64_t kRate = 100'000'000;  // bytes per second: 10 ns each
constexpr uint64_t kPacketNs = 40'960;   // of 4096 bytes

struct Link {
  std::atomic<uint64_t> free_ns = 0;
  std::atomic<uint64_t> packet_ns = 0;
  uint64_t send(uint64_t now_ns, uint64_t bytes) {
    return occupy({free_ns, packet_ns}, now_ns, bytes, kRate);
  }
};

TEST(Links, MessagesFollowEachOther) {
  Link link;
  EXPECT_EQ(link.send(1000, 1'000'000), 10'001'000u);
  EXPECT_EQ(link.send(2000, 1'000'000), 20'001'000u);
  EXPECT_EQ(link.send(30'000'000, 100'000), 31'000'000u);
}

TEST(Links, NoRate_NoTime) {
  Link link;
  EXPECT_EQ(occupy({link.free_ns, link.packet_ns}, 1000, 1'000'000, 0), 1000u);
}

/// A control message of another queue pair, or the request of a READ, which has no bytes.
TEST(Links, MessageOfOnePacket_WaitsForOnePacketOfALongOne) {
  Link link;
  link.send(0, 1'000'000);
  EXPECT_EQ(link.send(1000, 100), 1000 + kPacketNs + 1000);
  EXPECT_EQ(link.send(5'000'000, 0), 5'000'000 + kPacketNs);
  EXPECT_EQ(link.send(9'999'000, 0), 10'001'000u) << "the rest of the long one, and what was sent meanwhile";
}

TEST(Links, ShortMessages_FollowEachOtherAndTakeTheirPartOfTheLink) {
  Link link;
  link.send(0, 1'000'000);
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t end = link.send(0, 4096);
    EXPECT_GE(end, last + kPacketNs);
    last = end;
  }
  EXPECT_EQ(last, kPacketNs + 100 * kPacketNs);
  EXPECT_EQ(link.send(0, 1'000'000), 20'000'000 + 100 * kPacketNs) << "what is long waits for them";
}

TEST(Links, LinkThatIsIdle_ShortMessageLeavesAtOnce) {
  Link link;
  EXPECT_EQ(link.send(1'000'000, 1000), 1'010'000u);
  EXPECT_EQ(link.send(1'000'000, 1000), 1'020'000u);
}

}  // namespace
}  // namespace bfo::softhca
