// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of control verbs: a rule with verb= makes the call sleep, fail, or both, the way a kernel does; the
// data path of the process goes on meanwhile.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class VerbFault : public Conformance {
 protected:
  void TearDown() override {
    Lab::get().clear_rules();
    Conformance::TearDown();
  }

  static ibv_qp* create_qp(const Side& side, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attr{};
    attr.send_cq = side.send_cq;
    attr.recv_cq = side.recv_cq;
    attr.qp_type = type;
    attr.cap = {4, 4, 1, 1, 0};
    return ibv_create_qp(side.pd, &attr);
  }

  static ibv_ah* create_ah(const Side& side, uint16_t dlid) {
    ibv_ah_attr attr{};
    attr.dlid = dlid;
    attr.port_num = 1;
    return ibv_create_ah(side.pd, &attr);
  }
};

/// One verb, and how a call of it says that it failed: the errno, 0 for success.
struct Call {
  const char* verb;
  std::function<int()> run;
};

int of_pointer(const void* result) {
  return result == nullptr ? errno : 0;
}
int of_minus_one(int result) {
  return result == -1 ? errno : result == 0 ? 0 : -1;
}

/// A call of every verb that needs only an open side. Each leaves the side as it was, whether it fails or
/// not.
std::vector<Call> calls_on(Side& side) {
  ibv_context* context = side.context;
  return {
      {"get_device_list",
       [] {
         ibv_device** list = ibv_get_device_list(nullptr);
         const int why = of_pointer(list);
         if (list != nullptr) ibv_free_device_list(list);
         return why;
       }},
      {"open_device",
       [context] {
         ibv_context* second = ibv_open_device(context->device);
         const int why = of_pointer(second);
         if (second != nullptr) ibv_close_device(second);
         return why;
       }},
      {"query_device",
       [context] {
         ibv_device_attr attr;
         return ibv_query_device(context, &attr);
       }},
      {"query_device",
       [context] {
         ibv_device_attr_ex attr;
         return ibv_query_device_ex(context, nullptr, &attr);
       }},
      {"query_port",
       [context] {
         ibv_port_attr attr;
         return ibv_query_port(context, 1, &attr);
       }},
      {"query_port_speed",
       [context] {
         using Query = int (*)(ibv_context*, uint32_t, uint64_t*);
         uint64_t speed;
         return reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "ibv_query_port_speed"))(context, 1, &speed);
       }},
      {"query_gid",
       [context] {
         ibv_gid gid;
         return of_minus_one(ibv_query_gid(context, 1, 0, &gid));
       }},
      {"query_gid",
       [context] {
         ibv_gid_entry entry;
         return ibv_query_gid_ex(context, 1, 0, &entry, 0);
       }},
      {"query_gid",
       [context] {
         ibv_gid_entry table[64];
         const ssize_t got = ibv_query_gid_table(context, table, 64, 0);
         return got < 0 ? static_cast<int>(-got) : 0;
       }},
      {"query_pkey",
       [context] {
         __be16 key;
         return of_minus_one(ibv_query_pkey(context, 1, 0, &key));
       }},
      {"alloc_pd",
       [context] {
         ibv_pd* pd = ibv_alloc_pd(context);
         const int why = of_pointer(pd);
         if (pd != nullptr) ibv_dealloc_pd(pd);
         return why;
       }},
      {"reg_mr",
       [&side] {
         ibv_mr* mr = ibv_reg_mr(side.pd, side.buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
         const int why = of_pointer(mr);
         if (mr != nullptr) ibv_dereg_mr(mr);
         return why;
       }},
      {"alloc_mw",
       [&side] {
         ibv_mw* mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1);
         const int why = of_pointer(mw);
         if (mw != nullptr) ibv_dealloc_mw(mw);
         return why;
       }},
      {"create_comp_channel",
       [context] {
         ibv_comp_channel* channel = ibv_create_comp_channel(context);
         const int why = of_pointer(channel);
         if (channel != nullptr) ibv_destroy_comp_channel(channel);
         return why;
       }},
      {"create_cq",
       [context] {
         ibv_cq* cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
         const int why = of_pointer(cq);
         if (cq != nullptr) ibv_destroy_cq(cq);
         return why;
       }},
      {"create_cq",
       [context] {
         ibv_cq_init_attr_ex attr{};
         attr.cqe = 8;
         ibv_cq_ex* cq = ibv_create_cq_ex(context, &attr);
         const int why = of_pointer(cq);
         if (cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
         return why;
       }},
      {"resize_cq", [&side] { return ibv_resize_cq(side.send_cq, 300); }},
      {"create_srq",
       [&side] {
         ibv_srq_init_attr attr{};
         attr.attr = {4, 1, 0};
         ibv_srq* srq = ibv_create_srq(side.pd, &attr);
         const int why = of_pointer(srq);
         if (srq != nullptr) ibv_destroy_srq(srq);
         return why;
       }},
      {"query_qp",
       [&side] {
         ibv_qp_attr attr;
         ibv_qp_init_attr init;
         return ibv_query_qp(side.qp, &attr, IBV_QP_STATE, &init);
       }},
      {"modify_qp", [&side] { return side.to_state(IBV_QPS_RESET); }},
      {"create_qp",
       [&side] {
         ibv_qp_init_attr attr{};
         attr.send_cq = attr.recv_cq = side.send_cq;
         attr.qp_type = IBV_QPT_RC;
         attr.cap = {4, 4, 1, 1, 0};
         ibv_qp* qp = ibv_create_qp(side.pd, &attr);
         const int why = of_pointer(qp);
         if (qp != nullptr) ibv_destroy_qp(qp);
         return why;
       }},
      {"create_ah",
       [&side] {
         ibv_ah_attr attr{};
         attr.dlid = side.lid;
         attr.port_num = 1;
         ibv_ah* ah = ibv_create_ah(side.pd, &attr);
         const int why = of_pointer(ah);
         if (ah != nullptr) ibv_destroy_ah(ah);
         return why;
       }},
  };
}

