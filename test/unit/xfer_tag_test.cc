// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_tag_test.cc: messages whose tag and whose first byte are of different types. A message is what its tag
// says, or it is dropped and counted, whatever is done with it: posted, unexpected, probed, out of sequence,
// of an unknown communicator, while the engine is inside a port function, or handed back by a rail.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

constexpr uint8_t kMatchTag = static_cast<uint8_t>(MsgType::kMatch);
constexpr uint8_t kRgetTag = static_cast<uint8_t>(MsgType::kRget);
constexpr uint8_t kSeqSyncTag = static_cast<uint8_t>(MsgType::kSeqSync);

/// Hands `bytes` from rank 0 to rank 1, in memory of exactly their length.
void hand_in(World& w, uint8_t tag, const std::vector<uint8_t>& bytes, bool named = true) {
  const auto exact = std::make_unique<uint8_t[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  w.engines[1]->on_message(named ? w.rail(1, 0, 0) : nullptr, named ? 1 : 0, tag, exact.get(), bytes.size());
}

uint64_t malformed(const World& w) {
  return w.engines[1]->counters().malformed;
}

/// A MATCH as rank 0 would send it next, but with first byte `type`, and `n` bytes long.
std::vector<uint8_t> match(uint8_t type, size_t n, uint16_t ctx = 0, uint16_t seq = 0) {
  core::MatchHdr h{};
  h.type = type;
  h.ctx = ctx;
  h.tag = 1;
  h.seq = seq;
  std::vector<uint8_t> bytes(n, 0x41);
  std::memcpy(bytes.data(), &h, std::min(n, sizeof h));
  return bytes;
}

/// What rank 0 sends next is received: nothing was lost, and no number was used.
void expect_honest_message_arrives(World& w, RecvReq* r = nullptr) {
  if (!r) r = w.irecv(1, 0, 1, 64);
  ASSERT_FALSE(r->done);
  SendReq* const s = w.isend(0, 1, 1, pattern(64, 3));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kOk);
  EXPECT_EQ(r->data, s->data);
}

/// A stored message to oneself holds a pointer to its request. No byte that was received is one.
TEST(Tag, MatchThatSaysItIsAnOwnRequest_IsNoRequest) {
  for (bool named : {true, false}) {
    World w({});
    hand_in(w, kMatchTag, match(0, 200), named);
    hand_in(w, kMatchTag, match(0, 14), named);
    EXPECT_EQ(malformed(w), 2u);
    xfer::ProbeResult found;
    EXPECT_FALSE(w.engines[1]->iprobe(w.comms[1], 0, 1, found));
    expect_honest_message_arrives(w);
  }
}

/// The checks of its keys belong to the tag of an RGET.
TEST(Tag, MatchThatSaysItIsAnRget_ReadsNoKeys) {
  for (bool posted : {true, false}) {
    World w(reads());
    RecvReq* const r = posted ? w.irecv(1, 0, 1, 64) : nullptr;
    uint64_t n = 0;
    for (size_t size = 14; size <= 400; ++size, ++n) {
      std::vector<uint8_t> bytes = match(kRgetTag, size);
      if (size > offsetof(core::RgetHdr, n_keys)) bytes[offsetof(core::RgetHdr, n_keys)] = 255;
      hand_in(w, kMatchTag, bytes);
    }
    EXPECT_EQ(malformed(w), n);
    ASSERT_NO_FATAL_FAILURE(expect_honest_message_arrives(w, r));
  }
}

/// Its answer is a message of ours: of its own type and length, not of the question's.
TEST(Tag, SeqSyncThatSaysItIsAnotherType_IsNotAnswered) {
  World w({});
  meet(w);
  for (int type = 0; type < 256; ++type) {
    if (type == kSeqSyncTag) continue;
    core::SeqSyncHdr h{};
    h.type = static_cast<uint8_t>(type);
    std::vector<uint8_t> bytes(sizeof h);
    std::memcpy(bytes.data(), &h, sizeof h);
    hand_in(w, kSeqSyncTag, bytes);
    EXPECT_TRUE(w.flights.empty()) << "type " << type << " was answered";
  }
  EXPECT_EQ(malformed(w), 255u);
  ASSERT_NO_FATAL_FAILURE(expect_honest_message_arrives(w));
}

