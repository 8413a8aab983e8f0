// SPDX-License-Identifier: BSD-3-Clause
//
// core_test.cc: headers and state machines.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "pml/bfo/core/opened.h"
#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "test/sim/table_rules.h"

namespace bfo::core {
namespace {

TEST(Wire, MatchHasNoFailoverByte) {
  const MatchHdr h{0x41, 0, 0x1234, -2, 77, 0xfffe};
  uint8_t b[14];
  std::memcpy(b, &h, 14);
  const uint8_t want[14] = {0x41, 0, 0x34, 0x12, 0xfe, 0xff, 0xff, 0xff, 77, 0, 0, 0, 0xfe, 0xff};
  EXPECT_EQ(std::memcmp(b, want, 14), 0);
}

TEST(Wire, SeqSyncEndsWithTheNumberOfItsQuestion) {
  const SeqSyncHdr h{0x57, kFlagReply, 0x1234, -2, 0xfffe, 0x0102};
  uint8_t b[12];
  std::memcpy(b, &h, 12);
  const uint8_t want[12] = {0x57, 0x80, 0x34, 0x12, 0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff, 0x02, 0x01};
  EXPECT_EQ(std::memcmp(b, want, 12), 0);
}

TEST(Wire, EveryHeaderRefusesEveryTruncation) {
  uint8_t b[2048];
  std::memset(b, 1, sizeof b);
  const auto one = static_cast<MsgType>(1);
  const auto shorter = [&](auto hdr) {
    for (size_t n = 0; n < sizeof hdr; ++n) EXPECT_FALSE(decode(one, Bytes{b, n}, hdr)) << n;
    EXPECT_TRUE(decode(one, Bytes{b, sizeof hdr}, hdr));
    EXPECT_FALSE(decode(static_cast<MsgType>(2), Bytes{b, sizeof hdr}, hdr)) << "it says another type";
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

constexpr auto kRget = static_cast<uint8_t>(MsgType::kRget);

TEST(Wire, RgetChecksItsKeys) {
  RgetHdr h{};
  h.rndv.match.type = kRget;
  h.n_keys = 3;
  for (auto& k : h.keys) k.handle_len = 8;
  RgetHdr out;
  uint8_t b[sizeof h];
  const auto encode = [&] { std::memcpy(b, &h, sizeof h); };
  encode();
  EXPECT_TRUE(decode_rget(Bytes{b, rget_size(h)}, out));
  for (unsigned i = 0; i < 3; ++i) {
    h.keys[i].handle_len = kMaxHandle + 1;
    encode();
    EXPECT_FALSE(decode_rget(Bytes{b, rget_size(3)}, out)) << i;
    h.keys[i].handle_len = 8;
  }
  for (unsigned n : {0u, static_cast<unsigned>(kMaxWireRails) + 1, 255u}) {
    h.n_keys = static_cast<uint8_t>(n);
    encode();
    EXPECT_FALSE(decode_rget(Bytes{b, sizeof b}, out)) << n;
  }
  h.n_keys = 3;
  for (int type = 0; type < 256; ++type) {
    h.rndv.match.type = static_cast<uint8_t>(type);
    encode();
    EXPECT_EQ(decode_rget(Bytes{b, sizeof b}, out), type == kRget) << type;
  }
}

TEST(Wire, RgetOfAnyNumberOfKeysIsReadAsFarAsItGoes) {
  for (unsigned n = 1; n <= kMaxWireRails; ++n) {
    for (unsigned length : {0u, 8u, 9u, 16u}) {
      RgetHdr h{};
      h.rndv.match.type = kRget;
      h.n_keys = static_cast<uint8_t>(n);
      for (unsigned i = 0; i < n; ++i) {
        h.keys[i].conn = i + 1;
        h.keys[i].handle_len = i + 1 == n ? static_cast<uint8_t>(length) : 16;
        std::memset(h.keys[i].handle, static_cast<int>(0x10 + i), h.keys[i].handle_len);
      }
      ASSERT_EQ(rget_size(h), rget_size(n));
      // Exactly as long as the header, so that the sanitizer sees what is read beyond it.
      const std::vector<uint8_t> b(reinterpret_cast<const uint8_t*>(&h),
                                   reinterpret_cast<const uint8_t*>(&h) + rget_size(h));
      RgetHdr out;
      std::memset(static_cast<void*>(&out), 0xee, sizeof out);
      ASSERT_TRUE(decode_rget(Bytes{b.data(), b.size()}, out)) << n << " keys, " << length;
      for (unsigned i = 0; i < n; ++i)
        EXPECT_EQ(std::memcmp(&out.keys[i], &h.keys[i], sizeof(RailKey)), 0)
            << i << " of " << n << ", " << length;
      for (size_t less = 1; less <= b.size(); ++less) {
        const std::vector<uint8_t> cut(b.begin(), b.end() - static_cast<ptrdiff_t>(less));
        ASSERT_FALSE(decode_rget(Bytes{cut.data(), cut.size()}, out))
            << n << " keys, " << length << ", " << less;
      }
    }
  }
}

TEST(Wire, RestartListsAreBounded) {
  struct {
    RestartHdr h;
    WireRange r[kMaxWireRanges + 1];
  } m{};
  RestartHdr h;
  WireRange list[kMaxWireRanges];
  const Bytes all{reinterpret_cast<const uint8_t*>(&m), sizeof m};
  m.h.type = static_cast<uint8_t>(MsgType::kRestartAck);
  m.h.n = kMaxWireRanges;
  EXPECT_TRUE(decode_restart(MsgType::kRestartAck, all, h, list, kMaxWireRanges));
  m.h.n = kMaxWireRanges + 1;
  EXPECT_FALSE(decode_restart(MsgType::kRestartAck, all, h, list, kMaxWireRanges));
  m.h.n = 2;
  EXPECT_FALSE(decode_restart(MsgType::kRestartAck,
                              Bytes{all.data, sizeof(RestartHdr) + 2 * sizeof(WireRange) - 1}, h, list, 64));
  EXPECT_TRUE(decode_restart(MsgType::kRestartAck, all, h, list, 64));
  EXPECT_FALSE(decode_restart(MsgType::kRestartNotify, all, h, list, 64)) << "it says another type";
}

TEST(Wire, PutRangeMayNotWrap) {
  PutHdr h{};
  h.type = static_cast<uint8_t>(MsgType::kPut);
  h.offset = ~uint64_t{0} - 3;
  h.length = 8;
  PutHdr out;
  EXPECT_FALSE(decode_put(Bytes{reinterpret_cast<const uint8_t*>(&h), sizeof h}, out));
}

TEST(Opened, OfEachType_IsTheSameWhenItIsStored) {
  for (MsgType type : {MsgType::kMatch, MsgType::kRndv, MsgType::kRget})
    for (unsigned n = 1; n <= kMaxWireRails; ++n)
      for (uint8_t length : {8, 16}) {
        RgetHdr h{};
        h.rndv.match = MatchHdr{static_cast<uint8_t>(type), kFlagContig, 3, 4, 5, 6};
        h.rndv.length = 7;
        h.address = 8;
        h.n_keys = static_cast<uint8_t>(n);
        for (unsigned i = 0; i < n; ++i) {
          h.keys[i].conn = 9 + i;
          h.keys[i].handle_len = length;
        }
        const size_t size = type == MsgType::kRget ? rget_size(h) : 60;
        std::vector<uint8_t> b(reinterpret_cast<const uint8_t*>(&h),
                               reinterpret_cast<const uint8_t*>(&h) + size);
        RgetHdr room;
        const Bytes in{b.data(), b.size()};
        MatchHdr match;
        ASSERT_TRUE(type != MsgType::kMatch || decode_match(in, match));
        const auto came = type == MsgType::kMatch ? Opened::match(&match, in.from(sizeof match))
                                                  : Opened::open(type, in, room);
        ASSERT_TRUE(came);
        std::vector<uint8_t> memory(came->stored_size());
        const MatchHdr own = came->match();  // that of a MATCH
        const Opened o = came->stored_at(memory.data(), &own);
        std::fill(b.begin(), b.end(), 0xee);  // it does not refer to what came
        std::memset(static_cast<void*>(&room), 0xee, sizeof room);
        EXPECT_EQ(o.is_match(), type == MsgType::kMatch);
        EXPECT_EQ(o.match().tag, 5);
        EXPECT_EQ(o.length(), type == MsgType::kMatch ? size - sizeof(MatchHdr) : 7);
        EXPECT_EQ(o.is_rget(), type == MsgType::kRget);
        const uint8_t* const payload = reinterpret_cast<const uint8_t*>(&h) + size - o.payload().size;
        EXPECT_EQ(std::memcmp(o.payload().data, payload, o.payload().size), 0);
        for (unsigned i = 0; o.is_rget() && i < o.n_keys(); ++i)
          EXPECT_EQ(std::memcmp(&o.key(i), &h.keys[i], sizeof(RailKey)), 0);
      }
}

TEST(SendMachine, KeepsTheRulesOfTheTable) {
  EXPECT_EQ(broken_rules<SendRules>(kSendTable), "");
}
TEST(RecvMachine, KeepsTheRulesOfTheTable) {
  EXPECT_EQ(broken_rules<RecvRules>(kRecvTable), "");
}
TEST(Machines, EveryWaitingPhaseRepeatsOrIsAnswered) {
  EXPECT_EQ(broken_wait(kSendTable, kRecvTable), "");
}

/// The rules themselves must be able to fail.
TEST(Machines, RulesNoticeWhatTheyForbid) {
  const auto with = [](SendPhase p, SendEvent e, SendCell c) {
    SendTable t = kSendTable;
    t[static_cast<size_t>(p)][static_cast<size_t>(e)] = c;
    return broken_rules<SendRules>(t) + broken_wait(t, kRecvTable);
  };
  using S = SendPhase;
  using E = SendEvent;
  EXPECT_NE(with(S::kNotified, E::kAck, bug<S>("no")), "");
  EXPECT_EQ(with(S::kNotified, E::kDrained, bug<S>("yes")), "");
  EXPECT_NE(with(S::kClosing, E::kGateOpen, ignore<S>("no")), "");
  EXPECT_NE(with(S::kClosing, E::kNack, go(S::kIdle, kSendComplete)), "");
  EXPECT_NE(with(S::kClosing, E::kAck, go(S::kSending, kSendStart)), "");
  EXPECT_NE(with(S::kClosing, E::kFin, go(S::kClosing, kSendFinishOk)), "");
  EXPECT_NE(with(S::kSending, E::kFin, go(S::kSending, kSendFinishOk)), "");
  EXPECT_NE(with(S::kSending, E::kRecvErr, go(S::kNotified, kSendNewRound | kSendNotify)), "");
  EXPECT_NE(with(S::kOpening, E::kRailClosed, ignore<S>("no")), "");
}

TEST(Machines, NamesAreComplete) {
  const auto check = [](const char* const* names, size_t n) {
    std::set<std::string> seen;
    for (size_t i = 0; i < n; ++i) {
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
