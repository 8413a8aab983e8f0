// SPDX-License-Identifier: BSD-3-Clause
//
// console_test.cc: the lines on standard error of failover events: what is told, and how often.
#include "pml/bfo/glue/console.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/failover_btl.h"
#include "test/unit/event_samples.h"

namespace bfo::glue {
namespace {

TEST(Console, FirstLoss_IsToldAtOnce) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  console.tell(sample(), names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0],
      "bfo: rank 0 lost rail 1 (softhca1 port 1) to rank 1 (host node2, softhca3 port 2): RETRY_EXC_ERR; "
      "resumed after 0.750 ms, 4096 bytes sent again, 1 rail left");
}

/// Nothing broke: this process or its peer could not make the rail.
TEST(Console, RailWithoutAResource_IsNotCalledLost) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  FailoverEvent e = sample();
  e.cause = BFO_CAUSE_RESOURCE;
  std::snprintf(e.text, sizeof e.text, "cannot make a queue pair: ENOMEM");
  e.resumed_ns = 0;
  e.bytes_resent = e.messages_resent = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0],
      "bfo: rank 0 goes on without rail 1 (softhca1 port 1) to rank 1 (host node2, softhca3 port 2): cannot "
      "make a queue pair: ENOMEM; nothing had to be sent again, 1 rail left (btl/verbs says what helps)");
}

TEST(Console, LossOfTheLastRail_SaysWhatWaits) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  FailoverEvent e = sample();
  e.resumed_ns = 0;
  e.bytes_resent = e.messages_resent = 0;
  e.bytes_waiting = 4096;
  e.messages_waiting = 2;
  e.rails_left = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("RETRY_EXC_ERR; 4096 bytes wait for a rail, 0 rails left"), std::string::npos);
  e.bytes_waiting = 0;
  e.messages_waiting = 1;
  console.tell(e, names(), 15'000'000'000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[1].find("RETRY_EXC_ERR; 1 message waits for a rail, 0 rails left"), std::string::npos);
}

TEST(Console, LossOfTheLastRailAmidstIt_SaysWhatWentAndWhatWaits) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  FailoverEvent e = sample();
  e.bytes_waiting = 100;
  e.rails_left = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(
      lines[0].find("; resumed after 0.750 ms, 4096 bytes sent again, 100 bytes wait for a rail, 0 rails"),
      std::string::npos);
}

