// SPDX-License-Identifier: BSD-3-Clause
//
// btl_parts_test.cc: the engine's small parts: hash table, registered memory, completion queue reservation,
// event mailbox and thread, addresses.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "btl/verbs/engine/base/frag.h"
#include "btl/verbs/engine/datagram/peer.h"
#include "btl/verbs/engine/base/table.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

TEST(Table, InsertFindErase_AgreesWithAMapOverManyKeys) {
  engine::Table<int> table;
  std::map<uint64_t, int*> model;
  std::vector<int> values(4096);
  uint64_t x = 1;
  for (int i = 0; i < 20000; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t key = x >> 52;  // 4096 keys: many collisions and re-insertions
    if ((x >> 20 & 3) == 0) {
      table.erase(key);
      model.erase(key);
    } else {
      ASSERT_TRUE(table.insert(key, &values[key]));
      model[key] = &values[key];
    }
    ASSERT_EQ(table.size(), model.size());
  }
  for (uint64_t key = 0; key < 4096; ++key)
    EXPECT_EQ(table.find(key), model.count(key) != 0 ? model[key] : nullptr);
}

/// The names stand in the records: none is read that is gone.
TEST(PeerTable, RecordsComeAndGo_AgreesWithAMap) {
  engine::PeerTable table;
  std::map<uint64_t, std::unique_ptr<engine::KnownPeer>> model;
  uint64_t x = 1;
  for (int i = 0; i < 20000; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t name = uint64_t{0x5e9c0001} << 32 | x >> 53;
    const auto known = model.find(name);
    if (known != model.end()) {
      table.erase(name);
      model.erase(known);
    } else {
      auto peer = std::make_unique<engine::KnownPeer>();
      peer->peer.name = name;
      ASSERT_TRUE(table.insert(name, peer.get()));
      model[name] = std::move(peer);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  for (uint64_t i = 0; i < 2048; ++i) {
    const uint64_t name = uint64_t{0x5e9c0001} << 32 | i;
    const auto known = model.find(name);
    EXPECT_EQ(table.find(name), known == model.end() ? nullptr : known->second.get());
  }
}

TEST(FragFifo, FilledAndEmptiedTwice_KeepsTheOrder) {
  engine::FragFifo fifo;
  engine::Frag frags[3];
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(fifo.empty());
    fifo.push(&frags[0]);
    EXPECT_EQ(fifo.pop(), &frags[0]);
    EXPECT_TRUE(fifo.empty());
    fifo.push(&frags[1]);
    fifo.push(&frags[2]);
    fifo.push(&frags[0]);
    EXPECT_EQ(fifo.size(), 3u);
    EXPECT_EQ(fifo.front(), &frags[1]);
    EXPECT_EQ(fifo.pop(), &frags[1]);
    EXPECT_EQ(fifo.pop(), &frags[2]);
    EXPECT_EQ(fifo.pop(), &frags[0]);
    EXPECT_EQ(frags[0].next, nullptr);
  }
}

TEST(Table, Empty_FindsNothing) {
  engine::Table<int> table;
  EXPECT_EQ(table.find(7), nullptr);
  table.erase(7);
}

TEST(Arena, Pieces_AreAlignedDisjointAndRegistered) {
  TestFabric fabric;
  Process p;
  p.open(fabric, "dev", 1, small_config());
  const engine::Region a = p.device.arena().take(100);
  const engine::Region b = p.device.arena().take(5u << 20);
  ASSERT_NE(a.address, nullptr);
  ASSERT_NE(b.address, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.address) % 64, 0u);
  EXPECT_TRUE(b.address >= a.address + 100 || b.address + (5u << 20) <= a.address);
  const ibv_mr* mr = fabric.memory(b.lkey);
  EXPECT_GE(b.address, static_cast<char*>(mr->addr));
  EXPECT_LE(b.address + (5u << 20), static_cast<char*>(mr->addr) + mr->length);
  p.port.close();
  EXPECT_TRUE(p.device.close());
  EXPECT_EQ(fabric.keys_live, 0u) << "registrations leak";
}