TEST(Tag, MessageInsideASend_IsHeldAgainstItsTag) {
  for (const auto& [tag, type] : {std::pair{kMatchTag, uint8_t{0}},
                                  {kMatchTag, kRgetTag},
                                  {kRgetTag, kMatchTag},
                                  {kSeqSyncTag, kMatchTag}}) {
    World w({});
    meet(w);
    const std::vector<uint8_t> bytes = match(type, 304, 0, 1);
    w.ports[1]->inside_ = [&w, &bytes, t = tag] { hand_in(w, t, bytes); };
    w.isend(1, 0, 5, pattern(10, 1));
    EXPECT_EQ(w.engines[1]->counters().deferred, 1u);
    EXPECT_EQ(malformed(w), 1u);
    ASSERT_NO_FATAL_FAILURE(expect_honest_message_arrives(w));
  }
}

/// A rail hands back what it was given, or its memory is broken.
TEST(Tag, MessageThatComesBack_IsHeldAgainstItsTag) {
  for (int tag = 0x40; tag < 0x60; ++tag)
    for (int type = 0; type < 256; ++type) {
      if (type == tag) continue;
      World w({});
      meet(w);
      const std::vector<uint8_t> bytes = match(static_cast<uint8_t>(type), 100);
      w.engines[1]->on_sendi_failed(w.rail(1, 0, 0), static_cast<uint8_t>(tag), bytes.data(), 100,
                                    Fate::kUnknown);
      ASSERT_EQ(malformed(w), 1u);
      ASSERT_TRUE(w.flights.empty());
    }
}

/// A stored header that comes again may bring newer keys. The queues have sorted it by its tag.
TEST(Tag, StoredRendezvousThatComesAgainForAnotherMpiTag_StaysTheFirst) {
  enum { kUnexpected, kAhead, kUnknown, kProbed, kAll };
  for (int where = 0; where < kAll; ++where) {
    SCOPED_TRACE(where);
    World w({});
    meet(w);
    auto* const ours = where == kUnknown ? w.add_comm(0, 5) : nullptr;
    if (where == kAhead) w.isend(0, 1, 2, pattern(8, 5));
    SendReq* const s = w.isend(0, 1, 1, pattern(5000, 1), xfer::SendMode::kStandard, ours);
    const size_t at = w.find(0, 1, MsgType::kRndv);
    ASSERT_LT(at, w.flights.size());
    std::vector<uint8_t> header = w.flights[at].bytes;
    w.take(at);
    xfer::ProbeResult found;
    Engine::Message* const held = where == kProbed ? w.engines[1]->improbe(w.comms[1], 0, 1, found) : nullptr;
    header[offsetof(core::MatchHdr, tag)] = 77;
    hand_in(w, static_cast<uint8_t>(MsgType::kRndv), header);
    EXPECT_EQ(malformed(w), 1u);
    auto* const theirs = where == kUnknown ? w.add_comm(1, 5) : nullptr;
    RecvReq* r = nullptr;
    if (held) {
      w.recvs.push_back(std::make_unique<RecvReq>());
      r = w.recvs.back().get();
      r->data.assign(5000, 0);
      w.engines[1]->imrecv(held, r, 5000);
    } else {
      r = w.irecv(1, 0, 1, 5000, theirs);
    }
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    EXPECT_EQ(r->status.tag, 1);
  }
}

// ---- every tag with every first byte

enum class Place { kPosted, kUnexpected, kProbed, kAhead, kUnknown, kFromAnybody };

class EveryTag : public testing::TestWithParam<Place> {
 public:
  static World::Options options() {
    World::Options o = reads();
    o.config.unknown_limit = 1 << 20;
    return o;
  }
  /// The communicator and number in the headers that are handed in.
  static uint16_t context() { return GetParam() == Place::kUnknown ? 5 : 0; }
  static uint16_t number() { return GetParam() == Place::kAhead ? 7 : 1; }
};

