// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_stored_test.cc: messages whose bytes are kept until they are delivered: with and without a record.
#include "pml/bfo/xfer/rails/stored.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;
using Frag = TinyPort::Frag;

struct Fixture {
  std::vector<uint8_t> message(size_t size, uint8_t type) {
    std::vector<uint8_t> m(size, 0x5a);
    m[0] = type;
    return m;
  }
  /// False: no memory.
  bool keep(const std::vector<uint8_t>& m, Rail<TinyPort>* rail = nullptr, uint32_t epoch = 0) {
    return stored.keep(p.peer, {m.data(), m.size(), rail, epoch}, record) == Stored::Kept::kYes;
  }
  /// Takes the oldest one that has a record.
  std::vector<uint8_t> pop() {
    Frag* const f = p.peer.backlog.take_stored();
    const auto* const bytes = static_cast<const uint8_t*>(stored_bytes(*f));
    std::vector<uint8_t> m(bytes, bytes + f->xfer.stored_len);
    if (f->xfer.buffer) port.free(f->xfer.buffer);
    port.frag_free(*f);
    return m;
  }
  TinyPort port;
  using Stored = StoredMessages<TinyPort>;
  Stored stored{port};
  TinyPeer p{2};
  Frag* record = nullptr;
};

TEST(StoredMessages, WaitInOrderWithTheirBytes) {
  Fixture t;
  const auto a = t.message(20, 3);
  const auto b = t.message(1000, 4);
  ASSERT_TRUE(t.keep(a));
  ASSERT_NE(t.record, nullptr);
  EXPECT_EQ(t.record->xfer.type, 3);
  EXPECT_EQ(t.record->xfer.kind, FragKind::kStored);
  EXPECT_EQ(t.record->xfer.peer, &t.p.peer);
  EXPECT_FALSE(t.record->xfer.pinned);
  EXPECT_EQ(t.port.live, 0) << "a short one needs no memory";
  ASSERT_TRUE(t.keep(b, &t.p.rails[1], 6));
  EXPECT_TRUE(t.record->xfer.pinned);
  EXPECT_EQ(t.record->xfer.rail, &t.p.rails[1]);
  EXPECT_EQ(t.record->xfer.epoch, 6u);
  EXPECT_EQ(t.pop(), a);
  EXPECT_EQ(t.pop(), b);
  EXPECT_EQ(t.port.live, 0);
  EXPECT_EQ(t.port.frags, 0);
}

TEST(StoredMessages, WithoutARecordWaitBehindAndGetOneLater) {
  Fixture t;
  const auto a = t.message(20, 3);
  const auto b = t.message(30, 4);
  const auto c = t.message(1000, 5);
  t.port.frags_left = 1;
  ASSERT_TRUE(t.keep(a));
  ASSERT_TRUE(t.keep(b, &t.p.rails[0], 2));
  EXPECT_EQ(t.record, nullptr);
  t.port.frags_left = 5;
  ASSERT_TRUE(t.keep(c));
  EXPECT_EQ(t.record, nullptr) << "it must not overtake";
  EXPECT_EQ(t.pop(), a);
  EXPECT_FALSE(t.p.peer.backlog.any_recorded());
  t.port.frags_left = 1;
  EXPECT_FALSE(t.stored.record_waiting(t.p.peer));
  Frag* const f = t.p.peer.backlog.take_stored();
  EXPECT_EQ(f->xfer.rail, &t.p.rails[0]);
  EXPECT_EQ(f->xfer.epoch, 2u);
  t.p.peer.backlog.store_first(f);
  EXPECT_EQ(t.pop(), b);
  t.port.frags_left = 1;
  EXPECT_TRUE(t.stored.record_waiting(t.p.peer));
  EXPECT_EQ(t.pop(), c);
  EXPECT_EQ(t.port.live, 0);
  EXPECT_EQ(t.port.frags, 0);
}

std::vector<uint8_t> answer(core::MsgType type, Name sender, uint8_t flags) {
  const core::RestartHdr h{static_cast<uint8_t>(type), flags, 0, 0, 0, 0, 0, sender.value, 0};
  std::vector<uint8_t> m(sizeof h);
  std::memcpy(m.data(), &h, sizeof h);
  return m;
}

