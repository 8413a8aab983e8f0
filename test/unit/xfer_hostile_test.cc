// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_hostile_test.cc: rank 2 sends rank 1 messages of every type with forged names, lengths, offsets,
// ranks, communicators, connections and epochs, each field at its extremes, truncated and oversized, some
// with the tag of another type, while ranks 0 and 1 exchange messages. It may end what it has with rank 1.
// What ranks 0 and 1 have ends with every byte right, and what rank 1 keeps for it is bounded.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

constexpr int kUser = 0, kTarget = 1, kHostile = 2;
constexpr size_t kPayload = 64;
constexpr size_t kMostKept = 128 * 1024;  // bytes, in one world

/// Header of a type with a list as long as it may be, and where its names and its connection are.
struct Shape {
  MsgType type;
  size_t size;
  std::vector<size_t> names;
  size_t conn = 0;           // 0: none
  bool communicator = true;  // ctx at 2, rank at 4
};

std::vector<Shape> shapes() {
  using namespace core;
  const std::vector<size_t> rndv = {offsetof(RndvHdr, sender), offsetof(RndvHdr, receiver)};
  const std::vector<size_t> pair = {4, 12};
  const std::vector<size_t> restart = {offsetof(RestartHdr, sender), offsetof(RestartHdr, receiver)};
  std::vector<Shape> all = {
      {MsgType::kMatch, sizeof(MatchHdr), {}, 0, true},
      {MsgType::kRndv, sizeof(RndvHdr), rndv, 0, true},
      {MsgType::kRget, rget_size(kMaxWireRails), rndv, offsetof(RgetHdr, keys), true},
      {MsgType::kAck, sizeof(AckHdr), pair, 0, false},
      {MsgType::kFrag, sizeof(FragHdr), {offsetof(FragHdr, receiver)}, 0, false},
      {MsgType::kPut, sizeof(PutHdr), pair, offsetof(PutHdr, key), false},
      {MsgType::kFin, sizeof(FinHdr), pair, 0, false},
      {MsgType::kSeqSync, sizeof(SeqSyncHdr), {}, 0, true},
      {static_cast<MsgType>(0x59), 64, {}, 0, false},
      {static_cast<MsgType>(0x00), 64, {}, 0, false},
  };
  for (MsgType t : {MsgType::kRestartNotify, MsgType::kRestartAck, MsgType::kRestartNack, MsgType::kRecvErr,
                    MsgType::kSendDone})
    all.push_back({t, sizeof(RestartHdr) + 8 * sizeof(WireRange), restart, sizeof(RestartHdr), true});
  for (MsgType t : {MsgType::kRailDown, MsgType::kEpochClosed, MsgType::kPeerLost})
    all.push_back({t, sizeof(RailHdr), {}, offsetof(RailHdr, conn), false});
  return all;
}

template <class T>
void put(std::vector<uint8_t>& bytes, size_t at, T value) {
  if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
}

class Hostile {
 public:
  Hostile(const World::Options& options, unsigned seed) : world_(options), rng_(seed) {
    meet(world_);
    before_ = world_.ports[kTarget]->live_;
    for (int i = 0; i < 2; ++i) {  // the hostile rank has requests in every phase, and so have the others
      world_.isend(kHostile, kTarget, 50 + i, pattern(3000, 9));
      world_.irecv(kTarget, kHostile, 50 + i, 3000);
      world_.isend(kTarget, kHostile, i, pattern(5000, 8));
      exchange(40 + 5000 * i);
    }
    for (int i = 0; i < 12 && !world_.flights.empty(); ++i) {
      learn(world_.flights[0]);
      if (world_.flights[0].from == kHostile) world_.take();
      step();
    }
    for (const Flight& f : world_.flights) learn(f);
  }
  ~Hostile() { give_back(); }

