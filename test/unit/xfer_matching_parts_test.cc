// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_matching_parts_test.cc: what the engine keeps for matching, each part alone: communicators by context
// id, messages for communicators that do not exist yet, ranks of those that had to go.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "pml/bfo/xfer/matching/comm_table.h"
#include "pml/bfo/xfer/matching/unknown_messages.h"
#include "test/unit/counted_memory.h"
#include "test/unit/fake_port.h"
#include "test/unit/fake_world.h"

namespace bfo::xfer {
namespace {

using Memory = test::CountedMemory;
using test::FakePort;

TEST(CommTable, FindsByContextId) {
  Memory memory;
  CommTable<FakePort> table;
  std::vector<std::unique_ptr<Comm<FakePort>>> comms;
  for (const unsigned ctx : {0u, 1u, 255u, 256u, 65535u}) {
    const auto id = static_cast<uint16_t>(ctx);
    EXPECT_EQ(table.find(id), nullptr);
    ASSERT_TRUE(table.reserve(memory, id));
    comms.push_back(std::make_unique<Comm<FakePort>>());
    comms.back()->ctx = id;
    table.add(comms.back().get());
  }
  EXPECT_EQ(memory.live, 3) << "pages";
  for (const auto& c : comms) EXPECT_EQ(table.find(c->ctx), c.get());
  size_t n = 0;
  for (auto* c = table.front(); c; c = table.next(c)) EXPECT_EQ(c, comms[n++].get()) << "as they came";
  EXPECT_EQ(n, comms.size());
  table.remove(comms[1].get());
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.find(0), comms[0].get());
  memory.left = 0;
  EXPECT_TRUE(table.reserve(memory, 17)) << "its page is there";
  EXPECT_FALSE(table.reserve(memory, 1000));
  for (auto* c = table.front(); c; c = table.front()) table.remove(c);
  table.free_pages(memory);
  EXPECT_EQ(memory.live, 0);
}

TEST(CommTable, RemembersFreedContextIds) {
  const auto table = std::make_unique<CommTable<FakePort>>();
  table->note_used(64);
  EXPECT_TRUE(table->was_used(64));
  EXPECT_FALSE(table->was_used(63));
  EXPECT_FALSE(table->was_used(65));
}

using Message = Unexpected<FakePort>;

Message message(uint16_t ctx, Seq16 seq, Rail<FakePort>* rail, uint32_t size) {
  core::MatchHdr header{};
  header.type = static_cast<uint8_t>(core::MsgType::kMatch);
  header.ctx = ctx;
  header.seq = seq;
  Message m(header, {});
  m.rail = rail;
  m.size = m.room = size;
  return m;
}

/// What is stored of a message is a rendezvous header in memory of its own: in `room`.
void store_elsewhere(Message& m, core::RgetHdr& room) {
  core::RndvHdr header{};
  header.match.type = static_cast<uint8_t>(core::MsgType::kRndv);
  const core::Bytes bytes{reinterpret_cast<const uint8_t*>(&header), sizeof header};
  m.what = *core::Opened::open(core::MsgType::kRndv, bytes, room);
}

TEST(UnknownMessages, ComeOutByCommunicatorInOrder) {
  Memory memory;
  Peer<FakePort> peer;
  Rail<FakePort> rail;
  rail.peer = &peer;
  UnknownMessages<FakePort> unknown;
  Message m[4] = {message(5, 0, &rail, 10), message(6, 0, &rail, 20), message(5, 1, &rail, 30),
                  message(5, 2, nullptr, 40)};
  for (Message& one : m) unknown.add(memory, &one);
  EXPECT_EQ(peer.unknown_held, 3 * sizeof(Message) + 60);
  EXPECT_EQ(unknown.find(memory, m[2].match, {&rail, true}), &m[2]);
  EXPECT_EQ(unknown.find(memory, m[2].match, {}), nullptr) << "another process says so";
  EXPECT_EQ(unknown.find(memory, m[3].match, {}), &m[3]);
  EXPECT_EQ(unknown.take(memory, 5), &m[0]);
  EXPECT_EQ(unknown.take(memory, 5), &m[2]);
  EXPECT_EQ(unknown.take(memory, 5), &m[3]);
  EXPECT_EQ(unknown.take(memory, 5), nullptr);
  EXPECT_EQ(peer.unknown_held, sizeof(Message) + 20);
  EXPECT_EQ(unknown.find(memory, m[2].match, {&rail, true}), nullptr);
  EXPECT_EQ(unknown.pop(memory), &m[1]);
  EXPECT_EQ(unknown.pop(memory), nullptr);
}

TEST(UnknownMessages, EachSenderHasItsAllowance) {
  Memory memory;
  Peer<FakePort> peer;
  Rail<FakePort> rail;
  rail.peer = &peer;
  UnknownMessages<FakePort> unknown;
  const uint64_t limit = 2 * sizeof(Message) + 100;
  Message first = message(1, 0, &rail, 50);
  unknown.add(memory, &first);
  EXPECT_TRUE(unknown.fits({&rail, true}, 50, limit));
  EXPECT_FALSE(unknown.fits({&rail, true}, 51, limit));
  EXPECT_TRUE(unknown.fits({}, 51, limit)) << "senders without a name have one of their own";
  Message other = message(1, 1, nullptr, 100);
  unknown.add(memory, &other);
  EXPECT_FALSE(unknown.fits({}, 51, limit));
  EXPECT_TRUE(unknown.fits_instead(first, 50, limit));
  unknown.uncount(first);
  first.size = 40;
  unknown.count(first);
  EXPECT_EQ(peer.unknown_held, sizeof(Message) + 50) << "its room stays";
  EXPECT_FALSE(unknown.fits_instead(first, sizeof(Message) + 51, limit));
  EXPECT_TRUE(unknown.fits_instead(first, sizeof(Message) + 50, limit));
  unknown.uncount(first);
  first.size = 60;
  static core::RgetHdr elsewhere;  // on the stack it could be right behind the message
  store_elsewhere(first, elsewhere);
  unknown.count(first);
  EXPECT_EQ(peer.unknown_held, sizeof(Message) + 50 + 60);
  EXPECT_FALSE(unknown.fits({&rail, true}, 50, limit));
  while (unknown.pop(memory)) {
  }
}

TEST(UnknownMessages, TheOldestOfNobodysName_CanGo) {
  Memory memory;
  Peer<FakePort> peer;
  Rail<FakePort> rail;
  rail.peer = &peer;
  UnknownMessages<FakePort> unknown;
  Message m[4] = {message(5, 0, &rail, 10), message(6, 0, nullptr, 20), message(5, 1, nullptr, 30),
                  message(6, 1, nullptr, 40)};
  m[1].epoch = 7;  // its BTL names who sends, with whom there is nothing yet
  for (Message& one : m) unknown.add(memory, &one);
  EXPECT_EQ(unknown.find(memory, m[1].match, {nullptr, true}), &m[1]);
  EXPECT_EQ(unknown.find(memory, m[1].match, {}), nullptr) << "anybody may say that";
  EXPECT_EQ(unknown.take_oldest_anonymous(memory), &m[2]);
  EXPECT_EQ(unknown.take_oldest_anonymous(memory), &m[3]);
  EXPECT_EQ(unknown.take_oldest_anonymous(memory), nullptr);
  EXPECT_EQ(unknown.take(memory, 6), &m[1]);
  EXPECT_EQ(unknown.pop(memory), &m[0]);
  EXPECT_TRUE(unknown.fits({}, 100, sizeof(Message) + 100));
}

TEST(PushedOut, RanksOfAContextUntilThereAreTooMany) {
  Memory memory;
  memory.left = 100'000;
  PushedOut out;
  EXPECT_TRUE(out.empty());
  for (const int32_t rank : {3, 1, 3, -1, 9}) EXPECT_TRUE(out.note(memory, 5, rank));
  EXPECT_TRUE(out.note(memory, 6, 2));
  std::vector<int32_t> ranks;
  const auto lost = [&ranks](int32_t rank) { ranks.push_back(rank); };
  EXPECT_FALSE(out.take(memory, 7, 8, lost));
  EXPECT_FALSE(out.take(memory, 5, 8, lost));
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int32_t>{1, 3}));
  EXPECT_FALSE(out.take(memory, 5, 8, lost));
  EXPECT_EQ(ranks.size(), 2u) << "said once";
  for (int32_t rank = 0; rank < static_cast<int32_t>(PushedOut::kMost); ++rank)
    EXPECT_TRUE(out.note(memory, 8, rank));
  EXPECT_FALSE(out.take(memory, 5, 1, lost));
  EXPECT_TRUE(out.note(memory, 9, 0));
  EXPECT_TRUE(out.take(memory, 9, 1, lost)) << "it may have been any rank";
  EXPECT_FALSE(out.take(memory, 9, 1, lost));
  out.free_all(memory);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(memory.live, 0);
  memory.left = 0;
  EXPECT_FALSE(out.note(memory, 5, 1));
}

TEST(UnknownMessages, MoreThan4GiB_AreCounted) {
  Memory memory;
  Peer<FakePort> peer;
  Rail<FakePort> rail;
  rail.peer = &peer;
  UnknownMessages<FakePort> unknown;
  Message m = message(1, 0, &rail, UINT32_MAX);
  m.room = UINT32_MAX - 1;
  static core::RgetHdr elsewhere;  // on the stack it could be right behind the message
  store_elsewhere(m, elsewhere);
  for (int i = 0; i < 3; ++i) unknown.count(m);
  EXPECT_EQ(peer.unknown_held, 3 * (sizeof(Message) + 2 * uint64_t{UINT32_MAX} - 1));
  EXPECT_FALSE(unknown.fits({&rail, true}, 1, uint64_t{4095} << 20));
}

}  // namespace
}  // namespace bfo::xfer