TEST(Console, LossesOfOnePort_AreCountedAndToldWithTheNext) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  for (uint64_t i = 0; i < 10; ++i) console.tell(sample(), names(), 5'000'000'000 + i);
  EventNames other = names();
  other.device = "softhca0";
  console.tell(sample(), other, 5'000'000'100);  // another port has its own line
  EXPECT_EQ(lines.size(), 2u);
  console.tell(sample(), names(), 7'000'000'000);
  EXPECT_EQ(lines.size(), 2u);
  console.tell(sample(), names(), 16'000'000'000);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("(and 10 more connections since the last line)"), std::string::npos);
}

/// An hour of it is no thousand lines.
TEST(Console, PortFlapsForAnHour_LinesBecomeRare) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  for (uint64_t second = 1; second <= 3600; ++second) console.tell(sample(), names(), second * 1'000'000'000);
  EXPECT_GE(lines.size(), 8u);
  EXPECT_LE(lines.size(), 15u);
}

/// A port that was told a moment ago may be the last one now.
TEST(Console, LastRailIsLostShortlyAfterAnother_IsToldAtOnce) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  console.tell(sample(), names(), 5'000'000'000);
  FailoverEvent e = sample();
  e.rails_left = 0;
  console.tell(e, names(), 5'100'000'000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[1].find("0 rails left"), std::string::npos);
}

TEST(Console, RailThatMovesTooLittle_IsToldOncePerPortAndDirection) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  DegradedEvent e = slow();
  console.tell_degraded(e, names(), 30'000'000'000);
  EventNames another = names();
  another.peer = 7;
  console.tell_degraded(e, another, 30'000'000'000);
  ASSERT_EQ(lines.size(), 1u) << "one port";
  EXPECT_EQ(
      lines[0],
      "bfo: rank 0: rail 1 (softhca1 port 1) to rank 1 (host node2, softhca3 port 2) is degraded: for 1.2 "
      "s it has moved at most 80 Mbit/s to this host, before 790, another rail 795; it gets its share of "
      "the traffic");
  e.in = false;
  e.before = 0;
  e.rails_judged = e.rails_low = 4;
  console.tell_degraded(e, names(), 31'000'000'000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[1].find("80 Mbit/s to that host, another rail 795; all rails over this port are slow"),
            std::string::npos)
      << lines[1];
  e.in = true;
  console.tell_degraded(e, names(), 60'000'000'000);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("1 more rail since the last line"), std::string::npos) << lines[2];
}

TEST(Console, PortWithAnotherRate_IsToldOnceInEachDirection) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  PortSpeed speed = slower();
  console.tell_speed(speed, 30'000'000'000);
  speed.rank = 4;
  console.tell_speed(speed, 30'000'000'000);
  ASSERT_EQ(lines.size(), 1u) << "all processes of the host see it";
  EXPECT_EQ(lines[0],
            "bfo: rank 3: port 1 of softhca1 runs at 2.5 Gbit/s, before at 100 "
            "(IBV_EVENT_DEVICE_SPEED_CHANGE); rails "
            "share long messages accordingly");
  std::swap(speed.before, speed.now);
  console.tell_speed(speed, 31'000'000'000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[1].find("runs at 100 Gbit/s, before at 2.5"), std::string::npos);
  std::swap(speed.before, speed.now);
  console.tell_speed(speed, 60'000'000'000);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("1 more time since the last line"), std::string::npos);
}

TEST(Console, PortThatLosesPackets_IsToldWithHostPortAndDirection) {
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  PortLoss loss = lossy();
  console.tell_loss(loss);
  loss.in = false;
  loss.packets = 0;  // whatever the device says
  console.tell_loss(loss);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(
      lines[0],
      "bfo: rank 3: host node1: rail 1 (softhca1 port 1) loses packets that are sent to it: 213 of 20840 "
      "in 3.0 s (1.02 %) were missing; it keeps its share of the traffic");
  EXPECT_NE(lines[1].find("loses packets that it sends: 213 of 0 in 3.0 s (100 %) were sent again"),
            std::string::npos)
      << lines[1];
}

TEST(Console, NoRailToAPeer_SaysForHowLongAndWhatEndsIt) {
  FailoverEvent e;
  e.what = "no_rail";
  e.waited_ns = 20'400'000'000;
  e.messages_waiting = 3;
  EventNames n = names();
  n.peer_host = "n5";
  std::vector<std::string> lines;
  printed = &lines;
  Claims claims;
  claims.open(nullptr, 0);
  Console console(print, claims);
  console.tell_no_rail(e, n, 30, 30'000'000'000);
  EventNames another_rank = n;
  another_rank.peer = 7;
  console.tell_no_rail(e, another_rank, 30, 31'000'000'000);
  ASSERT_EQ(lines.size(), 1u) << "one line for a pair of hosts";
  EXPECT_EQ(lines[0],
            "bfo: rank 0 has had no rail to host n5 (rank 1) for 20 s, 3 messages wait; the job goes on when "
            "a rail comes back, or ends after pml_bfo_park_timeout (30 s)");
  n.peer_host = "n6";
  e.messages_waiting = 1;
  console.tell_no_rail(e, n, -1, 31'000'000'000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(
      lines[1].find("1 message waits; the job goes on when a rail comes back; pml_bfo_park_timeout is -1: "
                    "it waits without limit"),
      std::string::npos);
  console.tell_no_rail(e, n, 30, 41'000'000'000);
  EXPECT_EQ(lines.size(), 3u) << "again after ten seconds";
}

}  // namespace
}  // namespace bfo::glue