  /// One forged message, then a step of the others. One in eight comes with the tag of another type.
  void attack(const Shape& shape, size_t field, size_t width, uint64_t value, size_t size) {
    std::vector<uint8_t> bytes(shape.size + kPayload, 0);
    bytes[0] = static_cast<uint8_t>(shape.type);
    if (shape.communicator) {
      put<uint16_t>(bytes, 2, 0);
      put<int32_t>(bytes, 4, rng_() % 4 == 0 ? kUser : kHostile);
      // Mostly the next one, as far as it is taken for one.
      put<uint16_t>(bytes, 12, static_cast<uint16_t>(rng_() % 4 == 0 ? rng_() % 6 : next_++));
    }
    plausible(shape.type, bytes);
    for (size_t at : shape.names) put<uint64_t>(bytes, at, any_name());
    if (shape.conn != 0 && rng_() % 2) {
      put<uint64_t>(bytes, shape.conn, world_.name(rng_() % 2 ? kUser : kHostile, kTarget, 0).conn);
      put<uint32_t>(bytes, shape.conn + 8, static_cast<uint32_t>(rng_() % 3));
    }
    for (size_t i = 0; i < width && field + i < bytes.size(); ++i)
      bytes[field + i] = static_cast<uint8_t>(value >> 8 * i);
    bytes.resize(size, 0x5a);
    if (bytes.empty()) return;
    const std::vector<uint8_t> exact = bytes;  // an access behind its end is seen
    const int rail = static_cast<int>(rng_() % 2);
    const uint64_t before = dropped();
    const uint8_t tag = rng_() % 8 != 0 ? exact[0] : static_cast<uint8_t>(0x40 + rng_() % 0x1a);
    world_.engines[kTarget]->on_message(world_.rail(kTarget, kHostile, rail),
                                        world_.epoch[world_.key(kTarget, kHostile, rail)], tag, exact.data(),
                                        exact.size());
    if (tag != exact[0] && dropped() != before + 1)
      wrong_ = "a message of another type than its tag was taken";
    if (outside(shape.type, exact) && dropped() == before) wrong_ = "a range outside the message was taken";
    step();
  }

