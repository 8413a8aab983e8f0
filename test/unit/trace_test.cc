// SPDX-License-Identifier: BSD-3-Clause
//
// trace_test.cc: what pml_bfo_verbose prints of rails, of restart messages and of headers that are dropped.
#include "pml/bfo/glue/trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "pml/bfo/core/wire.h"

namespace bfo::glue {
namespace {

using core::MsgType;

constexpr auto kAck = static_cast<uint8_t>(MsgType::kRestartAck);

std::string restart(uint8_t type, const void* bytes, size_t length) {
  char out[400];
  describe_restart(out, sizeof(out), type, bytes, length);
  return out;
}

struct AckMessage {
  core::RestartHdr h{kAck, 0, 5, 1, 77, 2, 0, Name(3, 1, 2).value, Name(9, 4, 2).value};
  core::WireRange ranges[2] = {{0, 65536}, {131072, 196608}};
};

TEST(Trace, RestartAck_NamesRequestRoundAndRanges) {
  const AckMessage m;
  EXPECT_EQ(
      restart(kAck, &m, sizeof(m)),
      "RNDVRESTARTACK of request 3.1 (receive 9.4), round 2, ctx 5, sequence number 77, ranges received: "
      "0-65536 131072-196608");
}

TEST(Trace, NackOfAFailedReceive_SaysSo) {
  AckMessage m;
  m.h.type = static_cast<uint8_t>(MsgType::kRestartNack);
  m.h.flags = core::kFlagFail;
  m.h.receiver = 0;
  m.h.n = 0;
  EXPECT_EQ(restart(m.h.type, &m, sizeof(m.h)),
            "RNDVRESTARTNACK of request 3.1 (receive none), round 2, ctx 5, sequence number 77, failed");
}

TEST(Trace, ListThatIsLongerThanItsMessage_IsNotRead) {
  AckMessage m;
  m.h.n = 65535;
  const std::vector<char> exact(reinterpret_cast<const char*>(&m),
                                reinterpret_cast<const char*>(&m) + sizeof(m.h) + 16);
  EXPECT_NE(restart(kAck, exact.data(), exact.size()).find("ranges received: 0-65536"), std::string::npos);
  EXPECT_EQ(restart(kAck, exact.data(), 31), "RNDVRESTARTACK, 31 bytes, too short");
}

TEST(Trace, AnyBytes_AreDescribedInWhatThereIsRoomFor) {
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> bytes(rng() % 200);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(rng());
    char out[64];
    memset(out, 'x', sizeof(out));
    const size_t room = 1 + rng() % (sizeof(out) - 1);
    describe_restart(out, room, static_cast<uint8_t>(rng()), bytes.data(), bytes.size());
    EXPECT_LT(strnlen(out, sizeof(out)), room);
    EXPECT_EQ(out[room], 'x');
  }
}

TEST(Trace, Rail_IsNamedWithBothEnds) {
  bfo_rail_event_t event = {};
  event.info.name.epoch = 2;
  event.info.port = 1;
  snprintf(event.info.device, sizeof(event.info.device), "mlx5_1");
  snprintf(event.info.peer_port, sizeof(event.info.peer_port), "lid 3 qpn 0x17");
  snprintf(event.text, sizeof(event.text), "RETRY_EXC_ERR");
  char out[300];
  describe_rail(out, sizeof(out), 1, {7, "n7"}, event, "down");
  EXPECT_STREQ(out,
               "rail 1 (mlx5_1 port 1) to rank 7 on host n7 (lid 3 qpn 0x17), epoch 2: down: RETRY_EXC_ERR");
}

TEST(Trace, Plan_SaysWhatWasDecidedAndWhatMadeIt) {
  xfer::PlanTrace plan;
  const auto text = [&plan] {
    char out[800];
    describe_plan(out, sizeof(out), {1, "n1"}, plan);
    return std::string(out);
  };
  plan.length = 50000;
  EXPECT_EQ(text(), "plan with rank 1 on host n1: RGET of 50000 bytes offers the keys of all rails");
  plan.rail = 1;
  EXPECT_EQ(text(), "plan with rank 1 on host n1: RGET of 50000 bytes offers the key of rail 1");
  plan.what = xfer::PlanTrace::What::kRead;
  plan.size = 4096;
  plan.left = 8192;
  plan.pieces_out = 2;
  plan.bytes_out = 9000;
  plan.n_rails = 2;
  plan.rails[0] = {0, 16, 100, 9000};
  plan.rails[1] = {1, 0, 400, 0};
  EXPECT_EQ(text(),
            "plan with rank 1 on host n1: READ of 4096 bytes over rail 1, of a message of 50000 bytes: 8192 "
            "are next, "
            "2 pieces with 9000 bytes under way; rail 0: 9000 bytes in flight, weight 100, does not keep up; "
            "rail 1: "
            "0 bytes in flight, weight 400, keeps up");
  plan.rails[0].basis = xfer::Basis::kMeasured;
  plan.rails[0].rate = 812;
  plan.rails[0].latency_ns = 120'000;
  plan.rails[1].basis = xfer::Basis::kGiven;
  plan.rails[1].rate = 4 * xfer::kGivenUnit;
  plan.uneven = true;
  EXPECT_NE(
      text().find("does not keep up, 812 Mbit/s and 120 us (measured); rail 1: 0 bytes in flight, weight "
                  "400, keeps up, weight 4 (pml_bfo_weights); uneven, so rates count"),
      std::string::npos)
      << text();
  plan.what = xfer::PlanTrace::What::kGrant;
  plan.size = 0;
  EXPECT_EQ(text().find("plan with rank 1 on host n1: no further PUT now, of a message of 50000 bytes"), 0u);
}

TEST(Trace, WhatARailIsTakenToMove_HasItsReason) {
  const auto text = [](xfer::Basis basis, uint64_t rate) {
    char out[100];
    describe_rate(out, sizeof(out), basis, rate, 0);
    return std::string(out);
  };
  EXPECT_EQ(text(xfer::Basis::kLikeFastest, 1), "") << "nothing is known";
  std::set<std::string> all;
  for (unsigned b = 0; b <= static_cast<unsigned>(xfer::Basis::kLikeFastest); ++b)
    all.insert(text(static_cast<xfer::Basis>(b), 8000));
  EXPECT_EQ(all.size(), static_cast<unsigned>(xfer::Basis::kLikeFastest) + 1u);
  EXPECT_EQ(text(xfer::Basis::kLate, 8), "8 Mbit/s at most (what is in flight is late)");
}

TEST(Trace, EachMessageType_HasItsName) {
  for (const uint8_t type : core::kAllTypes) EXPECT_STRNE(type_name(type), "unknown") << int{type};
  EXPECT_STREQ(type_name(0), "unknown");
}

TEST(Trace, Drop_IsExplainedByWhatWasCounted) {
  const core::FragHdr h{static_cast<uint8_t>(MsgType::kFrag), 0, 0, 1, 0};
  const auto why = [&](uint64_t xfer::Counters::*counter, uint8_t tag, size_t length) {
    const xfer::Counters before;
    xfer::Counters after;
    ++(after.*counter);
    const char* const text = why_dropped(before, after, tag, &h, length);
    return std::string(text != nullptr ? text : "");
  };
  EXPECT_EQ(why(&xfer::Counters::eager_sent, 0x46, sizeof(h)), "");
  EXPECT_EQ(why(&xfer::Counters::duplicates, 0x46, sizeof(h)).rfind("duplicate", 0), 0u);
  EXPECT_EQ(why(&xfer::Counters::stale, 0x46, sizeof(h)).rfind("stale", 0), 0u);
  EXPECT_EQ(why(&xfer::Counters::ignored, 0x46, sizeof(h)).rfind("ignored", 0), 0u);
  EXPECT_EQ(why(&xfer::Counters::malformed, 0x7f, sizeof(h)), "malformed: no such type");
  EXPECT_EQ(why(&xfer::Counters::malformed, 0x46, 19), "malformed: shorter than its header");
  EXPECT_EQ(why(&xfer::Counters::malformed, 0x44, sizeof(h)), "malformed: its first byte is not its tag");
  EXPECT_EQ(why(&xfer::Counters::malformed, 0x46, sizeof(h)),
            "malformed: its fields are out of range, or name what is not its sender's");
}

}  // namespace
}  // namespace bfo::glue