/// The verbs that end or change an object: `run` is called until it succeeds.
std::vector<Call> calls_that_end(Side& side) {
  struct Objects {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_mr* mr = nullptr;
    ibv_mw* mw = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_srq* srq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_qp* ud = nullptr;
    ibv_ah* ah = nullptr;
    ibv_gid group{};
  };
  auto o = std::make_shared<Objects>();
  o->context = ibv_open_device(side.context->device);
  o->pd = ibv_alloc_pd(side.context);
  o->mr = ibv_reg_mr(side.pd, side.buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  o->mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1);
  o->channel = ibv_create_comp_channel(side.context);
  o->cq = ibv_create_cq(side.context, 8, nullptr, nullptr, 0);
  ibv_srq_init_attr srq{};
  srq.attr = {4, 1, 0};
  o->srq = ibv_create_srq(side.pd, &srq);
  ibv_qp_init_attr qp{};
  qp.send_cq = qp.recv_cq = side.send_cq;
  qp.qp_type = IBV_QPT_RC;
  qp.cap = {4, 4, 1, 1, 0};
  o->qp = ibv_create_qp(side.pd, &qp);
  qp.qp_type = IBV_QPT_UD;
  o->ud = ibv_create_qp(side.pd, &qp);
  ibv_ah_attr ah{};
  ah.dlid = side.lid;
  ah.port_num = 1;
  o->ah = ibv_create_ah(side.pd, &ah);
  o->group.raw[0] = 0xff;
  uint8_t* memory = side.buffer.data();
  return {
      {"attach_mcast", [o] { return ibv_attach_mcast(o->ud, &o->group, 0xc000); }},
      {"detach_mcast", [o] { return ibv_detach_mcast(o->ud, &o->group, 0xc000); }},
      {"modify_srq",
       [o] {
         ibv_srq_attr attr{4, 1, 1};
         return ibv_modify_srq(o->srq, &attr, IBV_SRQ_LIMIT);
       }},
      {"query_srq",
       [o] {
         ibv_srq_attr attr;
         return ibv_query_srq(o->srq, &attr);
       }},
      {"rereg_mr",
       [o, memory] {
         const int result = ibv_rereg_mr(o->mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory, 8192, 0);
         return result == 0 ? 0 : result == IBV_REREG_MR_ERR_CMD ? errno : -1;
       }},
      {"destroy_ah", [o] { return ibv_destroy_ah(o->ah); }},
      {"destroy_qp", [o] { return ibv_destroy_qp(o->qp); }},
      {"destroy_qp", [o] { return ibv_destroy_qp(o->ud); }},
      {"destroy_srq", [o] { return ibv_destroy_srq(o->srq); }},
      {"destroy_cq", [o] { return ibv_destroy_cq(o->cq); }},
      {"destroy_comp_channel", [o] { return ibv_destroy_comp_channel(o->channel); }},
      {"dealloc_mw", [o] { return ibv_dealloc_mw(o->mw); }},
      {"dereg_mr", [o] { return ibv_dereg_mr(o->mr); }},
      {"dealloc_pd", [o] { return ibv_dealloc_pd(o->pd); }},
      {"close_device", [o] { return of_minus_one(ibv_close_device(o->context)); }},
  };
}