  /// The others finish, and exchange two messages more. Empty: all is well.
  std::string verdict() {
    if (!wrong_.empty()) return wrong_;
    for (int i = 0; i < 2; ++i) exchange(300 + 4000 * i);
    int steps = 0;
    while (busy() && ++steps < 20'000) step();
    if (steps == 20'000) return "it does not end";
    for (const auto& [s, r] : exchanges_) {
      if (!s->done || !r->done) return "a request of the others hangs";
      if (s->outcome != Outcome::kOk || r->status.outcome != Outcome::kOk) return "one of theirs failed";
      if (s->data != r->data) return "wrong bytes";
    }
    if (!world_.ports[kUser]->losses_.empty()) return "the user has lost a peer";
    for (const auto& [peer, loss] : world_.ports[kTarget]->losses_)
      if (peer != kHostile) return "an honest peer was given up";
    for (const RailName& name : world_.ports[kTarget]->peer_downs_)
      for (int r = 0; r < 2; ++r)
        if (name.conn == world_.name(kUser, kTarget, r).conn) return "a rail of the others was ended";
    if (kept() > kMostKept) return "kept " + std::to_string(kept()) + " bytes";
    return {};
  }

  size_t kept() {
    const size_t live = world_.ports[kTarget]->live_;
    return live < before_ ? 0 : live - before_;
  }
  uint64_t dropped() const {
    const xfer::Counters& c = world_.engines[kTarget]->counters();
    return c.malformed + c.stale + c.duplicates + c.ignored;
  }

 private:
  /// A message of `n` bytes each way between the user and the target.
  void exchange(size_t n) {
    const int tag = 1000 + static_cast<int>(exchanges_.size());
    for (int from : {kUser, kTarget}) {
      RecvReq* const r = world_.irecv(1 - from, from, tag + from, n);
      exchanges_.push_back({world_.isend(from, 1 - from, tag + from, pattern(n, unsigned(tag))), r});
    }
  }

  /// What an honest sender could have put into the other fields.
  void plausible(MsgType type, std::vector<uint8_t>& bytes) {
    using namespace core;
    constexpr uint8_t kFlags[] = {
        0, kFlagAck, kFlagContig, kFlagNoRdma, kFlagRestart, kFlagFail, kFlagReply, kFlagKnown | kFlagContig};
    bytes[1] = kFlags[rng_() % std::size(kFlags)];
    switch (type) {
      case MsgType::kRndv:
      case MsgType::kRget:
        put<uint64_t>(bytes, offsetof(RndvHdr, length), 500 + rng_() % 6000);
        if (type == MsgType::kRndv) return;
        bytes[offsetof(RgetHdr, n_keys)] = static_cast<uint8_t>(1 + rng_() % kMaxWireRails);
        for (size_t i = 0; i < kMaxWireRails; ++i)
          bytes[rget_size(unsigned(i)) + offsetof(RailKey, handle_len)] = 8;
        return;
      case MsgType::kFrag:
        put<uint64_t>(bytes, offsetof(FragHdr, offset), rng_() % 3000);
        return;
      case MsgType::kPut:
        put<uint64_t>(bytes, offsetof(PutHdr, offset), rng_() % 5 * 1000);
        put<uint64_t>(bytes, offsetof(PutHdr, length), 500);
        put<uint64_t>(bytes, offsetof(PutHdr, total), 4000);
        put<uint32_t>(bytes, offsetof(PutHdr, grant), 1 + rng_() % 4);
        bytes[offsetof(PutHdr, key) + offsetof(RailKey, handle_len)] = 8;
        return;
      case MsgType::kFin:
        put<uint32_t>(bytes, offsetof(FinHdr, grant), rng_() % 3);
        put<uint32_t>(bytes, offsetof(FinHdr, to_send), rng_() % 2);
        return;
      default:
        if (type < MsgType::kRestartNotify || type > MsgType::kSendDone) return;
        put<uint16_t>(bytes, offsetof(RestartHdr, seq), static_cast<uint16_t>(rng_() % 5));
        put<uint16_t>(bytes, offsetof(RestartHdr, n), static_cast<uint16_t>(rng_() % 4));
        for (size_t i = 0; i < 8; ++i) {
          put<uint64_t>(bytes, sizeof(RestartHdr) + 16 * i, 100 * i);
          put<uint64_t>(bytes, sizeof(RestartHdr) + 16 * i + 8, 100 * i + 50);
        }
    }
  }

  /// It names bytes that no message here has.
  static bool outside(MsgType type, const std::vector<uint8_t>& bytes) {
    constexpr uint64_t kBeyond = 1 << 20;
    const auto field = [&](size_t at) {
      uint64_t value = 0;
      if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
      return value;
    };
    if (type == MsgType::kFrag) return field(offsetof(core::FragHdr, offset)) > kBeyond;
    if (type != MsgType::kPut) return false;
    return field(offsetof(core::PutHdr, offset)) > kBeyond || field(offsetof(core::PutHdr, length)) > kBeyond;
  }

  /// Names of requests, of whoever they are.
  void learn(const Flight& f) {
    for (const Shape& shape : shapes()) {
      if (static_cast<uint8_t>(shape.type) != f.tag) continue;
      for (size_t at : shape.names) {
        uint64_t name = 0;
        if (at + 8 <= f.bytes.size()) std::memcpy(&name, f.bytes.data() + at, 8);
        if (name != 0) names_.push_back(name);
      }
    }
  }

  uint64_t any_name() {
    const Name real(names_.empty() ? 0 : names_[rng_() % names_.size()]);
    switch (rng_() % 8) {
      case 0:
        return 0;
      case 1:
        return ~uint64_t{0};
      case 2:
        return real.at(static_cast<Round>(real.round() + 1)).value;
      case 3:
        return real.at(kLastRound).value;
      case 4:
        return Name(real.slot(), real.gen() + 1, real.round()).value;
      default:
        return real.value;
    }
  }

  bool busy() {
    for (const auto& [s, r] : exchanges_)
      if (!s->done || !r->done) return true;
    return false;
  }

  /// Takes one flight. Nothing of the target's reaches the hostile rank's engine. What is read or written at
  /// forged addresses takes for ever, or the device refuses it: that ends the rail for a while.
  void step() {
    if (world_.flights.empty()) {
      for (auto& e : world_.engines) e->progress(world_.now += 1000);
      world_.closures();
      world_.run_fences();
      for (int r = 0; r < 2; ++r) world_.revive(kTarget, kHostile, r);
      return;
    }
    const Flight f = world_.flights[0];
    if (f.from != kHostile && f.to != kHostile) return world_.take();
    learn(f);
    if (f.kind == Flight::Kind::kSend) {
      world_.flights.pop_front();
      world_.end(f, Fate::kDelivered);
    } else if (rng_() % 8 != 0) {
      world_.flights.pop_front();
      held_.push_back(f);
    } else {
      give_back();
      world_.kill(kTarget, kHostile, f.rail);
    }
  }

  void give_back() {
    world_.flights.insert(world_.flights.end(), held_.begin(), held_.end());
    held_.clear();
  }

  World world_;
  std::mt19937 rng_;
  size_t before_ = 0;
  std::vector<Transfer> exchanges_;
  std::vector<uint64_t> names_;
  std::vector<Flight> held_;
  std::string wrong_;
  unsigned next_ = 3;  ///< number of its next message
};

World::Options protocol(int which) {
  World::Options o = impatient();
  o.ranks = 3;
  o.config.unknown_limit = 64 * 1024;
  o.put = which == 1;
  o.get = which == 2;
  return o;
}

class EveryHeader : public testing::TestWithParam<size_t> {};

TEST_P(EveryHeader, AnyFieldAtItsExtremes_OthersAreUnharmed) {
  constexpr uint64_t kExtremes[] = {0, 1, 0x7fffffffffffffff, 0x8000000000000000, ~uint64_t{0}};
  const Shape shape = shapes()[GetParam()];
  uint64_t sent = 0, dropped = 0;
  size_t most = 0;
  for (size_t field = 1; field < shape.size; ++field) {
    Hostile h(protocol(static_cast<int>(field % 3)), static_cast<unsigned>(field));
    for (size_t width : {1u, 2u, 4u, 8u})
      for (uint64_t value : kExtremes) {
        h.attack(shape, field, width, value >> (64 - 8 * width), shape.size + kPayload * (sent % 2));
        if (width < 8) h.attack(shape, field, width, value & 0xff, shape.size);
        sent += 1 + (width < 8);
      }
    ASSERT_EQ(h.verdict(), "") << "field at " << field;
    most = std::max(most, h.kept());
    dropped += h.dropped();
  }
  printf("# type %02x: %llu messages, %llu drops, at most %zu bytes kept\n",
         static_cast<unsigned>(shape.type), static_cast<unsigned long long>(sent),
         static_cast<unsigned long long>(dropped), most);
  EXPECT_GT(dropped, sent / 10);
}

TEST_P(EveryHeader, AnyLength_OthersAreUnharmed) {
  const Shape shape = shapes()[GetParam()];
  for (int which = 0; which < 3; ++which) {
    Hostile h(protocol(which), 77);
    for (size_t size = 1; size < shape.size + 8; ++size) h.attack(shape, shape.size, 0, 0, size);
    for (size_t size : {size_t{1024}, size_t{65536}}) h.attack(shape, shape.size, 0, 0, size);
    ASSERT_EQ(h.verdict(), "") << "protocol " << which;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryHeader, testing::Range(size_t{0}, shapes().size()));

}  // namespace
}  // namespace bfo::test
