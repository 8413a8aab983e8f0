// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_changing_test.cc: messages whose bytes change while they are read, as those of a BTL over shared
// memory can: another thread writes into the message that is handed in. What was checked is what is used, so
// each message is one of those that it was meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

using namespace core;

/// Bytes of a message, of which a thread overwrites the one at `at` with `a` and `b` in turn. The bytes are
/// memory of exactly that length.
class Changing {
 public:
  template <class Hdr>
  Changing(const Hdr& h, size_t size, size_t at, uint8_t a, uint8_t b)
      : size_(size), bytes_(new uint8_t[size]), thread_([this, at, a, b] { change(at, a, b); }) {
    std::memset(bytes_.get(), 0x41, size);
    std::memcpy(bytes_.get(), &h, std::min(size, sizeof h));
    bytes_[at] = a;
    go_ = true;
    while (turns_ == 0) std::this_thread::yield();  // else the messages may be over before it runs
  }
  ~Changing() {
    stop_ = true;
    thread_.join();
  }
  Bytes bytes() const { return {bytes_.get(), size_}; }
  uint64_t turns() const { return turns_; }

 private:
  // The race is meant: it is what a sender can do.
  __attribute__((no_sanitize("thread"))) void change(size_t at, uint8_t a, uint8_t b) {
    while (!go_) std::this_thread::yield();
    volatile uint8_t* const byte = &bytes_[at];
    while (!stop_) {
      for (unsigned i = 0; i < 64; ++i) {
        *byte = b;
        for (unsigned k = 0; k < i % 16; ++k) asm volatile("");
        *byte = a;
        for (unsigned k = 0; k < i % 23; ++k) asm volatile("");
      }
      ++turns_;
    }
  }

  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
  std::atomic<bool> go_{false};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> turns_{0};
  std::thread thread_;
};

/// How often a message was taken, and how often it was dropped.
struct Outcomes {
  uint64_t yes = 0;
  uint64_t no = 0;
};
/// Runs `once` at least `times` times, and until the bytes have changed often enough, or a second has passed:
/// with one processor free they change only when the threads take turns.
template <class Once>
Outcomes repeat(const Changing& m, uint64_t times, Once once) {
  Outcomes n;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const auto enough = [&] { return m.turns() > 1000 && n.yes > 100 && n.no > 100; };
  for (uint64_t i = 0; i < times || !enough(); ++i) {
    ++(once() ? n.yes : n.no);
    if (testing::Test::HasFailure()) break;
    if (i % 64 == 0 && i >= times && std::chrono::steady_clock::now() > end) break;
  }
  return n;
}

RgetHdr rget(unsigned n_keys, uint8_t handle_len = 8) {
  RgetHdr h{};
  h.rndv.match.type = static_cast<uint8_t>(MsgType::kRget);
  h.rndv.match.tag = 1;
  h.rndv.length = 1000;
  h.rndv.sender = Name(1, 1, kFirstRound).value;
  h.n_keys = static_cast<uint8_t>(n_keys);
  for (RailKey& k : h.keys) k.handle_len = handle_len;
  return h;
}

constexpr uint64_t kTimes = 200'000;

/// What decode_rget() has let through, or nothing.
bool rget_is_sound(Bytes in) {
  RgetHdr out;
  if (!decode_rget(in, out)) return false;
  EXPECT_EQ(out.rndv.match.type, static_cast<uint8_t>(MsgType::kRget));
  EXPECT_GE(out.n_keys, 1);
  EXPECT_LE(out.n_keys, kMaxWireRails);
  for (unsigned i = 0; i < out.n_keys && i < kMaxWireRails; ++i)
    EXPECT_LE(out.keys[i].handle_len, kMaxHandle);
  return true;
}

TEST(Changing, NumberOfKeys_IsTheOneThatWasChecked) {
  for (unsigned from : {1u, 8u}) {
    const Changing m(rget(from), sizeof(RgetHdr), offsetof(RgetHdr, n_keys), static_cast<uint8_t>(from), 255);
    const Outcomes n = repeat(m, kTimes, [&] { return rget_is_sound(m.bytes()); });
    EXPECT_GT(n.yes, 0u);
    EXPECT_GT(n.no, 0u) << "the bytes did not change";
  }
}

TEST(Changing, LengthOfAHandle_IsTheOneThatWasChecked) {
  for (unsigned key : {0u, 2u}) {
    const Changing m(rget(3), sizeof(RgetHdr), rget_size(key) + offsetof(RailKey, handle_len), 16, 200);
    repeat(m, kTimes, [&] { return rget_is_sound(m.bytes()); });
  }
  // The same of the only key.
  const Changing m(rget(1), rget_size(1u), rget_size(0u) + offsetof(RailKey, handle_len), 16, 200);
  repeat(m, kTimes, [&] { return rget_is_sound(m.bytes()); });
}

TEST(Changing, Type_IsTheOneThatWasChecked) {
  const Changing m(rget(1), 304, 0, static_cast<uint8_t>(MsgType::kMatch), 0);
  const Outcomes n = repeat(m, kTimes, [&] {
    MatchHdr h;
    if (!decode_match(m.bytes(), h)) return false;
    EXPECT_EQ(h.type, static_cast<uint8_t>(MsgType::kMatch));
    return true;
  });
  EXPECT_GT(n.yes, 0u);
  EXPECT_GT(n.no, 0u) << "the bytes did not change";
}