/// The first ones have records, and may wait twice.
TEST(StoredMessages, ANewerAnswerTakesThePlaceOfAnOlderOne) {
  Fixture t;
  constexpr auto kNack = core::MsgType::kRestartNack;
  constexpr unsigned kRecords = Backlog<TinyPort>::kRecords;
  for (unsigned i = 0; i < kRecords; ++i) ASSERT_TRUE(t.keep(answer(kNack, Name(0, 1, 0), 0)));
  EXPECT_EQ(t.port.live, 0);
  for (Round round = 0; round < 1000; ++round)
    for (uint32_t slot = 0; slot < 40; ++slot) {
      ASSERT_TRUE(t.keep(answer(kNack, Name(slot, 1, round), 0)));
      ASSERT_TRUE(t.keep(answer(core::MsgType::kSendDone, Name(slot, 1, round), core::kFlagFail)));
    }
  EXPECT_EQ(t.p.peer.backlog.answers(), kRecords + 80);
  EXPECT_EQ(t.port.live, 80 + 1) << "and the index";
  for (unsigned i = 0; i < kRecords; ++i) t.pop();
  for (uint32_t slot = 0; slot < 40; ++slot) {
    ASSERT_TRUE(t.stored.record_waiting(t.p.peer));
    EXPECT_EQ(t.pop(), answer(kNack, Name(slot, 1, 999), 0));
    ASSERT_TRUE(t.stored.record_waiting(t.p.peer));
    EXPECT_EQ(t.pop(), answer(core::MsgType::kSendDone, Name(slot, 1, 999), core::kFlagFail));
  }
  EXPECT_TRUE(t.p.peer.backlog.nothing_stored());
  EXPECT_EQ(t.port.live, 0);
}

/// Messages of the user do not count: rails have handed them back.
TEST(StoredMessages, MoreAnswersThanAnHonestPeerCauses_AreRefused) {
  Fixture t;
  t.port.allocs_left = 1 << 30;
  using Kept = Fixture::Stored::Kept;
  const auto keep = [&](const std::vector<uint8_t>& m) {
    return t.stored.keep(t.p.peer, {m.data(), m.size()}, t.record);
  };
  const uint64_t most = Fixture::Stored::most_answers(t.p.peer);
  EXPECT_EQ(most, 65'536u);
  const auto user = t.message(20, static_cast<uint8_t>(core::MsgType::kMatch));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(keep(user), Kept::kYes);
  const auto nack = [](uint64_t i) {
    return answer(core::MsgType::kRestartNack, Name(static_cast<uint32_t>(i), 1, 0), 0);
  };
  for (uint64_t i = 0; i < most; ++i) ASSERT_EQ(keep(nack(i)), Kept::kYes);
  EXPECT_EQ(keep(nack(most)), Kept::kTooMany);
  EXPECT_EQ(keep(nack(1000)), Kept::kYes) << "it waits already";
  EXPECT_EQ(keep(user), Kept::kYes);
  t.p.peer.rendezvous = 1;
  EXPECT_EQ(keep(nack(most)), Kept::kYes);
  t.stored.drop(t.p.peer);
  EXPECT_EQ(t.p.peer.backlog.answers(), 0u);
  EXPECT_EQ(t.port.live, 0);
}

TEST(StoredMessages, WithoutMemoryNothingIsKept) {
  Fixture t;
  t.port.allocs_left = 0;
  EXPECT_FALSE(t.keep(t.message(1000, 5)));
  EXPECT_EQ(t.record, nullptr);
  EXPECT_EQ(t.port.frags, 0);
  t.port.frags_left = 0;
  EXPECT_FALSE(t.keep(t.message(20, 5)));
  EXPECT_TRUE(t.p.peer.backlog.nothing_stored());
  t.port.allocs_left = 1;
  EXPECT_TRUE(t.keep(t.message(1000, 5)));
  t.port.frags_left = 1;
  EXPECT_FALSE(t.stored.record_waiting(t.p.peer)) << "no memory for the bytes in their record";
  EXPECT_EQ(t.port.frags, 0);
  EXPECT_NE(t.p.peer.backlog.unrecorded(), nullptr);
  t.stored.drop(t.p.peer);
  EXPECT_EQ(t.port.live, 0);
}

TEST(StoredMessages, DropFreesAllAndEndsAPing) {
  Fixture t;
  ASSERT_TRUE(t.keep(t.message(1000, 5)));
  t.record->xfer.grant = kPing;
  t.p.peer.backlog.ping_begins(0);
  t.port.frags_left = 0;
  ASSERT_TRUE(t.keep(t.message(20, 5)));
  t.stored.drop(t.p.peer);
  EXPECT_TRUE(t.p.peer.backlog.nothing_stored());
  EXPECT_FALSE(t.p.peer.backlog.pinging(0));
  EXPECT_EQ(t.port.live, 0);
  EXPECT_EQ(t.port.frags, 0);
}

}  // namespace
}  // namespace bfo::xfer
