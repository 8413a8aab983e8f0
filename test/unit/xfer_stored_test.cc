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
  std::vector<std::uint8_t> message(std::size_t size, std::uint8_t type) {
    std::vector<std::uint8_t> m(size, 0x5a);
    m[0] = type;
    return m;
  }
  /// False: no memory.
  bool keep(const std::vector<std::uint8_t>& m, Rail<TinyPort>* rail = nullptr, std::uint32_t epoch = 0) {
    return stored.keep(p.peer, {m.data(), m.size(), rail, epoch}, record);
  }
  /// Takes the oldest one that has a record.
  std::vector<std::uint8_t> pop() {
    Frag* const f = p.peer.backlog.stored.pop_front();
    const auto* const bytes = static_cast<const std::uint8_t*>(stored_bytes(*f));
    std::vector<std::uint8_t> m(bytes, bytes + f->xfer.stored_len);
    if (f->xfer.buffer) port.free(f->xfer.buffer);
    port.frag_free(*f);
    return m;
  }
  TinyPort port;
  StoredMessages<TinyPort> stored{port};
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
  EXPECT_TRUE(t.p.peer.backlog.stored.empty());
  t.port.frags_left = 1;
  EXPECT_FALSE(t.stored.record_waiting(t.p.peer));
  EXPECT_EQ(t.p.peer.backlog.stored.front()->xfer.rail, &t.p.rails[0]);
  EXPECT_EQ(t.p.peer.backlog.stored.front()->xfer.epoch, 2u);
  EXPECT_EQ(t.pop(), b);
  t.port.frags_left = 1;
  EXPECT_TRUE(t.stored.record_waiting(t.p.peer));
  EXPECT_EQ(t.pop(), c);
  EXPECT_EQ(t.port.live, 0);
  EXPECT_EQ(t.port.frags, 0);
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
  EXPECT_FALSE(t.p.peer.backlog.unrecorded.empty());
  t.stored.drop(t.p.peer);
  EXPECT_EQ(t.port.live, 0);
}

TEST(StoredMessages, DropFreesAllAndEndsAPing) {
  Fixture t;
  ASSERT_TRUE(t.keep(t.message(1000, 5)));
  t.record->xfer.grant = kPing;
  t.p.peer.watch.set_pinging(true);
  t.port.frags_left = 0;
  ASSERT_TRUE(t.keep(t.message(20, 5)));
  t.stored.drop(t.p.peer);
  EXPECT_TRUE(t.p.peer.backlog.nothing_stored());
  EXPECT_FALSE(t.p.peer.watch.pinging());
  EXPECT_EQ(t.port.live, 0);
  EXPECT_EQ(t.port.frags, 0);
}

}  // namespace
}  // namespace bfo::xfer