/// Of any length, and from a sender that is named or is not.
TEST_P(EveryTag, WithAnyOtherFirstByte_ChangesNothing) {
  World w(options());
  meet(w);
  RecvReq* const posted = GetParam() == Place::kPosted ? w.irecv(1, 0, 1, 64) : nullptr;
  RecvReq* const anybodys = GetParam() == Place::kFromAnybody ? w.irecv(1, xfer::kAnySource, 1, 64) : nullptr;
  const size_t before = w.ports[1]->live_;
  uint64_t sent = 0;
  for (size_t n : {1u, 12u, 13u, 14u, 20u, 28u, 32u, 38u, 72u, 88u, 304u, 1056u}) {
    std::vector<uint8_t> bytes = match(0, n, context(), number());
    if (n > offsetof(core::RgetHdr, n_keys)) bytes[offsetof(core::RgetHdr, n_keys)] = 255;
    const auto exact = std::make_unique<uint8_t[]>(n);
    std::memcpy(exact.get(), bytes.data(), n);
    for (int tag = 0; tag < 256; ++tag)
      for (int type = 0; type < 256; ++type) {
        if (type == tag) continue;
        exact[0] = static_cast<uint8_t>(type);
        w.engines[1]->on_message(type & 1 ? w.rail(1, 0, 0) : nullptr, type & 1, static_cast<uint8_t>(tag),
                                 exact.get(), n);
        ASSERT_EQ(malformed(w), ++sent) << "tag " << tag << ", first byte " << type << ", length " << n;
      }
  }
  EXPECT_EQ(w.ports[1]->live_, before);
  EXPECT_TRUE(w.flights.empty());
  xfer::ProbeResult found;
  EXPECT_FALSE(w.engines[1]->iprobe(w.comms[1], xfer::kAnySource, xfer::kAnyTag, found));
  ASSERT_NO_FATAL_FAILURE(expect_honest_message_arrives(w, posted ? posted : anybodys));
}

/// Cut anywhere, with fields at any value, and the same from a stranger: no access beyond what came, and what
/// is kept can be received or given back.
TEST_P(EveryTag, WithItsOwnFirstByte_TouchesNothingElse) {
  for (int tag = 0; tag < 256; ++tag) {
    for (uint8_t fill : {0x00, 0x01, 0x08, 0x41, 0xff}) {
      World w(options());
      meet(w);
      std::vector<RecvReq*> posted;
      for (size_t n = 0; n < 400; n += n < 100 ? 1 : 37) {
        if (GetParam() == Place::kPosted) posted.push_back(w.irecv(1, 0, 1, 64));
        if (GetParam() == Place::kFromAnybody) posted.push_back(w.irecv(1, xfer::kAnySource, 1, 64));
        std::vector<uint8_t> bytes(n, fill);
        const auto seq = static_cast<uint16_t>(number() + n % 50);
        const std::vector<uint8_t> header = match(static_cast<uint8_t>(tag), 14, context(), seq);
        std::copy_n(header.begin(), std::min(n, header.size()), bytes.begin());
        hand_in(w, static_cast<uint8_t>(tag), bytes, n % 2 != 0);
        if (GetParam() == Place::kProbed) {
          xfer::ProbeResult found;
          if (auto* const m = w.engines[1]->improbe(w.comms[1], 0, 1, found)) {
            w.recvs.push_back(std::make_unique<RecvReq>());
            w.recvs.back()->data.assign(64, 0);
            w.engines[1]->imrecv(m, w.recvs.back().get(), 64);
          }
        }
        for (size_t i = 0; i < w.flights.size();) {  // READs of addresses that came
          if (w.flights[i].kind == Flight::Kind::kSend) {
            ++i;
            continue;
          }
          const Flight refused = w.flights[i];
          w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(i));
          w.end(refused, Fate::kNeverSent);
        }
      }
      if (GetParam() == Place::kUnknown) w.add_comm(1, 5);
      for (int i = 0; i < 8; ++i) w.irecv(1, 0, 1, 64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places, EveryTag,
                         testing::Values(Place::kPosted, Place::kUnexpected, Place::kProbed, Place::kAhead,
                                         Place::kUnknown, Place::kFromAnybody));

}  // namespace
}  // namespace bfo::test
