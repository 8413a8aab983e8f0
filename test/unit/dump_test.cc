// SPDX-License-Identifier: BSD-3-Clause
//
// dump_test.cc: the text of pml_dump about rails and what waits for them.
#include "pml/bfo/glue/dump.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace bfo::glue {
namespace {

constexpr uint64_t kMs = 1'000'000;
std::vector<std::string> lines;

void keep(const char* line) {
  lines.emplace_back(line);
}
using Lines = std::vector<std::string>;

class DumpTest : public testing::Test {
 protected:
  void SetUp() override { lines.clear(); }
};

DumpedRail healthy() {
  DumpedRail rail;
  rail.index = 1;
  rail.device = "mlx5_1";
  rail.port = 2;
  rail.peer_port = "lid 7 ud qpn 0x11";
  rail.state = "up";
  rail.epoch = 3;
  rail.bytes_in_flight = 4096;
  return rail;
}

FailoverEvent loss() {
  FailoverEvent event;
  event.epoch = 2;
  snprintf(event.text, sizeof event.text, "RETRY_EXC_ERR");
  event.evidence_ns = 1000 * kMs;
  event.down_ns = 1001 * kMs;
  event.closed_ns = 1003 * kMs;
  event.resumed_ns = 1006 * kMs;
  event.bytes_resent = 65536;
  event.messages_resent = 4;
  return event;
}

TEST_F(DumpTest, HealthyRail_OneLine) {
  dump_rail(healthy(), 5000 * kMs, keep);
  EXPECT_EQ(lines,
            Lines{"    rail 1: mlx5_1 port 2 to lid 7 ud qpn 0x11, up, epoch 3, 4096 bytes in flight"});
}

TEST_F(DumpTest, DegradedRail_SaysForHowLongAndWhatItMoves) {
  DumpedRail rail = healthy();
  rail.degraded = true;
  rail.degraded_since_ns = 2000 * kMs;
  rail.mbits = 80;
  rail.mbits_of_others = 790;
  dump_rail(rail, 5000 * kMs, keep);
  EXPECT_EQ(
      lines,
      Lines{"    rail 1: mlx5_1 port 2 to lid 7 ud qpn 0x11, up, epoch 3, 4096 bytes in flight; degraded "
            "for 3.000 s: 80 Mbit/s, another rail 790"});
}

TEST_F(DumpTest, RailOfSeveral_SaysWhatItMoves) {
  DumpedRail rail = healthy();
  rail.rate = "812 Mbit/s (measured)";
  rail.rate_counts = true;
  dump_rail(rail, 5000 * kMs, keep);
  EXPECT_EQ(lines,
            Lines{"    rail 1: mlx5_1 port 2 to lid 7 ud qpn 0x11, up, epoch 3, 4096 bytes in flight, 812 "
                  "Mbit/s (measured), which counts"});
}

TEST_F(DumpTest, RailOfAnotherBtl_NoPort) {
  DumpedRail rail;
  rail.device = "vader";
  rail.state = "up";
  dump_rail(rail, 5000 * kMs, keep);
  EXPECT_EQ(lines, Lines{"    rail 0: vader, up, epoch 0, 0 bytes in flight"});
}

TEST_F(DumpTest, LostAndBack_CauseTimesAndBytes) {
  const FailoverEvent event = loss();
  DumpedRail rail = healthy();
  rail.lost = &event;
  dump_rail(rail, 3001 * kMs, keep);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(
      lines[1],
      "      epoch 2 was lost 2.000 s ago: RETRY_EXC_ERR; noticed 1.000 ms after the first sign, fenced "
      "2.000 ms later, resumed 6.000 ms after the first sign; 65536 bytes in 4 messages sent again");
}

TEST_F(DumpTest, BeingLost_WhatIsStillToCome) {
  FailoverEvent event = loss();
  event.closed_ns = event.resumed_ns = 0;
  event.bytes_resent = event.messages_resent = 0;
  event.bytes_waiting = 100;
  event.messages_waiting = 1;
  event.text[0] = '\0';
  DumpedRail rail = healthy();
  rail.state = "down";
  rail.peer_alive = true;
  rail.lost = &event;
  rail.lost_open = true;
  dump_rail(rail, 1001 * kMs, keep);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find(", down, epoch 3, 4096 bytes in flight; the peer's process answers"),
            std::string::npos);
  EXPECT_EQ(
      lines[1],
      "      epoch 2 was lost 0.000 s ago: unknown; noticed 1.000 ms after the first sign, not fenced yet; 0 "
      "bytes in 0 messages sent again, 100 bytes in 1 messages wait for a rail, not all of it has gone");
}

TEST_F(DumpTest, NeverUp_WhyAndForHowLong) {
  DumpedRail rail = healthy();
  rail.state = "connecting";
  rail.epoch = 0;
  rail.never_ms = 2500;
  rail.never_why = "cannot register memory: ENOMEM";
  dump_rail(rail, 5000 * kMs, keep);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "      never up, tried for 2.500 s: cannot register memory: ENOMEM");
}

TEST_F(DumpTest, IdlePeer_OneLine) {
  DumpedPeer peer;
  peer.rails = 2;
  peer.up = 1;
  dump_peer(peer, keep);
  EXPECT_EQ(lines, Lines{"    1 of 2 rails up"});
}

TEST_F(DumpTest, ParkedPeer_WhatWaits) {
  DumpedPeer peer;
  peer.rails = 2;
  peer.unreachable_ns = 1500 * kMs;
  peer.ready_sends = 3;
  peer.ready_receives = 1;
  peer.rendezvous_sends = 2;
  peer.rendezvous_receives = 5;
  peer.stored = 6;
  peer.stalled = 7;
  peer.unknown_held = 800;
  dump_peer(peer, keep);
  EXPECT_EQ(
      lines,
      (Lines{
          "    0 of 2 rails up, no rail for 1.500 s: its requests wait",
          "    3 sends with something to post, 1 receives with something to post, 2 sends in a rendezvous, "
          "5 receives in a rendezvous, 6 messages stored for the next rail, 7 sends behind the sequence "
          "window, 800 bytes held for unknown communicators"}));
}

TEST_F(DumpTest, PeerThatIsGone_SaysSo) {
  DumpedPeer peer;
  peer.failed = peer.finalized = true;
  dump_peer(peer, keep);
  EXPECT_EQ(lines, Lines{"    0 of 0 rails up, given up, has left"});
}

TEST_F(DumpTest, Totals_AllOfThem) {
  DumpedProcess process;
  process.rank = 9;
  process.rails_lost = 1;
  process.suspicions = 2;
  process.degradations = 8;
  process.fences = 3;
  process.restarts = 4;
  process.peers_lost = 5;
  process.missing_ns = 412 * kMs;
  process.bytes_resent = 1048576;
  process.messages_resent = 6;
  dump_process(process, keep);
  EXPECT_EQ(
      lines,
      Lines{
          "pml bfo: rank 9: 1 rails lost, 2 suspected, 8 degraded, 3 fences, 4 restarts, 5 peers given up; a "
          "rail was missing for 0.412 s; 1048576 bytes sent again, 6 messages"});
}

/// A text that is too long is cut, not written past its end.
TEST_F(DumpTest, LongWords_AreCut) {
  const std::string word(1000, 'x');
  DumpedRail rail = healthy();
  rail.device = word.c_str();
  rail.never_ms = 1;
  rail.never_why = word.c_str();
  dump_rail(rail, 0, keep);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_EQ(line.size(), 511u);
}

}  // namespace
}  // namespace bfo::glue
