// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events: each comes, carries the right object, reaches whom it must and nobody else.
#include <arpa/inet.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Event : public Conformance {
 protected:
  /// Puts things right that a test has done to the port; other tests follow in the same fabric.
  void TearDown() override {
    Conformance::TearDown();
    Lab::get().inject("do port-up");
    Side settle;
    settle.wait_event(20);
    Lab::get().clear_rules();
  }

  static void expect_port_event(const char* rule, ibv_event_type type, int port = 1) {
    Side side;
    Lab::get().inject(rule);
    for (int i = 0; i < 50; ++i) {
      const auto event = side.wait_event(100);
      ASSERT_TRUE(event.has_value()) << "no event";
      if (event->event_type != type) continue;
      EXPECT_EQ(event->element.port_num, port);
      return;
    }
    ADD_FAILURE() << "never " << ibv_event_type_str(type);
  }
};

TEST_F(Event, QpFatal_ByRuleOnThatQueuePairOnly) {
  Pair p;
  Lab::get().inject("when qpn=" + std::to_string(p.a.qpn) + " do event QP_FATAL");
  const auto event = p.a.wait_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event->element.qp, p.a.qp);
  EXPECT_FALSE(p.b.wait_event(20).has_value());
}

TEST_F(Event, QpReqErr_InvalidRequest) {
  Pair p;
  Lab::get().inject("when opcode=READ message=1 direction=rx do complete LOC_QP_OP_ERR");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_READ, &p.b), 0);
  p.a.wait_send();
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_REQ_ERR));
}

TEST_F(Event, QpAccessErr_NamesTheQueuePair) {
  Pair p;
  ibv_sge sge = p.a.sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = p.b.address(0);
  wr.wr.rdma.rkey = ~p.b.mr->rkey;
  ASSERT_EQ(p.a.post_send(wr), 0);
  p.a.wait_send();
  for (int i = 0; i < 5; ++i) {
    const auto event = p.b.wait_event();
    ASSERT_TRUE(event.has_value());
    if (event->event_type == IBV_EVENT_COMM_EST) continue;
    EXPECT_EQ(event->event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event->element.qp, p.b.qp);
    return;
  }
}

TEST_F(Event, CommEst_OnceInRtr) {
  Side a;
  Side b;
  LinkOptions link;
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.lid, b.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(b.to_rtr(a.lid, a.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(a.to_rts(link), 0);
  ASSERT_EQ(b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(b.post_recv(2, 0, 64), 0);
  ASSERT_EQ(a.send(3, 0, 8), 0);
  ASSERT_EQ(a.send(4, 0, 8), 0);
  EXPECT_WC(b.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_WC(b.wait_recv(), IBV_WC_SUCCESS, 2);
  const auto event = b.wait_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_COMM_EST);
  EXPECT_FALSE(b.wait_event(20).has_value()) << "it comes once";
  ASSERT_EQ(b.to_rts(link), 0);
}

TEST_F(Event, SqDrained_WhenAllStartedIsAcknowledged) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do delay 20ms");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_SQ_DRAINED));
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  ASSERT_EQ(p.a.to_state(IBV_QPS_RTS), 0);
}

TEST_F(Event, PathMig_ByRule) {
  Pair p;
  const std::string when = "when qpn=" + std::to_string(p.a.qpn);
  Lab::get().inject(when + " do event PATH_MIG");
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_PATH_MIG));
  Lab::get().inject(when + " do event PATH_MIG_ERR");
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_PATH_MIG_ERR));
  EXPECT_EQ(p.a.state(), IBV_QPS_RTS);
}

TEST_F(Event, QpLastWqeReached_QueuePairOnAnSrqInError) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  const auto event = p.b.wait_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event->element.qp, p.b.qp);
}

long open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// A process has the pipe of its events open before there is one.
TEST_F(Event, FirstEvent_OpensNoDescriptor) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  const long before = open_descriptors();
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_LAST_WQE_REACHED));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Event, FirstCompletionEvent_OpensNoDescriptor) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
  const long before = open_descriptors();
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  pollfd fd{p.b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&fd, 1, kDeadlineMs), 1);
  EXPECT_EQ(open_descriptors(), before);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

TEST_F(Event, ClosedDevicesAndChannels_KeepNoDescriptor) {
  Side side;
  const long before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    ibv_context* context = ibv_open_device(side.context->device);
    ASSERT_NE(context, nullptr);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_EQ(open_descriptors(), before);
  }
}

TEST_F(Event, DeviceThatCannotBeOpened_KeepsNoDescriptor) {
  Side side;
  const long before = open_descriptors();
  std::vector<softhca::ContextEntry*> taken;
  for (softhca::ContextEntry& context : Lab::get().header().contexts) {
    uint32_t free = softhca::kContextFree;
    if (context.used.compare_exchange_strong(free, softhca::kContextClaimed)) taken.push_back(&context);
  }
  EXPECT_EQ(ibv_open_device(side.context->device), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  for (softhca::ContextEntry* context : taken) context->used.store(softhca::kContextFree);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Event, CqErr_OverflowKillsEveryQueuePairOnTheQueue) {
  SideOptions small;
  small.cqe = 4;
  small.send_wr = 128;
  small.one_cq = true;
  Pair p(small, {}, {});
  const int capacity = p.a.send_cq->cqe;
  for (int i = 0; i <= capacity + 4; ++i) {
    if (p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b) != 0) break;
  }
  bool cq_err = false;
  bool qp_fatal = false;
  for (int i = 0; i < 20 && !(cq_err && qp_fatal); ++i) {
    const auto event = p.a.wait_event(200);
    if (!event) continue;
    if (event->event_type == IBV_EVENT_CQ_ERR) {
      cq_err = true;
      EXPECT_EQ(event->element.cq, p.a.send_cq);
      EXPECT_FALSE(qp_fatal) << "CQ_ERR comes first";
    }
    if (event->event_type == IBV_EVENT_QP_FATAL) qp_fatal = true;
  }
  EXPECT_TRUE(cq_err);
  EXPECT_TRUE(qp_fatal);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Event, CqErr_ByRule) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do cq-overrun");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_CQ_ERR));
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_QP_FATAL));
}