/// Every verb of the language, in the order in which they can be called.
std::vector<Call> every_call(Side& side) {
  std::vector<Call> calls = calls_on(side);
  for (Call& call : calls_that_end(side)) calls.push_back(call);
  return calls;
}

TEST_F(VerbFault, Fail_EveryVerbReportsTheErrorItsOwnWayAndThenWorks) {
  Side side;
  for (const Call& call : every_call(side)) {
    Lab::get().clear_rules();
    Lab::get().inject(std::string("when verb=") + call.verb + " device=any call=1 do fail ENOSPC");
    EXPECT_EQ(call.run(), ENOSPC) << call.verb;
    EXPECT_EQ(call.run(), 0) << call.verb << ": nothing was done, so it can be called again";
  }
}

TEST_F(VerbFault, Block_EveryVerbSleepsAndThenWorks) {
  Side side;
  for (const Call& call : every_call(side)) {
    Lab::get().clear_rules();
    Lab::get().inject(std::string("b: when verb=") + call.verb + " call=1 do block 20ms");
    const auto begin = Clock::now();
    EXPECT_EQ(call.run(), 0) << call.verb;
    EXPECT_GE(Clock::now() - begin, milliseconds(20)) << call.verb;
    EXPECT_EQ(Lab::get().fired("b"), 1u) << call.verb;
  }
}

TEST_F(VerbFault, BlockThenFail_IsWhatAKernelDoesForAnUnresolvableNeighbour) {
  Side near;
  SideOptions other_rail;
  other_rail.device = 1;
  Side far(other_rail);
  Lab::get().inject("when verb=create_ah device=1 do block 30ms fail=ETIMEDOUT");
  const auto begin = Clock::now();
  EXPECT_EQ(of_pointer(create_ah(far, far.lid)), ETIMEDOUT);
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
  ibv_ah* ah = create_ah(near, near.lid);
  ASSERT_NE(ah, nullptr) << "the other device is not concerned";
  ibv_destroy_ah(ah);
}

