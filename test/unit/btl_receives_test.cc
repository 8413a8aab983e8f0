// SPDX-License-Identifier: BSD-3-Clause
//
// btl_receives_test.cc: how much memory a port registers: little when it is idle, more while messages crowd,
// little again afterwards.
#include <malloc.h>

#include "btl/verbs/engine/progress/contract.h"
#include "test/unit/btl_rails_world.h"

namespace {
bool no_resources = false;  // there is no memory for engine::ConnectionResources
}

/// In front of the C library's.
extern "C" int posix_memalign(void** at, size_t align, size_t size) noexcept {
  if (no_resources && size == sizeof(bfo::engine::ConnectionResources)) return ENOMEM;
  *at = aligned_alloc(align, (size + align - 1) / align * align);
  return *at == nullptr ? ENOMEM : 0;
}

namespace bfo::test {
namespace {

constexpr int kForEver = 1 << 30;

/// Bytes that the allocator has given away, its own included.
size_t allocated() {
  const struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

engine::Config large_buffers() {
  engine::Config config = RailsWorld::config();
  config.receive_bytes = 65536;
  config.receive_depth = 512;
  config.send_depth = 128;
  return config;
}

/// Two rails of an idle process, as the parameters have them: what was 69.6 MB.
TEST(Pinned, IdleProcess_AtMostEightMegabytes) {
  RailsWorld w(2);
  engine::Config config = large_buffers();
  config.send_depth = 128;
  w.open(config);
  size_t pinned = 0;
  for (NodeRail& rail : w.left.rails) pinned += rail.device.arena().pinned();
  EXPECT_LE(pinned, 8'000'000u);
  EXPECT_GT(pinned, 1'000'000u) << "it is counted";
}

/// The ring of a connection; what all connections share grows with use, not with peers.
TEST(Pinned, ConnectedPeer_AtMost64KiBPerRail) {
  RailsWorld w(1);
  const engine::Config config = large_buffers();
  w.open(config);
  EXPECT_LE(size_t{config.send_depth} * config.slot_bytes, 65536u);
  w.left.write("x");
  const size_t before = w.left.rails[0].device.arena().pinned();
  ASSERT_TRUE(w.run(1'000));
  EXPECT_LE(w.left.rails[0].device.arena().pinned() - before, 65536u);
}

/// What a process keeps for each rank of a large job that it never speaks to, on each port: no buffer, and
/// what connections need is made with the first one.
class KnownPeers : public testing::TestWithParam<size_t> {};

TEST_P(KnownPeers, NeverSpokenTo_SmallAndNothingRegistered) {
  constexpr size_t kMost = 200;
  const size_t peers = GetParam();
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Port& port = w.left.rails[0].port;
  const size_t pinned = w.left.rails[0].device.arena().pinned();
  std::vector<engine::Endpoint*> known;
  known.reserve(peers);
  const size_t before = allocated();
  for (size_t i = 0; i < peers; ++i) {
    known.push_back(engine::make<engine::Endpoint>());
    known.back()->peer.name = 1'000 + i;
    ASSERT_TRUE(port.add(*known.back()));
  }
  const size_t each = (allocated() - before) / peers;
  EXPECT_LE(each, kMost);
  if (before != 0) {  // a sanitizer's allocator does not count
    EXPECT_GT(each, sizeof(engine::Endpoint));
  }
  RecordProperty("bytes", std::to_string(each));
  EXPECT_EQ(w.left.rails[0].device.arena().pinned(), pinned);
  w.left.write("to the one that is spoken to");
  ASSERT_TRUE(w.run(1'000));
  EXPECT_NE(w.left.rails[0].endpoint.epochs(), nullptr);
  for (engine::Endpoint* endpoint : known) {
    EXPECT_FALSE(endpoint->has_resources());
    port.remove(*endpoint);
    engine::unmake(endpoint);
  }
}
/// The last one is where the table has just doubled.
INSTANTIATE_TEST_SUITE_P(OfAJob, KnownPeers, testing::Values(2'000, 20'000, 16'384));

/// What a first message waits for cannot be made: it comes back, a sentence says why, and a later one is
/// sent.
TEST(KnownPeer, NoMemoryForMore_TheMessageComesBackWithTheReason) {
  RailsWorld w(1);
  w.open(large_buffers());
  no_resources = true;
  w.left.write("to nobody");
  for (int i = 0; i < 5; ++i) w.step(1'000'000);
  NodeRail& rail = w.left.rails[0];
  EXPECT_FALSE(rail.endpoint.has_resources());
  EXPECT_EQ(rail.state, NodeRail::State::kDown);
  EXPECT_EQ(rail.down_text, "cannot allocate memory: ENOMEM");
  ASSERT_FALSE(rail.said.empty());
  EXPECT_NE(rail.said[0].find("cannot allocate memory: ENOMEM"), std::string::npos);
  EXPECT_TRUE(rail.endpoint.queued.empty());
  EXPECT_FALSE(w.left.letters.front().out);
  no_resources = false;
  rail.state = NodeRail::State::kIdle;
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(w.right.received.size(), 1u);
}

/// The end of an epoch is asked about, and there is no memory to note it: it is noted with the first memory.
TEST(KnownPeer, NoMemoryToNoteAnEnd_ItIsNotedLater) {
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Endpoint& rail = w.left.rails[0].endpoint;
  bfo_rail_info_t info;
  engine::rail_info(rail, &info);
  const bfo_rail_name_t closed = {info.name.conn, 7, 0};
  no_resources = true;
  engine::rail_fence(rail, 0);
  engine::rail_fence(rail, 5);
  engine::rail_peer_closed(rail, closed, 3);
  engine::rail_fence(rail, 6);
  EXPECT_FALSE(rail.has_resources());
  no_resources = false;
  ASSERT_TRUE(rail.make_resources());
  EXPECT_EQ(rail.notices().fence_asked, 7u);
  EXPECT_EQ(rail.peer.owed_epoch, 0u);
}

/// The peer has none: it drops what it is asked, and is asked again.
TEST(KnownPeer, NoMemoryAtThePeer_TheHandshakeComesAgain) {
  RailsWorld w(1);
  w.open(large_buffers());
  w.left.write("later");
  ASSERT_TRUE(w.left.rails[0].endpoint.make_resources());
  no_resources = true;
  for (int i = 0; i < 50; ++i) w.step(1'000'000);
  EXPECT_GT(w.right.rails[0].port.drops()[static_cast<size_t>(engine::Drop::kMemory)], 0u);
  EXPECT_FALSE(w.right.rails[0].endpoint.has_resources());
  no_resources = false;
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(w.right.received.size(), 1u);
}

/// A burst that leaves fewer than a quarter of the buffers: the device says so, and there are twice as many.
TEST(Receives, LimitReached_BuffersDouble) {
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Srq& srq = w.right.rails[0].port.srq();
  const uint32_t first = srq.made();
  EXPECT_LT(first, 40u);
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(srq.made(), first) << "a message now and then needs no more";
  for (uint32_t burst = 0; burst < 2; ++burst) {
    for (uint32_t i = 0; i < 2 * first; ++i) w.left.write("burst");
    w.left.pump();
    w.fabric.run();
    ASSERT_TRUE(w.run(1'000));
  }
  EXPECT_GE(srq.made(), 2 * first);
  EXPECT_EQ(w.right.received.size(), 1 + 4 * first);
}

/// Time passes in both processes; control threads serve everything but more receive buffers.
void live_without_growth(RailsWorld& w) {
  for (int i = 0; i < 2'000; ++i) {
    test_now() += 100'000;
    for (Node* node : {&w.left, &w.right}) {
      node->pump();
      engine::Port& port = node->rails[0].port;
      while (port.addresses().lane().run_one() || port.upkeep().run_one() || port.setups().run_one() ||
             port.stops().run_one() || port.queue_pairs().run_one()) {
      }
    }
    w.fabric.run();
    w.left.poll();
    w.right.poll();
  }
}

/// Megabytes are zeroed and pinned: the progress function waits for none of it, and messages go on meanwhile.
TEST(Receives, LimitReached_AControlThreadRegistersMore) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.control = engine::ControlMode::kDeferred;
  w.open(config);
  engine::Port& port = w.right.rails[0].port;
  const uint32_t first = port.srq().made();
  w.left.write("hello");
  live_without_growth(w);
  const size_t pinned = w.right.rails[0].device.arena().pinned();
  for (uint32_t i = 0; i < 8 * first; ++i) w.left.write("burst");
  live_without_growth(w);
  EXPECT_EQ(w.right.received.size(), 1 + 8 * first);
  EXPECT_EQ(w.right.rails[0].device.arena().pinned(), pinned);
  EXPECT_EQ(port.srq().made(), first);
  EXPECT_EQ(port.registrations().pending(), 1u) << "one at a time";
  ASSERT_TRUE(port.registrations().run_one());
  live_without_growth(w);
  EXPECT_EQ(port.srq().made(), 2 * first);
  EXPECT_GT(w.right.rails[0].device.arena().pinned(), pinned);
}

/// A port that closes meanwhile loses nothing: what was registered is deregistered with the rest.
TEST(Receives, PortClosesWhileMoreAreRegistered_NothingIsLeft) {
  for (const bool registered : {false, true}) {
    RailsWorld w(1);
    engine::Config config = large_buffers();
    config.control = engine::ControlMode::kDeferred;
    w.open(config);
    engine::Port& port = w.right.rails[0].port;
    for (uint32_t i = 0; i < 8 * port.srq().made(); ++i) w.left.write("burst");
    live_without_growth(w);
    ASSERT_EQ(port.registrations().pending(), 1u);
    EXPECT_TRUE(!registered || port.registrations().run_one());
    w.right.close();
    w.right.rails[0].open = w.right.rails[0].joined = false;
    EXPECT_TRUE(w.right.rails[0].device.close());
  }
}

TEST(Receives, NoMemoryForMore_MessagesGoOnWithTheFew) {
  RailsWorld w(1);
  w.open(large_buffers());
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  engine::Srq& srq = w.right.rails[0].port.srq();
  w.fabric.refusals = {{"reg_mr", 1, kForEver, ENOMEM}};
  const uint32_t first = srq.made();
  for (uint32_t i = 0; i < 8 * first; ++i) w.left.write("burst");
  ASSERT_TRUE(w.run(10'000));
  EXPECT_EQ(w.right.received.size(), 1 + 8 * first);
  EXPECT_GE(w.right.rails[0].port.resources().failures[static_cast<size_t>(engine::Object::kMemory)], 1u);
  EXPECT_TRUE(w.left.error.empty());
}

/// All of them may be used, and each is its own.
TEST(Receives, GrownToTheEnd_BuffersAreDisjoint) {
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Srq& srq = w.left.rails[0].port.srq();
  for (engine::SrqGrowth growth; srq.plan(growth);) {
    growth.run(growth);
    ASSERT_NE(growth.chunk, nullptr);
    srq.grown(growth);
  }
  EXPECT_EQ(srq.made(), srq.depth());
  std::set<char*> starts;
  for (uint32_t i = 0; i < srq.depth(); ++i) starts.insert(srq.buffer(i));
  ASSERT_EQ(starts.size(), srq.depth());
  const char* before = nullptr;
  for (const char* start : starts) {
    EXPECT_TRUE(before == nullptr || start - before >= 65536);
    before = start;
  }
}

/// A sender that does not wait for ever for a buffer finds all of them.
TEST(Receives, BoundedRetries_AllBuffersFromTheStart) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.qp.rnr_retry = 3;
  w.open(config);
  EXPECT_EQ(w.left.rails[0].port.srq().made(), 512u);
}

// ---- after a burst

constexpr uint64_t kQuietMs = 2'000;

/// One rail, whose right end is looked at.
struct Burst : RailsWorld {
  engine::Port& port = right.rails[0].port;
  engine::Srq& srq = port.srq();
  size_t idle = 0;  // bytes registered before

  explicit Burst(engine::ControlMode mode = engine::ControlMode::kInline) : RailsWorld(1) {
    engine::Config config = large_buffers();
    config.control = mode;
    open(config);
  }
  size_t pinned() { return right.rails[0].device.arena().pinned(); }
  void settle() {
    left.write("hello");
    ASSERT_TRUE(run(1'000));
    idle = pinned();
  }
  void burst(uint32_t messages) {
    const size_t had = right.received.size();
    for (uint32_t i = 0; i < messages; ++i) left.write("burst");
    left.pump();
    fabric.run();
    ASSERT_TRUE(run(1'000));
    ASSERT_EQ(right.received.size(), had + messages);
    left.letters.clear();
  }
  /// A burst that leaves an eighth of the buffers: there are twice as many afterwards.
  void grow() {
    const uint32_t before = srq.made();
    burst(before - before / 8);
    ASSERT_EQ(srq.made(), 2 * before);
  }
  /// `ms` in which a message comes now and then.
  void trickle(uint64_t ms) {
    for (uint64_t i = 0; i < ms; i += 5) {
      left.write("now and then");
      ASSERT_TRUE(run(5));
      left.letters.clear();
      for (int k = 0; k < 4; ++k) step(1'000'000);
    }
  }
};

TEST(AfterBurst, QuietTraffic_BuffersAreGivenBack) {
  Burst w;
  w.settle();
  const uint32_t first = w.srq.made();
  w.grow();
  w.grow();
  EXPECT_GT(w.pinned(), w.idle + size_t{2} * first * 65536);
  w.trickle(5 * kQuietMs);
  EXPECT_EQ(w.srq.made(), first);
  EXPECT_EQ(w.pinned(), w.idle);
  EXPECT_FALSE(w.srq.retiring());
  w.burst(200);
}

/// Half of them at a time: what is left is still several times what was needed.
TEST(AfterBurst, OneQuietPeriod_TheLastStepOnly) {
  Burst w;
  w.settle();
  w.grow();
  const uint32_t grown = w.srq.made();
  w.grow();
  ASSERT_EQ(w.srq.made(), 2 * grown);
  w.trickle(2 * kQuietMs + kQuietMs / 2);  // the burst is in the first period
  EXPECT_EQ(w.srq.kept(), grown);
}

TEST(AfterBurst, BufferOfARetiringStep_IsPostedNoMore) {
  Burst w;
  w.settle();
  const uint32_t first = w.srq.made();
  w.grow();
  w.srq.retire();
  EXPECT_EQ(w.srq.kept(), first);
  EXPECT_FALSE(w.srq.all_home()) << "the device still has them";
  const size_t pinned = w.pinned();
  for (uint32_t i = 0; i < first; ++i) w.burst(1);
  EXPECT_EQ(w.pinned(), pinned) << "some are still posted";
  for (uint32_t i = 0; i < first; ++i) w.burst(1);
  EXPECT_EQ(w.srq.made(), first);
  EXPECT_EQ(w.pinned(), w.idle);
}

/// No verb takes a posted receive back.
TEST(AfterBurst, SilenceWithoutMessages_NothingPostedIsTaken) {
  Burst w;
  w.settle();
  w.grow();
  const size_t pinned = w.pinned();
  for (int i = 0; i < 10'000; ++i) w.step(1'000'000);
  EXPECT_EQ(w.pinned(), pinned);
  w.burst(100);
}

TEST(AfterBurst, NeededAgainWhileTheyRetire_AllAreKept) {
  Burst w;
  w.settle();
  w.grow();
  const uint32_t grown = w.srq.made();
  w.srq.retire();
  for (int i = 0; i < 12; ++i) w.burst(1);
  ASSERT_TRUE(w.srq.retiring());
  w.burst(8 * grown);
  EXPECT_FALSE(w.srq.retiring());
  EXPECT_GE(w.srq.made(), grown);
  w.burst(8 * grown);
}

/// Bursts that come back: the wait doubles, and registration happens less and less.
TEST(AfterBurst, BurstComesBack_TheWaitDoubles) {
  Burst w;
  w.settle();
  const uint32_t first = w.srq.made();
  w.grow();
  w.trickle(3 * kQuietMs);
  ASSERT_EQ(w.srq.made(), first);
  w.grow();
  w.trickle(5 * kQuietMs / 2);
  EXPECT_GT(w.srq.kept(), first);
  w.trickle(5 * kQuietMs);
  EXPECT_EQ(w.srq.made(), first);
}

/// Traffic that needs what there is keeps it.
TEST(AfterBurst, TrafficGoesOn_NothingIsGivenBack) {
  Burst w;
  w.settle();
  w.grow();
  const uint32_t need = w.srq.made() / 2;
  w.burst(need);
  const uint32_t made = w.srq.made();
  for (uint64_t i = 0; i < 5 * kQuietMs / 100; ++i) {
    w.burst(need);
    for (int k = 0; k < 90; ++k) w.step(1'000'000);
    ASSERT_EQ(w.srq.kept(), made);
  }
}

/// Unmapping megabytes takes as long as mapping them.
TEST(AfterBurst, AControlThreadDeregisters) {
  Burst w(engine::ControlMode::kDeferred);
  w.left.write("hello");
  live_without_growth(w);
  const uint32_t first = w.srq.made();
  for (uint32_t i = 0; i < 8 * first; ++i) w.left.write("burst");
  live_without_growth(w);
  ASSERT_TRUE(w.port.registrations().run_one());
  live_without_growth(w);
  ASSERT_EQ(w.srq.made(), 2 * first);
  ASSERT_TRUE(w.port.registrations().run_one()) << "the device is asked to say when they run short";
  const size_t registered = w.fabric.keys_live;
  w.srq.retire();
  for (uint32_t i = 0; i < 3 * first; i += 8) {
    for (int k = 0; k < 8; ++k) w.left.write("x");
    live_without_growth(w);
  }
  ASSERT_EQ(w.srq.made(), first);
  EXPECT_EQ(w.fabric.keys_live, registered) << "the progress function does not wait for it";
  while (w.port.registrations().run_one()) {
  }
  EXPECT_EQ(w.fabric.keys_live, registered - 1);
}

/// A device that refuses may still write there: the memory is kept, and counted.
TEST(AfterBurst, DeviceRefusesToDeregister_MemoryStays) {
  Burst w;
  w.settle();
  const uint32_t first = w.srq.made();
  w.grow();
  const size_t pinned = w.pinned();
  w.fabric.refusals = {{"dereg_mr", 1, kForEver, EBUSY}};
  w.srq.retire();
  for (uint32_t i = 0; i < 3 * first; ++i) w.burst(1);
  EXPECT_EQ(w.srq.made(), first);
  EXPECT_EQ(w.pinned(), pinned);
  w.fabric.refusals.clear();
  w.grow();
}

/// The port closes in the middle of it.
TEST(AfterBurst, PortClosesMeanwhile_NothingIsLeft) {
  for (const uint32_t messages : {4u, 100u}) {
    Burst w(engine::ControlMode::kDeferred);
    for (uint32_t i = 0; i < 8 * w.srq.made(); ++i) w.left.write("burst");
    live_without_growth(w);
    ASSERT_TRUE(w.port.registrations().run_one());
    live_without_growth(w);
    ASSERT_TRUE(w.srq.grown());
    ASSERT_TRUE(w.port.registrations().run_one());
    live_without_growth(w);
    w.srq.retire();
    for (uint32_t i = 0; i < messages; i += 4) {
      for (int k = 0; k < 4; ++k) w.left.write("x");
      live_without_growth(w);
    }
    EXPECT_EQ(w.port.registrations().pending(), messages == 100 ? 2u : 0u);
    w.right.close();
    w.right.rails[0].open = w.right.rails[0].joined = false;
    EXPECT_TRUE(w.right.rails[0].device.close());
  }
}

}  // namespace
}  // namespace bfo::test
