// SPDX-License-Identifier: BSD-3-Clause
//
// core_test.cc: headers and state machines.
#include <gtest/gtest.h>

#include <set>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "pml/bfo/core/wire.h"

namespace bfo::core {
namespace {

TEST(Wire, MatchHasNoFailoverByte) {
  const MatchHdr h{0x41, 0, 0x1234, -2, 77, 0xfffe};
  std::uint8_t b[14];
  std::memcpy(b, &h, 14);
  const std::uint8_t want[14] = {0x41, 0, 0x34, 0x12, 0xfe, 0xff, 0xff, 0xff, 77, 0, 0, 0, 0xfe, 0xff};
  EXPECT_EQ(std::memcmp(b, want, 14), 0);
}

TEST(Wire, EveryHeaderRefusesEveryTruncation) {
  std::uint8_t b[2048];
  std::memset(b, 1, sizeof b);
  const auto shorter = [&](auto hdr) {
    for (std::size_t n = 0; n < sizeof hdr; ++n) EXPECT_FALSE(decode(Bytes{b, n}, hdr)) << n;
    EXPECT_TRUE(decode(Bytes{b, sizeof hdr}, hdr));
  };
  shorter(MatchHdr{});
  shorter(RndvHdr{});
  shorter(AckHdr{});
  shorter(FragHdr{});
  shorter(PutHdr{});
  shorter(FinHdr{});
  shorter(RestartHdr{});
  shorter(RailHdr{});
  shorter(SeqSyncHdr{});
}

TEST(Wire, RgetChecksItsKeys) {
  RgetHdr h{};
  h.n_keys = 3;
  for (auto& k : h.keys) k.handle_len = 8;
  RgetHdr out;
  std::size_t used = 0;
  std::uint8_t b[sizeof h];
  const auto encode = [&] { std::memcpy(b, &h, sizeof h); };
  encode();
  EXPECT_TRUE(decode_rget(Bytes{b, rget_size(3)}, out, used));
  EXPECT_EQ(used, rget_size(3));
  EXPECT_FALSE(decode_rget(Bytes{b, rget_size(3) - 1}, out, used));
  h.keys[2].handle_len = kMaxHandle + 1;
  encode();
  EXPECT_FALSE(decode_rget(Bytes{b, rget_size(3)}, out, used));
  for (unsigned n : {0u, static_cast<unsigned>(kMaxWireRails) + 1, 255u}) {
    h.keys[2].handle_len = 8;
    h.n_keys = static_cast<std::uint8_t>(n);
    encode();
    EXPECT_FALSE(decode_rget(Bytes{b, sizeof b}, out, used)) << n;
  }
}

TEST(Wire, RestartListsAreBounded) {
  struct {
    RestartHdr h;
    WireRange r[kMaxWireRanges + 1];
  } m{};
  RestartHdr h;
  WireRange list[kMaxWireRanges];
  const Bytes all{reinterpret_cast<const std::uint8_t*>(&m), sizeof m};
  m.h.n = kMaxWireRanges;
  EXPECT_TRUE(decode_restart(all, h, list, kMaxWireRanges));
  m.h.n = kMaxWireRanges + 1;
  EXPECT_FALSE(decode_restart(all, h, list, kMaxWireRanges));
  m.h.n = 2;
  EXPECT_FALSE(decode_restart(Bytes{all.data, sizeof(RestartHdr) + 2 * sizeof(WireRange) - 1}, h, list, 64));
}

TEST(Wire, PutRangeMayNotWrap) {
  PutHdr h{};
  h.offset = ~std::uint64_t{0} - 3;
  h.length = 8;
  PutHdr out;
  EXPECT_FALSE(decode_put(Bytes{reinterpret_cast<const std::uint8_t*>(&h), sizeof h}, out));
}

/// Events that only this process can raise: they alone may be bugs.
bool local(SendEvent e) {
  switch (e) {
    case SendEvent::kControlLost:
    case SendEvent::kDataLost:
    case SendEvent::kDrained:
    case SendEvent::kAllDelivered:
    case SendEvent::kRailClosed:
    case SendEvent::kGateOpen:
    case SendEvent::kGiveUp:
      return true;
    default:
      return false;
  }
}
bool local(RecvEvent e) {
  switch (e) {
    case RecvEvent::kReadDone:
    case RecvEvent::kReadLost:
    case RecvEvent::kCovered:
    case RecvEvent::kControlLost:
    case RecvEvent::kAsk:
    case RecvEvent::kQuiesced:
    case RecvEvent::kRailClosed:
    case RecvEvent::kGateOpen:
    case RecvEvent::kGiveUp:
      return true;
    default:
      return false;
  }
}

TEST(SendMachine, NoMessageCanReachABug) {
  for (std::size_t p = 1; p < kSendPhases; ++p)
    for (std::size_t e = 0; e < kSendEvents; ++e)
      if (!local(static_cast<SendEvent>(e))) {
        EXPECT_NE(kSendTable[p][e].kind, CellKind::kBug) << kSendPhaseNames[p] << " " << kSendEventNames[e];
      }
}
TEST(RecvMachine, NoMessageCanReachABug) {
  for (std::size_t p = 1; p < kRecvPhases; ++p)
    for (std::size_t e = 0; e < kRecvEvents; ++e)
      if (!local(static_cast<RecvEvent>(e))) {
        EXPECT_NE(kRecvTable[p][e].kind, CellKind::kBug) << kRecvPhaseNames[p] << " " << kRecvEventNames[e];
      }
}

TEST(SendMachine, OnlyTheGateCompletes) {
  for (std::size_t p = 0; p < kSendPhases; ++p)
    for (std::size_t e = 0; e < kSendEvents; ++e) {
      const auto& c = kSendTable[p][e];
      const bool completes = c.kind == CellKind::kGo && (c.actions & kSendComplete);
      EXPECT_EQ(completes, p == static_cast<std::size_t>(SendPhase::kClosing) &&
                               e == static_cast<std::size_t>(SendEvent::kGateOpen));
    }
}
TEST(RecvMachine, OnlyTheGateCompletes) {
  for (std::size_t p = 0; p < kRecvPhases; ++p)
    for (std::size_t e = 0; e < kRecvEvents; ++e) {
      const auto& c = kRecvTable[p][e];
      const bool completes = c.kind == CellKind::kGo && (c.actions & kRecvComplete);
      EXPECT_EQ(completes, p == static_cast<std::size_t>(RecvPhase::kClosing) &&
                               e == static_cast<std::size_t>(RecvEvent::kGateOpen));
    }
}

TEST(SendMachine, EveryWaitingPhaseRepeatsOrIsAnswered) {
  // After a rail closed, a phase that waits for the peer sends again, or waits only for its own fragments, or
  // for messages the receiver repeats.
  EXPECT_TRUE(step(SendPhase::kOpening, SendEvent::kRailClosed).actions & kSendOpen);
  EXPECT_TRUE(step(SendPhase::kNotified, SendEvent::kRailClosed).actions & kSendNotify);
  EXPECT_TRUE(step(RecvPhase::kReceiving, RecvEvent::kRailClosed).actions & kRecvAnswer);
  EXPECT_TRUE(step(RecvPhase::kAsking, RecvEvent::kRailClosed).actions & kRecvAsk);
  EXPECT_TRUE(step(RecvPhase::kQuiet, RecvEvent::kRailClosed).actions & kRecvQuiet);
}

TEST(SendMachine, RoundGrowsOnlyWhenDrained) {
  for (std::size_t p = 0; p < kSendPhases; ++p)
    for (std::size_t e = 0; e < kSendEvents; ++e)
      if (kSendTable[p][e].actions & kSendNewRound) {
        EXPECT_EQ(p, static_cast<std::size_t>(SendPhase::kDraining));
        EXPECT_EQ(e, static_cast<std::size_t>(SendEvent::kDrained));
      }
}

TEST(Machines, NamesAreComplete) {
  const auto check = [](const char* const* names, std::size_t n) {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NE(names[i], nullptr);
      EXPECT_TRUE(seen.insert(names[i]).second) << names[i];
    }
  };
  check(kSendPhaseNames, kSendPhases);
  check(kSendEventNames, kSendEvents);
  check(kRecvPhaseNames, kRecvPhases);
  check(kRecvEventNames, kRecvEvents);
}

}  // namespace
}  // namespace bfo::core
