// SPDX-License-Identifier: BSD-3-Clause
//
// btl_packet_loss_test.cc: packets that a port loses: what the files of devices mean, and what a port makes
// of it.
#include "btl/verbs/engine/port/packet_loss.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::LossCounters;
using engine::LossCounts;
using Words = std::vector<std::string>;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kLimit = 1000;  // per million

// ---- the files

/// A folder as the kernel has it for a device.
class Files {
 public:
  Files() { EXPECT_NE(mkdtemp(folder_), nullptr); }
  ~Files() { std::filesystem::remove_all(folder_); }
  void set(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::string(folder_) + "/ports/1/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  LossCounts read() { return counters.read(read_file, folder_, 1); }
  LossCounters counters;

 private:
  /// As libibverbs does.
  static int read_file(const char* directory, const char* file, char* text, size_t size) {
    std::ifstream in(std::string(directory) + "/" + file);
    std::string line;
    if (!std::getline(in, line) || line.size() > size) return -1;
    memcpy(text, line.data(), line.size());
    return static_cast<int>(line.size());
  }
  char folder_[32] = "/tmp/bfo-loss-XXXXXX";
};

TEST(LossCounters, OfMlx5_AreTimeoutsAndNaksOutAndGapsIn) {
  Files files;
  files.set("counters/port_xmit_packets", "1000");
  files.set("counters/port_rcv_packets", "2000");
  files.set("hw_counters/local_ack_timeout_err", "1");
  files.set("hw_counters/packet_seq_err", "20");
  files.set("hw_counters/roce_adp_retrans", "300");
  files.set("hw_counters/out_of_sequence", "4");
  files.set("hw_counters/implied_nak_seq_err", "50");
  files.set("hw_counters/rnr_nak_retry_err", "7000");  // no packet was lost
  files.set("hw_counters/duplicate_request", "7000");  // that of a loss which was counted
  const LossCounts counts = files.read();
  EXPECT_TRUE(counts.out.known && counts.in.known);
  EXPECT_EQ(counts.out.signs, 321u);
  EXPECT_EQ(counts.out.packets, 1000u);
  EXPECT_EQ(counts.in.signs, 54u);
  EXPECT_EQ(counts.in.packets, 2000u);
}

TEST(LossCounters, OfRxe_AreNaksOutAndGapsIn_NotTimeouts) {
  Files files;
  files.set("hw_counters/sent_pkts", "500");
  files.set("hw_counters/rcvd_pkts", "600");
  files.set("hw_counters/completer_retry_err", "7000");  // most without a loss
  files.set("hw_counters/rcvd_seq_err", "7");
  files.set("hw_counters/out_of_seq_request", "8");
  const LossCounts counts = files.read();
  EXPECT_TRUE(counts.out.known && counts.in.known);
  EXPECT_EQ(counts.out.signs, 7u);
  EXPECT_EQ(counts.out.packets, 500u);
  EXPECT_EQ(counts.in.signs, 8u);
  EXPECT_EQ(counts.in.packets, 600u);
}

TEST(LossCounters, WithoutPacketsOrSigns_NothingIsKnown) {
  Files files;
  files.set("hw_counters/packet_seq_err", "20");
  files.set("counters/port_rcv_packets", "2000");
  const LossCounts counts = files.read();
  EXPECT_FALSE(counts.out.known) << "of how many packets?";
  EXPECT_FALSE(counts.in.known) << "no sign is counted";
  EXPECT_FALSE(files.counters.none());
}

TEST(LossCounters, OfADeviceWithoutAny_AreNotLookedForAgain) {
  Files files;
  EXPECT_FALSE(files.counters.none());
  EXPECT_FALSE(files.read().out.known);
  EXPECT_TRUE(files.counters.none());
  files.set("counters/port_xmit_packets", "1000");
  files.set("hw_counters/packet_seq_err", "20");
  EXPECT_FALSE(files.read().out.known);
}

TEST(LossCounters, ThatHoldNoNumber_AreNotThere) {
  Files files;
  files.set("counters/port_xmit_packets", "none");
  files.set("hw_counters/packet_seq_err", "");
  EXPECT_FALSE(files.read().out.known);
}

// ---- the port

struct LossyPort : World {
  static engine::Config config() {
    engine::Config config = small_config();
    config.loss_threshold = kLimit;
    return config;
  }
  std::list<Process> others;  // that `a` has met besides
  std::list<engine::Endpoint> ends;
  uint64_t met = 0;