TEST(RelaxedOrdering, WhateverTheDeviceWritesDataTo_IsRegisteredForIt) {
  TestFabric fabric;
  for (const int relaxed : {int{IBV_ACCESS_RELAXED_ORDERING}, 0}) {
    engine::Device device;
    ASSERT_TRUE(device.open(test_verbs(), &fabric.add_device("dev"), relaxed));
    char memory[64];
    ibv_mr* mr = device.register_memory(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(fabric.accesses.at(mr->rkey), IBV_ACCESS_LOCAL_WRITE | relaxed);
    EXPECT_EQ(fabric.accesses.at(device.arena().take(64).lkey), IBV_ACCESS_LOCAL_WRITE | relaxed);
    device.deregister_memory(mr);
    EXPECT_TRUE(device.close());
  }
}

TEST(Device, WithoutAManufacturer_IsNotTrustedWithReads) {
  TestFabric fabric;
  struct Row {
    uint32_t vendor_id;
    int reads_at_once;
    bool sound;
  };
  // Hardware, soft-RoCE, soft-RoCE of an old kernel, hardware without READ.
  for (const Row& row :
       {Row{0x02c9, 16, true}, Row{0xffffff, 128, false}, Row{0, 128, false}, Row{0x02c9, 0, false}}) {
    stack::Device& hca = fabric.add_device("dev");
    hca.attr.vendor_id = row.vendor_id;
    hca.attr.max_qp_rd_atom = row.reads_at_once;
    engine::Device device;
    ASSERT_TRUE(device.open(test_verbs(), &hca));
    EXPECT_EQ(device.reads(), row.sound) << row.vendor_id << " " << row.reads_at_once;
    EXPECT_TRUE(device.close());
  }
}

TEST(AccessFlags, MemoryOnlyRead_NeedNotBeWritable) {
  EXPECT_EQ(engine::access_flags(false, true, false, false), int{IBV_ACCESS_REMOTE_READ});
  EXPECT_EQ(engine::access_flags(false, false, true, false),
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
}

ibv_cq* reserve(engine::CqSet& set, uint32_t entries) {
  EXPECT_TRUE(set.ready(entries)) << "its lane is inline";
  return set.reserve(entries);
}

TEST(CqSet, Reservations_NeverExceedAQueueAndGrowTheSet) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  engine::CqSet set;
  engine::ControlLane lane;
  ASSERT_TRUE(set.open(test_verbs(), &device.context, 100, 60, 80, &lane));
  ibv_cq* first = reserve(set, 20);
  EXPECT_EQ(first, set.first());
  ibv_cq* second = reserve(set, 20);
  EXPECT_NE(second, first) << "80 entries: 60 and 20 are taken";
  EXPECT_EQ(set.count(), 2u);
  set.release(first, 20);
  EXPECT_EQ(reserve(set, 20), first);
  EXPECT_EQ(reserve(set, 101), nullptr) << "more than the device can";
  EXPECT_TRUE(set.close());
}

TEST(CqSet, ThousandsOfPeers_FindRoomInFewQueues) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  engine::CqSet set;
  engine::ControlLane lane;
  ASSERT_TRUE(set.open(test_verbs(), &device.context, 4'000'000, 160, 256, &lane));
  for (int peer = 0; peer < 20'000; ++peer) ASSERT_NE(reserve(set, 260), nullptr) << peer;
  EXPECT_LE(set.count(), 20u) << "each is polled in each turn";
  EXPECT_EQ(fabric.cqs.size(), set.count());
  EXPECT_TRUE(set.close());
  EXPECT_EQ(set.chain(), nullptr);
}

TEST(CqSet, SmallQueuesOnly_TheChainHasNoEnd) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  engine::CqSet set;
  engine::ControlLane lane;
  ASSERT_TRUE(set.open(test_verbs(), &device.context, 600, 160, 256, &lane));
  for (int peer = 0; peer < 2'000; ++peer) ASSERT_NE(reserve(set, 260), nullptr) << peer;
  EXPECT_GE(set.count(), 1'000u);
  EXPECT_TRUE(set.close());
}

TEST(CqSet, DeviceShortOfMemory_TakesASmallerQueue) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  engine::CqSet set;
  engine::ControlLane lane;
  ASSERT_TRUE(set.open(test_verbs(), &device.context, 100'000, 160, 8192, &lane));
  while (set.count() == 1) {
    fabric.refusals = {{"create_cq", 1, 3, ENOMEM}};
    ASSERT_NE(reserve(set, 260), nullptr);
  }
  EXPECT_EQ(fabric.cqs.back()->cqe, 1024) << "8192 refused three times";
  fabric.refusals = {{"create_cq", 1, 100, ENOMEM}};
  while (reserve(set, 260) != nullptr) {
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(set.count(), 2u);
  EXPECT_TRUE(set.close());
}

TEST(CqSet, FixedPartLargerThanTheDevice_IsRefused) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  engine::CqSet set;
  engine::ControlLane lane;
  EXPECT_FALSE(set.open(test_verbs(), &device.context, 100, 101, 80, &lane));
}

TEST(Reactions, UnknownValues_HaveOne) {
  EXPECT_EQ(engine::status_reaction(1000), engine::StatusReaction::kClose);
  EXPECT_EQ(engine::status_reaction(-1), engine::StatusReaction::kClose);
  EXPECT_EQ(engine::event_reaction(1000), engine::EventReaction::kPortRefresh);
  EXPECT_STREQ(engine::event_name(1000), "unknown event");
  EXPECT_STREQ(engine::status_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
  EXPECT_STREQ(engine::status_name(1000), "unknown status");
  EXPECT_STREQ(engine::event_name(IBV_EVENT_PORT_ERR), "IBV_EVENT_PORT_ERR");
}

/// The bullets "- **A, B**: .." of the document's list of events: one for each reaction but kIgnore.
TEST(Reactions, EventsOfTheDocument_AreThoseOfTheTable) {
  const char* const root = std::getenv("BFO_SRCDIR");
  ASSERT_NE(root, nullptr) << "set BFO_SRCDIR to the source tree";
  std::ifstream in(std::string(root) + "/btl/verbs/README.md");
  std::map<std::string, int> documented;
  int bullets = 0;
  bool here = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) here = line == "### Asynchronous events";
    if (!here || !line.starts_with("- **")) continue;
    std::istringstream names(line.substr(4, line.find("**", 4) - 4));
    for (std::string name; names >> name;) {
      if (name.ends_with(',')) name.pop_back();
      documented["IBV_EVENT_" + name] = bullets;
    }
    ++bullets;
  }
  std::map<engine::EventReaction, int> bullet_of;
  for (const engine::EventRow& row : engine::kEventRows) {
    const auto found = documented.find(row.name);
    if (row.reaction == engine::EventReaction::kIgnore) {
      EXPECT_EQ(found, documented.end()) << row.name << " is ignored";
      continue;
    }
    ASSERT_NE(found, documented.end()) << row.name << " is not in btl/verbs/README.md";
    EXPECT_EQ(bullet_of.emplace(row.reaction, found->second).first->second, found->second) << row.name;
    documented.erase(found);
  }
  EXPECT_TRUE(documented.empty()) << documented.begin()->first << " is no event with a reaction";
  EXPECT_EQ(static_cast<size_t>(bullets), bullet_of.size()) << "one bullet for each reaction";
}

TEST(EventBox, Full_RemembersThatSomethingWasLost) {
  auto box = std::make_unique<engine::EventBox>();
  EXPECT_TRUE(box->empty());
  for (int i = 0; i < 1500; ++i)
    box->put(engine::EventNote{IBV_EVENT_PORT_ERR, 1, 0, static_cast<uint64_t>(i)});
  EXPECT_TRUE(box->overflowed());
  engine::EventNote note;
  uint64_t expected = 0;
  while (box->take(&note)) EXPECT_EQ(note.when_ns, expected++);
  EXPECT_EQ(expected, 1024u);
  EXPECT_TRUE(box->take_overflow());
  EXPECT_FALSE(box->take_overflow());
  EXPECT_TRUE(box->empty());
}

TEST(EventThread, EventsOfTwoDevices_ReachTheirOwnBoxesAndStopReturns) {
  TestFabric fabric;
  stack::Device& one = fabric.add_device("one");
  stack::Device& two = fabric.add_device("two");
  auto box_one = std::make_unique<engine::EventBox>();
  auto box_two = std::make_unique<engine::EventBox>();
  engine::EventThread thread;
  // Raised before the thread runs: the queue of a simulated device is not made for two threads.
  fabric.raise(one, IBV_EVENT_PORT_ERR, 1);
  fabric.raise(two, IBV_EVENT_PORT_ACTIVE, 1);
  ASSERT_TRUE(thread.start(test_verbs(), test_environment().now_ns));
  ASSERT_TRUE(thread.add(&one.context, box_one.get()));
  ASSERT_TRUE(thread.add(&two.context, box_two.get()));
  while (box_one->empty() || box_two->empty()) std::this_thread::yield();
  thread.stop();
  thread.stop();
  engine::EventNote note;
  ASSERT_TRUE(box_one->take(&note));
  EXPECT_EQ(note.type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(note.port, 1u);
  ASSERT_TRUE(box_two->take(&note));
  EXPECT_EQ(note.type, IBV_EVENT_PORT_ACTIVE);
}

std::atomic<bool> prepared{false};

/// Open MPI patches munmap after the component has started the thread: see EventThread::start().
TEST(EventThread, WhatTheThreadDoesFirst_HasEndedWhenStartReturns) {
  engine::EventThread thread;
  prepared = false;
  ASSERT_TRUE(thread.start(test_verbs(), test_environment().now_ns, [] {
    usleep(50'000);
    prepared = true;
  }));
  EXPECT_TRUE(prepared);
  thread.stop();
}

TEST(EventThread, Heartbeat_IsServedUntilForgotten) {
  TestFabric fabric;
  Process p;
  p.open(fabric, "dev", 1, small_config());
  engine::Heartbeat& heartbeat = p.port.heartbeat();
  engine::EventThread thread;
  // What waits is put there before the thread may look: the queues of a simulated device are not made for two
  // threads.
  fabric.receive_datagram(*fabric.find(heartbeat.number()), "nonsense", 8);
  ASSERT_TRUE(thread.start(test_verbs(), test_environment().now_ns));
  ASSERT_TRUE(thread.serve(heartbeat));
  while (heartbeat.dropped() == 0) std::this_thread::yield();
  thread.forget(heartbeat);
  fabric.receive_datagram(*fabric.find(heartbeat.number()), "nonsense", 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(heartbeat.dropped(), 1u);
  thread.forget(heartbeat);
  thread.stop();
  p.port.close();
}

TEST(Address, GlobalRouteHeader_OnEthernetOrAcrossSubnetsOnly) {
  engine::QpSettings settings;
  engine::PortAddress own;
  engine::PortAddress to;
  own.link_layer = to.link_layer = IBV_LINK_LAYER_INFINIBAND;
  to.lid = 9;
  EXPECT_EQ(engine::address_vector(settings, own, to).is_global, 0);
  EXPECT_EQ(engine::address_vector(settings, own, to).dlid, 9);
  to.gid.raw[7] = 1;
  EXPECT_EQ(engine::address_vector(settings, own, to).is_global, 1);
  to.gid.raw[7] = 0;
  own.link_layer = IBV_LINK_LAYER_ETHERNET;
  EXPECT_EQ(engine::address_vector(settings, own, to).is_global, 1);
}

TEST(Mtu, TheSmallerKnownOneIsUsed) {
  EXPECT_EQ(engine::common_mtu(IBV_MTU_1024, IBV_MTU_4096), IBV_MTU_1024);
  EXPECT_EQ(engine::common_mtu(0, IBV_MTU_4096), IBV_MTU_4096);
}

TEST(Port, NotActive_IsRefusedWithAReason) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  device.port.state = IBV_PORT_INIT;
  Process p;
  const char* what = "";
  ASSERT_TRUE(p.device.open(test_verbs(), &device));
  EXPECT_FALSE(p.port.open(p.device, 1, small_config(), p.host(), test_environment(), &what));
  EXPECT_EQ(errno, ENETDOWN);
  p.device.close();
}

TEST(Port, NoUnpredictableNumbers_IsRefusedWithAReason) {
  TestFabric fabric;
  stack::Device& device = fabric.add_device("dev");
  fabric.refuse_secrets = ENOSYS;
  Process p;
  const char* what = "";
  ASSERT_TRUE(p.device.open(test_verbs(), &device));
  EXPECT_FALSE(p.port.open(p.device, 1, small_config(), p.host(), test_environment(), &what));
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_STREQ(what, "unpredictable numbers from getrandom()");
  EXPECT_EQ(p.port.nonce(), 0u);
  p.device.close();
}

TEST(Qkey, EachPort_HasItsOwnOneWithoutTheTopBit) {
  TestFabric fabric;
  std::set<uint32_t> seen;
  for (int i = 0; i < 8; ++i) {
    Process p;
    p.open(fabric, "dev", 1, small_config());
    const uint32_t qkey = p.port.address().qkey;
    EXPECT_EQ(fabric.find(p.port.cm_qp().number())->attr.qkey, qkey);
    EXPECT_EQ(fabric.find(p.port.heartbeat().number())->attr.qkey, qkey);
    EXPECT_EQ(qkey & 0x80000000, 0u);
    EXPECT_NE(qkey, 0u);
    seen.insert(qkey);
    p.port.close();
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Qkey, PeersNameEachOthersOne_AlsoTheAnswerToAPing) {
  World w;
  w.b.alive = true;
  engine::cm_connect(w.a.endpoint);
  for (int i = 0; i < 4000; ++i) {  // b computes: only its heartbeat answers
    test_now() += 100'000;
    w.b.serve_heartbeat();
    w.fabric.run();
    for (int k = 0; k < 32; ++k) w.a.poll();
  }
  EXPECT_EQ(w.a.count("peer answers"), 1);
  w.pass(300);
  EXPECT_EQ(w.a.endpoint.phase, engine::Phase::kUp);
  EXPECT_EQ(w.fabric.wrong_qkeys, 0);
}

TEST(Qkey, AStrangersDatagram_IsDroppedByTheDevice) {
  World w;
  w.a.endpoint.peer.address.qkey ^= 1;
  engine::cm_connect(w.a.endpoint);
  w.pass(20);
  EXPECT_GT(w.fabric.wrong_qkeys, 0);
  EXPECT_EQ(w.b.port.accounting().dropped, 0u);
  EXPECT_EQ(w.b.endpoint.phase, engine::Phase::kIdle);
}

TEST(DatagramQp, CompletionError_ConnectionManagerRevives) {
  World w;
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kDatagramSend, 0);
  wc.status = IBV_WC_LOC_QP_OP_ERR;
  w.fabric.push(w.a.port.cqs().first(), wc);
  w.pass(1);
  const auto& changes = w.fabric.modifications;
  const auto reset = std::find_if(changes.begin(), changes.end(),
                                  [](const auto& c) { return c.second.qp_state == IBV_QPS_RESET; });
  ASSERT_NE(reset, changes.end());
  EXPECT_EQ(reset->first, w.a.port.cm_qp().number());
  w.connect();
}

}  // namespace
}  // namespace bfo::test
