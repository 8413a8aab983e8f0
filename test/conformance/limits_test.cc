// SPDX-License-Identifier: BSD-3-Clause
//
// What a device has room for, how much memory a process may register, and ports that are ACTIVE and cannot
// reach each other.
#include <cerrno>
#include <functional>
#include <vector>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

constexpr size_t kPage = 4096;

class Limit : public Conformance {
 protected:
  void TearDown() override {
    Lab::get().inject(
        "do max-qp any\ndo max-cq any\ndo max-mr any\ndo max-srq any\ndo max-ah any\ndo max-pd any\n"
        "do memlock any\ndo segment 0\ndo port-up");
    Side settle;
    settle.wait_event(5);
    Lab::get().clear_rules();
    Conformance::TearDown();
  }

  static ibv_device_attr attributes(const Side& side) {
    ibv_device_attr attr{};
    EXPECT_EQ(ibv_query_device(side.context, &attr), 0);
    return attr;
  }
};

/// A kind of object: how to make and end one, and what query_device says of it.
struct Kind {
  const char* word;
  std::function<void*(Side&)> make;
  std::function<int(void*)> end;
  int ibv_device_attr::*most;
};

std::vector<Kind> kinds() {
  return {
      {"max-pd", [](Side& s) -> void* { return ibv_alloc_pd(s.context); },
       [](void* o) { return ibv_dealloc_pd(static_cast<ibv_pd*>(o)); }, &ibv_device_attr::max_pd},
      {"max-mr",
       [](Side& s) -> void* { return ibv_reg_mr(s.pd, s.buffer.data(), kPage, IBV_ACCESS_LOCAL_WRITE); },
       [](void* o) { return ibv_dereg_mr(static_cast<ibv_mr*>(o)); }, &ibv_device_attr::max_mr},
      {"max-cq", [](Side& s) -> void* { return ibv_create_cq(s.context, 4, nullptr, nullptr, 0); },
       [](void* o) { return ibv_destroy_cq(static_cast<ibv_cq*>(o)); }, &ibv_device_attr::max_cq},
      {"max-srq",
       [](Side& s) -> void* {
         ibv_srq_init_attr attr{};
         attr.attr = {4, 1, 0};
         return ibv_create_srq(s.pd, &attr);
       },
       [](void* o) { return ibv_destroy_srq(static_cast<ibv_srq*>(o)); }, &ibv_device_attr::max_srq},
      {"max-qp",
       [](Side& s) -> void* {
         ibv_qp_init_attr attr{};
         attr.send_cq = attr.recv_cq = s.send_cq;
         attr.qp_type = IBV_QPT_RC;
         attr.cap = {4, 4, 1, 1, 0};
         return ibv_create_qp(s.pd, &attr);
       },
       [](void* o) { return ibv_destroy_qp(static_cast<ibv_qp*>(o)); }, &ibv_device_attr::max_qp},
      {"max-ah",
       [](Side& s) -> void* {
         ibv_ah_attr attr{};
         attr.dlid = s.lid;
         attr.port_num = 1;
         return ibv_create_ah(s.pd, &attr);
       },
       [](void* o) { return ibv_destroy_ah(static_cast<ibv_ah*>(o)); }, &ibv_device_attr::max_ah},
  };
}

TEST_F(Limit, Objects_BeyondTheLimitOfTheDeviceAreRefusedWithEnomem) {
  Side side;
  SideOptions other_rail;
  other_rail.device = 1;
  Side other(other_rail);
  for (const Kind& kind : kinds()) {
    Lab::get().inject(std::string("when device=0 do ") + kind.word + " 5");
    EXPECT_EQ(attributes(side).*kind.most, 5) << kind.word;
    std::vector<void*> made;
    for (void* object = nullptr; made.size() < 10 && (object = kind.make(side)) != nullptr;)
      made.push_back(object);
    EXPECT_EQ(errno, ENOMEM) << kind.word;
    EXPECT_GE(made.size(), 1u) << kind.word << ": the side itself has some";
    EXPECT_LE(made.size(), 5u) << kind.word;
    void* elsewhere = kind.make(other);
    ASSERT_NE(elsewhere, nullptr) << kind.word << ": the other device has room";
    EXPECT_EQ(kind.end(elsewhere), 0);
    ASSERT_FALSE(made.empty());
    EXPECT_EQ(kind.end(made.back()), 0);
    made.back() = kind.make(side);
    EXPECT_NE(made.back(), nullptr) << kind.word << ": the place is free again";
    EXPECT_EQ(kind.make(side), nullptr) << kind.word << ": and taken again";
    for (void* object : made) EXPECT_EQ(kind.end(object), 0) << kind.word;
    Lab::get().inject(std::string("do ") + kind.word + " any");
    EXPECT_GT(attributes(side).*kind.most, 1000) << kind.word;
  }
}