TEST_F(VerbFault, Ordinals_HitTheNthCallOfThatKindOnly) {
  Side side;
  Lab::get().inject("when verb=create_qp service=UD call=2 do fail ENOMEM");
  ibv_qp* first = create_qp(side, IBV_QPT_UD);
  ibv_qp* rc = create_qp(side, IBV_QPT_RC);
  EXPECT_EQ(of_pointer(create_qp(side, IBV_QPT_UD)), ENOMEM);
  ibv_qp* third = create_qp(side, IBV_QPT_UD);
  for (ibv_qp* qp : {first, rc, third}) {
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
}

TEST_F(VerbFault, Size_SelectsLargeRegions) {
  Side side;
  Lab::get().inject("when verb=reg_mr size>=64K do fail ENOMEM");
  const int access = IBV_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(of_pointer(ibv_reg_mr(side.pd, side.buffer.data(), 64 << 10, access)), ENOMEM);
  ibv_mr* small = ibv_reg_mr(side.pd, side.buffer.data(), (64 << 10) - 1, access);
  ASSERT_NE(small, nullptr);
  ibv_dereg_mr(small);
}

TEST_F(VerbFault, ModifyQp_IsSelectedByStateAndPeer) {
  Side side;
  ASSERT_EQ(side.to_init(), 0);
  Lab::get().inject("when verb=modify_qp state=RTR peer=0 do fail ETIMEDOUT");
  EXPECT_EQ(side.to_rtr(side.lid, side.qpn, 0), ETIMEDOUT);
  EXPECT_EQ(side.state(), IBV_QPS_INIT) << "a call that failed changes nothing";
  Lab::get().clear_rules();
  Lab::get().inject(
      "when verb=modify_qp state=RTR peer=7 do fail ETIMEDOUT\nwhen verb=modify_qp state=RTS do fail EIO");
  EXPECT_EQ(side.to_rtr(side.lid, side.qpn, 0), 0);
  EXPECT_EQ(side.to_rts(), EIO);
}

TEST_F(VerbFault, ActionOnTheWorld_HappensWhereTheVerbWasCalled) {
  SideOptions other_rail;
  other_rail.device = 1;
  Side side(other_rail);
  Lab::get().inject("when verb=create_qp call=2 do port-down for=1ms");
  ibv_qp* first = create_qp(side);
  EXPECT_FALSE(side.wait_event(5).has_value());
  ibv_qp* second = create_qp(side);
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_PORT_ERR));
  EXPECT_TRUE(side.wait_event_of(IBV_EVENT_PORT_ACTIVE));
  ibv_destroy_qp(first);
  ibv_destroy_qp(second);
}

/// Calls the verb in a thread of its own, where it blocks, and writes over both pairs meanwhile. Returns how
/// many transfers ended while the verb still slept.
unsigned transfers_during(const Call& call, const char* how_long, std::initializer_list<Pair*> pairs) {
  Lab::get().clear_rules();
  Lab::get().inject(std::string("b: when verb=") + call.verb + " call=1 do block " + how_long);
  std::atomic<bool> done{false};
  int result = -1;
  std::thread blocked([&] {
    result = call.run();
    done.store(true);
  });
  while (Lab::get().fired("b") == 0 && !done.load()) std::this_thread::yield();
  unsigned transfers = 0;
  for (Pair* pair : pairs) {
    EXPECT_EQ(pair->a.send(1, 0, 4096, IBV_WR_RDMA_WRITE, &pair->b), 0);
    const auto wc = pair->a.wait_send();
    EXPECT_TRUE(wc.has_value() && wc->status == IBV_WC_SUCCESS) << call.verb;
    if (!done.load()) ++transfers;
  }
  blocked.join();
  EXPECT_EQ(result, 0) << call.verb;
  return transfers;
}

/// While one thread is inside a blocked verb, another moves data on the same device and on the other one. On
/// a loaded machine the short sleep may be over first; the long one is not.
TEST_F(VerbFault, BlockedVerb_StopsNoOtherThread) {
  SideOptions other_rail;
  other_rail.device = 1;
  Pair same({}, {});
  Pair other(other_rail, {});
  std::string stopped;
  for (const char* how_long : {"50ms", "1s"}) {
    Side victim;
    stopped.clear();
    for (const Call& call : every_call(victim)) {
      if (transfers_during(call, how_long, {&same, &other}) != 2) stopped += std::string(" ") + call.verb;
    }
    if (stopped.empty()) break;
  }
  EXPECT_EQ(stopped, "") << "these verbs stopped the transfers of another thread";
}

}  // namespace
}  // namespace bfo::conformance