TEST_F(Event, SrqErr_ByRuleAndItsQueuePairsFollow) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  Lab::get().inject("when qpn=" + std::to_string(p.b.qpn) + " do event SRQ_ERR");
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_SRQ_ERR));
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_FATAL));
  EXPECT_NE(p.b.post_recv(1, 0, 64), 0) << "nothing can be posted to it";
}

TEST_F(Event, SrqLimitReached_OnceUntilArmedAgain) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(p.b.post_recv(i, 0, 64), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 3;
  ASSERT_EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(p.a.send(1, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_SRQ_LIMIT_REACHED));
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_FALSE(p.b.wait_event_of(IBV_EVENT_SRQ_LIMIT_REACHED, 30)) << "one shot";
  ibv_srq_attr now{};
  ASSERT_EQ(ibv_query_srq(p.b.srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 0u);
  ASSERT_EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(p.a.send(4, 0, 8), 0);
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_SRQ_LIMIT_REACHED));
}

TEST_F(Event, PortErr_LeavesQueuePairsAlone) {
  LinkOptions link;
  link.retry_cnt = 1;
  Pair p({}, link);
  Lab::get().inject("when device=0 do port-down");
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_PORT_ERR));
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_PORT_ERR));
  EXPECT_EQ(p.a.state(), IBV_QPS_RTS);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(p.a.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
}

TEST_F(Event, PortActive_AfterThePortCameBack) {
  Pair p;
  Lab::get().inject("when device=0 do port-down for=20ms");
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_PORT_ERR));
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_PORT_ACTIVE));
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(p.a.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_NE(port.lid, 0);
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
}

TEST_F(Event, PortEvents_ReachEveryContextOfThatDeviceOnly) {
  Side first;
  Side second;
  SideOptions other_device;
  other_device.device = 1;
  Side elsewhere(other_device);
  Lab::get().inject("when device=0 do port-down for=10ms");
  for (Side* side : {&first, &second}) {
    const auto event = side->wait_event();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event->element.port_num, 1);
  }
  EXPECT_FALSE(elsewhere.wait_event(20).has_value());
}

TEST_F(Event, LidChange_NewLidIsThere) {
  Side side;
  ibv_port_attr before{};
  ASSERT_EQ(ibv_query_port(side.context, 1, &before), 0);
  Lab::get().inject("when device=0 node=0 do lid 4711");
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_LID_CHANGE));
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
  EXPECT_EQ(port.lid, 4711);
  Lab::get().inject("when device=0 node=0 do lid " + std::to_string(before.lid));
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_LID_CHANGE));
}

TEST_F(Event, PkeyChange_TableHasTheNewKey) {
  Side side;
  Lab::get().inject("when device=0 node=0 do pkey 0x8123");
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_PKEY_CHANGE));
  uint16_t pkey = 0;
  ASSERT_EQ(ibv_query_pkey(side.context, 1, 0, &pkey), 0);
  EXPECT_EQ(ntohs(pkey), 0x8123);
  Lab::get().inject("when device=0 node=0 do pkey 0xffff");
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_PKEY_CHANGE));
}

TEST_F(Event, GidChange_TableHasTheNewGid) {
  Side side;
  ibv_gid before{};
  ASSERT_EQ(ibv_query_gid(side.context, 1, 0, &before), 0);
  Lab::get().inject("when device=0 node=0 do gid 0x1122334455667788");
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_GID_CHANGE));
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(side.context, 1, 0, &gid), 0);
  EXPECT_EQ(be64toh(gid.global.interface_id), 0x1122334455667788u);
  Lab::get().inject("when device=0 node=0 do gid " + std::to_string(be64toh(before.global.interface_id)));
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_GID_CHANGE));
}

TEST_F(Event, SmChange_Comes) {
  expect_port_event("when device=0 do sm-change", IBV_EVENT_SM_CHANGE);
}

TEST_F(Event, ClientReregister_Comes) {
  expect_port_event("when device=0 do client-reregister", IBV_EVENT_CLIENT_REREGISTER);
}

TEST_F(Event, UnacknowledgedEvent_BlocksDestruction) {
  Side side;
  ASSERT_EQ(side.to_init(), 0);
  Lab::get().inject("when qpn=" + std::to_string(side.qpn) + " do event PATH_MIG");
  ibv_async_event event{};
  bool got = false;
  for (int i = 0; i < 500 && !got; ++i) {
    ibv_wc none;
    ibv_poll_cq(side.send_cq, 0, &none);
    got = ibv_get_async_event(side.context, &event) == 0;
    if (!got) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(got);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    ibv_destroy_qp(side.qp);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(destroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
  EXPECT_TRUE(destroyed);
  side.qp = nullptr;
}

}  // namespace
}  // namespace bfo::conformance
