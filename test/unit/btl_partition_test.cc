// SPDX-License-Identifier: BSD-3-Clause
//
// btl_partition_test.cc: a port in use gets another table of partition keys or GIDs, as a subnet manager or
// an administrator makes it: rails end in order and come back with the new indices.
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;
using engine::PortState;

constexpr uint16_t kKey = 0x8001;

engine::Config partition_config(uint16_t pkey = kKey) {
  engine::Config config = small_config();
  config.pkey = pkey;
  config.peer_timeout_ns = 1'000'000'000;
  return config;
}

/// Two processes that are told to use a partition.
struct Partition {
  TestFabric fabric;
  Process a;
  Process b;

  explicit Partition(std::vector<uint16_t> table = {0xffff, kKey},
                     const engine::Config& config = partition_config()) {
    for (Process* p : {&a, &b}) {
      fabric.usual_pkeys = table;
      p->open(fabric, p == &a ? "left" : "right", p == &a ? 1 : 2, config);
    }
    a.meet(b, 2);
    b.meet(a, 1);
    engine::cm_connect(a.endpoint);
    pass(10);
    EXPECT_EQ(a.endpoint.phase, Phase::kUp);
    EXPECT_EQ(b.endpoint.phase, Phase::kUp);
    fabric.wrong_pkeys = 0;
  }
  ~Partition() {
    for (Process* p : {&a, &b}) p->port.remove(p->endpoint);
    for (Process* p : {&a, &b}) EXPECT_TRUE(p->port.close());
  }
  void pass(uint64_t ms, bool b_runs = true) {
    for (uint64_t i = 0; i < ms * 10; ++i) {
      test_now() += 100'000;
      a.serve_heartbeat();
      b.serve_heartbeat();
      for (int k = 0; k < 32; ++k) {
        fabric.run();
        a.poll();
        if (b_runs) b.poll();
      }
    }
  }
  void change_table(Process& p, std::vector<uint16_t> table) {
    p.hca->pkeys = std::move(table);
    fabric.raise(*p.hca, IBV_EVENT_PKEY_CHANGE, 1);
  }
  /// The index that the newest connection of `p` was made with.
  int index_of(Process& p) {
    const stack::Qp* qp = fabric.find(p.endpoint.qps().data.number());
    return qp == nullptr ? -1 : qp->attr.pkey_index;
  }
};

TEST(Partition, KeyIsLookedUp_WhereverItStands) {
  Partition w({0xffff, 0x8005, kKey});
  EXPECT_EQ(w.index_of(w.a), 2);
  EXPECT_EQ(w.fabric.find(w.a.port.cm_qp().number())->attr.pkey_index, 2);
  EXPECT_EQ(w.fabric.find(w.a.port.heartbeat().number())->attr.pkey_index, 2);
}

TEST(Partition, KeyMovesInTheTable_RailsComeBackWithTheNewIndex) {
  Partition w;
  w.change_table(w.a, {0xffff, 0x8005, 0x8006, kKey});
  w.pass(5);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_ASYNC_EVENT);
  EXPECT_EQ(w.a.last_event.code, IBV_EVENT_PKEY_CHANGE);
  w.pass(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.index_of(w.a), 3);
  EXPECT_EQ(w.index_of(w.b), 1);
}

TEST(Partition, KeyMovesInTheTable_TheHeartbeatAnswersAllTheSame) {
  Partition w;
  w.change_table(w.b, {0xffff, 0x8005, kKey});
  w.pass(700);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.find(w.b.port.heartbeat().number())->attr.pkey_index, 2);
  engine::close_order(w.a.endpoint, w.a.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
  w.a.log.clear();
  w.pass(700, false);  // b computes
  EXPECT_EQ(w.a.count("peer answers"), 1);
}

TEST(Partition, OtherKeysChange_NothingHappens) {
  Partition w;
  w.change_table(w.a, {0x7fff, kKey, 0x8009});
  w.pass(20);
  EXPECT_EQ(w.a.down + w.b.down, 0);
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
}

TEST(Partition, KeyIsTakenAway_ThePortIsDownUntilItIsBack) {
  Partition w;
  w.change_table(w.a, {0xffff});
  w.pass(20);
  EXPECT_EQ(w.a.port.state(), PortState::kDown);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.code, IBV_EVENT_PKEY_CHANGE);
  w.pass(2'000);
  EXPECT_EQ(w.a.port.state(), PortState::kDown);
  w.a.hca->pkeys = {0xffff, 0x8005, kKey};  // and the event is lost
  w.pass(1'500);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.index_of(w.a), 2);
}

TEST(Partition, FixedIndexGetsAnotherKey_RailsAreMadeAnew) {
  Partition w({0xffff}, partition_config(0));
  for (Process* p : {&w.a, &w.b}) w.change_table(*p, {kKey});
  w.pass(700);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.code, IBV_EVENT_PKEY_CHANGE);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_GT(w.a.endpoint.epoch, 1u);
}

int gid_to_choose = 0;

TEST(Partition, AddressMovesInTheGidTable_RailsAndHandlesFollow) {
  engine::Config config = partition_config(0);
  config.read_gids = [](ibv_context*, uint8_t, const ibv_port_attr&, int) {
    engine::GidTable table;
    table.count = 1;
    table.entries[0].index = gid_to_choose;
    table.entries[0].gid.raw[0] = 0xfe;
    return table;
  };
  config.qp.always_global = true;
  gid_to_choose = 3;
  Partition w({0xffff}, config);
  EXPECT_EQ(w.fabric.ahs.back().grh.sgid_index, 3);
  gid_to_choose = 5;
  for (Process* p : {&w.a, &w.b}) w.fabric.raise(*p->hca, IBV_EVENT_GID_CHANGE, 1);
  w.pass(700);
  EXPECT_EQ(w.a.down, 1) << "its queue pairs name an entry that is somebody else's now";
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  // The heartbeat, too, answers from the new entry.
  w.fabric.ahs = {ibv_ah_attr{}};
  engine::close_order(w.a.endpoint, w.a.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
  w.pass(300, false);
  EXPECT_EQ(w.a.count("peer answers"), 1);
  EXPECT_EQ(w.fabric.ahs.back().grh.sgid_index, 5);
}

}  // namespace
}  // namespace bfo::test