TEST(Changing, HandleOfAPut_AndListOfARestart_AreThoseThatWereChecked) {
  PutHdr put{};
  put.type = static_cast<uint8_t>(MsgType::kPut);
  const Changing p(put, sizeof put, offsetof(PutHdr, key) + offsetof(RailKey, handle_len), 16, 17);
  repeat(p, kTimes, [&] {
    PutHdr out;
    if (!decode_put(p.bytes(), out)) return false;
    EXPECT_LE(out.key.handle_len, kMaxHandle);
    return true;
  });
  RestartHdr restart{};
  restart.type = static_cast<uint8_t>(MsgType::kRestartAck);
  const Changing r(restart, sizeof restart + 4 * sizeof(WireRange), offsetof(RestartHdr, n), 4, 250);
  repeat(r, kTimes, [&] {
    RestartHdr out;
    WireRange list[kMaxWireRanges];
    if (!decode_restart(MsgType::kRestartAck, r.bytes(), out, list, kMaxWireRanges)) return false;
    EXPECT_LE(out.n, 4);
    return true;
  });
}

// ---- through the engine

/// A world in which rank 0's changing messages are handed to rank 1. READs that they start are refused.
class Hands {
 public:
  explicit Hands(const World::Options& o) : world(o) { meet(world); }
  bool hand_in(const Changing& m, MsgType tag) {
    const uint64_t before = world.engines[1]->counters().malformed;
    world.engines[1]->on_message(world.rail(1, 0, 0), 1, static_cast<uint8_t>(tag), m.bytes().data,
                                 m.bytes().size);
    return world.engines[1]->counters().malformed == before;
  }
  World world;
};

World::Options roomy() {
  World::Options o = reads();
  o.config.unknown_limit = 1 << 20;
  return o;
}

/// Its header is stored, and read when the receive comes.
TEST(Changing, RgetThatWaits_HasTheKeysThatWereChecked) {
  enum { kUnexpected, kPosted, kAhead, kUnknown, kAll };
  for (int where = 0; where < kAll; ++where) {
    SCOPED_TRACE(where);
    RgetHdr h = rget(2);
    h.rndv.match.ctx = where == kUnknown ? 5 : 0;
    h.rndv.match.seq = where == kAhead ? 2 : where == kUnknown ? 0 : 1;
    const Changing m(h, sizeof h, offsetof(RgetHdr, n_keys), 2, 255);
    repeat(m, 2000, [&] {
      Hands hands(roomy());
      World& w = hands.world;
      RecvReq* r = where == kPosted ? w.irecv(1, 0, 1, 1000) : nullptr;
      const bool taken = hands.hand_in(m, MsgType::kRget);
      if (where == kAhead) w.isend(0, 1, 2, {});
      while (where == kAhead && !w.flights.empty()) w.take();
      auto* const c = where == kUnknown ? w.add_comm(1, 5) : nullptr;
      if (!r) r = w.irecv(1, 0, 1, 1000, c);
      EXPECT_EQ(r->matched, taken);
      EXPECT_TRUE(!r->xfer.rndv || r->xfer.rndv->n_keys <= 2);
      return taken;
    });
  }
}

/// The communicator, number and tag by which a message is sorted are those that decided where it goes.
struct Sorted {
  const char* what;
  size_t at;
  MatchHdr header;
  uint8_t other;
};

class ChangingMatch : public testing::TestWithParam<Sorted> {};

TEST_P(ChangingMatch, IsWhereItsHeaderSays) {
  const Sorted& p = GetParam();
  uint8_t first;
  std::memcpy(&first, reinterpret_cast<const char*>(&p.header) + p.at, 1);
  const Changing m(p.header, 64, p.at, first, p.other);
  const Outcomes n = repeat(m, 3000, [&] {
    Hands hands(roomy());
    World& w = hands.world;
    RecvReq* const r = w.irecv(1, 0, 1, 50);
    const bool taken = hands.hand_in(m, MsgType::kMatch);
    auto* const other = w.add_comm(1, 5);
    w.isend(0, 1, 7, {});  // number 1: what is numbered 2 can follow
    while (!w.flights.empty()) w.take();
    xfer::ProbeResult found;
    EXPECT_FALSE(!r->done && w.engines[1]->iprobe(w.comms[1], 0, 1, found)) << "it was sorted by another tag";
    const uint64_t here = w.engines[1]->queue_lengths(w.comms[1], xfer::kAnySource).unexpected +
                          w.engines[1]->queue_lengths(other, xfer::kAnySource).unexpected + r->done;
    const bool copy = w.engines[1]->counters().duplicates != 0;  // its number was used before it, or after it
    EXPECT_EQ(here, taken && !copy ? 2u : 1u) << "it is nowhere";
    return taken && !copy;
  });
  EXPECT_GT(n.yes + n.no, 0u);
}

MatchHdr numbered(uint16_t seq) {
  return MatchHdr{static_cast<uint8_t>(MsgType::kMatch), 0, 0, 0, 1, seq};
}
INSTANTIATE_TEST_SUITE_P(Fields, ChangingMatch,
                         testing::Values(Sorted{"communicator", offsetof(MatchHdr, ctx), numbered(0), 5},
                                         Sorted{"number", offsetof(MatchHdr, seq) + 1, numbered(2), 0x80},
                                         Sorted{"tag", offsetof(MatchHdr, tag), numbered(1), 2},
                                         Sorted{"type", 0, numbered(1), 0}),
                         [](const auto& info) { return info.param.what; });

}  // namespace
}  // namespace bfo::test