/// A job of 64 processes that all speak to each other over two rails, as one process. The verbs BTL has two
/// queue pairs to each peer on each rail, and two for datagrams.
TEST_F(Limit, QueuePairs_SufficeForSixtyFourProcessesThatAllSpeakOverTwoRails) {
  constexpr size_t kConnections = 64 * 2 * 63 * 2, kDatagrams = 64 * 2 * 2;
  Side side;
  EXPECT_GE(static_cast<size_t>(attributes(side).max_qp), kConnections + kDatagrams);
  const Kind qp = kinds()[4];
  std::vector<void*> made;
  while (made.size() < kConnections + kDatagrams) {
    void* object = qp.make(side);
    if (object == nullptr) break;
    made.push_back(object);
  }
  EXPECT_EQ(made.size(), kConnections + kDatagrams);
  for (void* object : made) EXPECT_EQ(qp.end(object), 0);
}

TEST_F(Limit, FailedCalls_TakeNoRoom) {
  Side side;
  Lab::get().inject("when device=0 do max-qp 2\nwhen verb=create_qp call=1..20 do fail ENOMEM");
  const Kind qp = kinds()[4];
  for (int i = 0; i < 20; ++i) EXPECT_EQ(qp.make(side), nullptr);
  void* made = qp.make(side);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(qp.end(made), 0);
}

TEST_F(Limit, Memlock_CountsPagesOfEveryRegion) {
  Side side;
  const uint64_t have = Lab::get().header().processes[0].pinned.load();
  std::vector<uint8_t> room(9 * kPage);
  auto* pages =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(room.data()) + kPage - 1) & ~(kPage - 1));
  Lab::get().inject("do memlock " + std::to_string(have + 3 * kPage));
  const int access = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* two = ibv_reg_mr(side.pd, pages + kPage - 1, 2, access);
  ASSERT_NE(two, nullptr) << "two bytes on two pages";
  EXPECT_EQ(ibv_reg_mr(side.pd, pages, kPage + 1, access), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* one = ibv_reg_mr(side.pd, pages, kPage, access);
  ASSERT_NE(one, nullptr) << "a smaller one fits";
  EXPECT_EQ(ibv_rereg_mr(one, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages, 3 * kPage, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_dereg_mr(two), 0);
  EXPECT_EQ(ibv_dereg_mr(one), 0);
  EXPECT_EQ(Lab::get().header().processes[0].pinned.load(), have) << "everything was given back";
  ibv_mr* three = ibv_reg_mr(side.pd, pages, 3 * kPage, access);
  ASSERT_NE(three, nullptr);
  ibv_dereg_mr(three);
}

TEST_F(Limit, IsolatedPort_IsActiveAndReachesNobody) {
  LinkOptions link;
  link.retry_cnt = 1;
  SideOptions other_rail;
  other_rail.device = 1;
  Pair p({}, other_rail, link);  // a on softhca0, b on softhca1
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  Lab::get().inject("when device=1 do isolate");
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(p.b.context, 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_FALSE(p.b.wait_event(5).has_value()) << "no event tells of it";
  ASSERT_EQ(p.a.send(2, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
}

TEST_F(Limit, Segments_JoinWhatHasTheSameNumber) {
  LinkOptions link;
  link.retry_cnt = 1;
  SideOptions other_rail;
  other_rail.device = 1;
  Pair p({}, other_rail, link);
  Lab::get().inject("when device=0 do segment 7\nwhen device=1 do segment 7");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  Lab::get().inject("when device=1 do segment 8");
  ASSERT_EQ(p.a.send(2, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
}

TEST_F(Limit, UnreachableDestination_BlocksCreateAhAsAKernelDoes) {
  SideOptions other_rail;
  other_rail.device = 1;
  Side near;
  Side far(other_rail);
  Lab::get().inject("when device=1 do isolate\nwhen verb=create_ah reach=no do block 20ms fail=ETIMEDOUT");
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.dlid = near.lid;
  ibv_ah* ah = ibv_create_ah(near.pd, &attr);
  ASSERT_NE(ah, nullptr) << "its own port";
  ibv_destroy_ah(ah);
  attr.dlid = far.lid;
  EXPECT_EQ(ibv_create_ah(near.pd, &attr), nullptr);
  EXPECT_EQ(errno, ETIMEDOUT);
  Lab::get().inject("when device=1 do segment 0");
  ah = ibv_create_ah(near.pd, &attr);
  ASSERT_NE(ah, nullptr);
  ibv_destroy_ah(ah);
  Lab::get().inject("when device=1 do port-down");
  EXPECT_EQ(ibv_create_ah(near.pd, &attr), nullptr) << "a link that is down answers nobody";
}

}  // namespace
}  // namespace bfo::conformance