  explicit LossyPort(const engine::Config& with = config()) : World(with) {
    a.hca->losses = {{0, 0, true}, {0, 0, true}};
  }
  ~LossyPort() {
    while (!ends.empty()) part();
  }
  /// Both have said what they have to say.
  void settle(Process& other) {
    for (int i = 0; i < 400; ++i) {
      test_now() += 10'000;
      fabric.run();
      a.poll();
      other.poll();
    }
  }
  /// A rail over the port comes up.
  void meet() {
    const uint64_t name = 1000 + met++;
    Process& other = others.emplace_back();
    other.open(fabric, "p" + std::to_string(name), name, config());
    engine::Endpoint& end = ends.emplace_back();
    end.peer.name = name;
    end.peer.nonce = other.port.nonce();
    end.peer.key = other.port.key();
    end.peer.address = other.port.address();
    ASSERT_TRUE(a.port.add(end));
    other.meet(a, 1);
    engine::cm_connect(end);
    settle(other);
  }
  /// And that to the process which was met first ends.
  void part() {
    a.port.remove(ends.front());
    settle(others.front());
    others.front().port.remove(others.front().endpoint);
    others.front().port.close();
    ends.pop_front();
    others.pop_front();
  }
  bool all_up() const {
    return std::all_of(ends.begin(), ends.end(),
                       [](const engine::Endpoint& end) { return end.phase == engine::Phase::kUp; });
  }
  /// Of traffic, in which the device of `a` loses this part of what goes out, and comes in.
  void run(int seconds, uint64_t out, uint64_t in = 0, bool traffic = true) {
    for (int i = 0; i < seconds * 10; ++i) {
      test_now() += kSecond / 10;
      a.hca->losses.out.packets += 10'000;
      a.hca->losses.in.packets += 10'000;
      a.hca->losses.out.signs += out / 100;
      a.hca->losses.in.signs += in / 100;
      if (traffic) sendi(a, "hello");
      for (int k = 0; k < 8; ++k) {
        fabric.run();
        a.serve_heartbeat();
        b.serve_heartbeat();
        a.poll();
        b.poll();
        for (Process& other : others) {
          other.serve_heartbeat();
          other.poll();
        }
      }
    }
  }
};

TEST(PacketLoss, OfAPortWithTraffic_IsToldWithItsDirection) {
  LossyPort world;
  world.connect();
  world.run(20, 0, 0);
  EXPECT_EQ(world.a.losses, Words{});
  world.run(6, 10'000, 0);
  EXPECT_EQ(world.a.losses, Words{"out begins"});
  world.run(6, 10'000, 50'000);
  EXPECT_EQ(world.a.losses, (Words{"out begins", "in begins"}));
  world.run(20, 0, 0);
  EXPECT_EQ(world.a.losses, (Words{"out begins", "in begins", "out is over", "in is over"}));
  EXPECT_EQ(world.a.port.packet_loss().found(), 2u);
}

TEST(PacketLoss, ThresholdZero_ReadsNothing) {
  engine::Config config = LossyPort::config();
  config.loss_threshold = 0;
  LossyPort world(config);
  world.connect();
  world.run(20, 50'000, 50'000);
  EXPECT_EQ(world.a.losses, Words{});
  EXPECT_EQ(world.a.turns_asked, 0);
}

TEST(PacketLoss, OfAPortThatThisProcessDoesNotUse_IsLeftToOthers) {
  LossyPort world;
  world.connect();
  world.run(3, 0);
  const int asked = world.a.turns_asked;
  world.run(20, 50'000, 50'000, false);
  EXPECT_LE(world.a.turns_asked, asked + 1) << "what was sent before the last look";
  EXPECT_EQ(world.a.losses, Words{});
}

TEST(PacketLoss, AnotherProcessReads_ThisOneIsSilent) {
  LossyPort world;
  world.a.loss_turn = engine::LossTurn::kOthers;
  world.connect();
  world.run(20, 50'000, 50'000);
  EXPECT_EQ(world.a.losses, Words{});
  EXPECT_GE(world.a.turns_asked, 10);
  // It has ended, and this one begins to read: what was before does not count.
  world.a.loss_turn = engine::LossTurn::kTaken;
  world.run(1, 50'000);
  world.a.loss_turn = engine::LossTurn::kKept;
  world.run(6, 0);
  EXPECT_EQ(world.a.losses, Words{});
  world.run(6, 50'000);
  EXPECT_EQ(world.a.losses, Words{"out begins"});
}

/// The packets of a rail that dies are sent again until it is dead. That is told already.
TEST(PacketLoss, WhileRailsComeAndGo_IsNotTold) {
  LossyPort world;
  world.connect();
  for (int i = 0; i < 10; ++i) {
    world.run(2, 50'000, 50'000);
    world.set_port(world.a, IBV_PORT_DOWN);
    world.run(1, 50'000, 50'000);
    world.set_port(world.a, IBV_PORT_ACTIVE);
    world.run(1, 0);
    ASSERT_EQ(world.a.endpoint.phase, engine::Phase::kUp) << i;
  }
  EXPECT_EQ(world.a.losses, Words{});
  EXPECT_GE(world.a.endpoint.epoch, 10u);
  world.run(6, 50'000);
  EXPECT_EQ(world.a.losses, Words{"out begins"}) << "the port works, and its loss is one";
}

/// Connections are made when they are needed: on a busy port one each second.
TEST(PacketLoss, WhileRailsComeUp_IsTold) {
  LossyPort world;
  world.connect();
  for (int i = 0; i < 8; ++i) {
    world.meet();
    world.run(1, 50'000);
  }
  EXPECT_TRUE(world.all_up());
  EXPECT_EQ(world.a.losses, Words{"out begins"});
}

TEST(PacketLoss, WhileOneRailEndsAndOneComesUp_IsNotTold) {
  LossyPort world;
  world.connect();
  world.meet();
  world.run(3, 0);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(world.all_up());
    world.run(1, 50'000);
    world.part();
    world.meet();
    world.run(1, 50'000);
  }
  EXPECT_EQ(world.a.losses, Words{});
}

/// What it has lost is in the counters when this process reads them again.
TEST(PacketLoss, RailThatEndsWhileNothingIsRead_CountsAtTheNextReading) {
  LossyPort world;
  world.connect();
  world.meet();
  world.run(3, 0);
  ASSERT_TRUE(world.all_up());
  world.run(1, 50'000);
  world.run(2, 50'000, 0, false);  // what was sent before the look is read
  world.part();
  const int asked = world.a.turns_asked;
  world.run(2, 50'000, 0, false);
  ASSERT_EQ(world.a.turns_asked, asked) << "nothing was read";
  world.run(2, 50'000);
  EXPECT_EQ(world.a.losses, Words{});
  world.run(5, 50'000);
  EXPECT_EQ(world.a.losses, Words{"out begins"});
}

TEST(PacketLoss, ThatAnotherProcessHasTold_IsEndedByThisOne) {
  LossyPort world;
  world.a.loss_turn = engine::LossTurn::kOthers;
  world.connect();
  world.run(5, 50'000);
  world.a.loss_goes_on[0] = true;
  world.a.loss_turn = engine::LossTurn::kTaken;
  world.run(2, 50'000);
  world.a.loss_turn = engine::LossTurn::kKept;
  world.run(5, 50'000);
  EXPECT_EQ(world.a.losses, Words{}) << "it is told already";
  world.run(20, 0);
  EXPECT_EQ(world.a.losses, Words{"out is over"});
}

TEST(PacketLoss, OfADeviceThatCountsNothing_IsNotKnown) {
  LossyPort world;
  world.a.hca->losses = {};
  world.connect();
  world.run(20, 50'000, 50'000);
  EXPECT_EQ(world.a.losses, Words{});
}

}  // namespace
}  // namespace bfo::test
