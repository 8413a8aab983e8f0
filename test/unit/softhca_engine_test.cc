// SPDX-License-Identifier: BSD-3-Clause
//
// The engine of the software HCA under virtual time: timers, retries and late writes, to the nanosecond.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/psn.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/qp_fsm.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/tables.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/trace.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kStart = 1'000'000'000;
constexpr uint32_t kPd = 7;
constexpr uint32_t kBufferBytes = 1 << 16;
constexpr uint8_t kTimeout = 10;

/// Two connected RC queue pairs on device 0 of one node, and a clock that only the test moves.
class Engine : public testing::Test {
 protected:
  void SetUp() override { connect(FabricConfig{}); }

  void connect(const FabricConfig& config) {
    fabric_ = Fabric::anonymous(config, 0);
    ASSERT_NE(fabric_, nullptr);
    fabric_->set_clock([](void* now) { return *static_cast<uint64_t*>(now); }, &now_);
    context_ = allocate_context(*fabric_, 0, 0, 0);
    buffer_.assign(kBufferBytes, 0);
    mr_ = allocate_mr(*fabric_);
    mr_->pd = kPd;
    mr_->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    mr_->addr = mr_->iova = reinterpret_cast<uint64_t>(buffer_.data());
    mr_->length = kBufferBytes;
    key_ = index_of(*fabric_, *mr_) << 8 | (mr_->generation & 0xff);
    mr_->key.store(key_);
    a_ = make_qp();
    b_ = make_qp();
    bring_up(*a_, b_->qpn.load());
    bring_up(*b_, a_->qpn.load());
  }

  QpEntry* make_qp() {
    QpEntry* qp = allocate_qp(*fabric_);
    CqEntry* cq = allocate_cq(*fabric_, 64);
    cq->context = index_of(*fabric_, *context_);
    qp->type = IBV_QPT_RC;
    qp->context = cq->context;
    qp->pd = kPd;
    qp->send_cq = qp->recv_cq = index_of(*fabric_, *cq);
    qp->port_index = port_index(0, 0, 1);
    qp->max_send_wr = qp->max_recv_wr = 16;
    qp->max_send_sge = qp->max_recv_sge = 1;
    qp->sq_stride = send_stride(1, 64);
    qp->rq_stride = recv_stride(1);
    qp->sq_mask = qp->rq_mask = 15;
    qp->sq_ring = fabric_->allocate(uint64_t{16} * qp->sq_stride);
    qp->rq_ring = fabric_->allocate(uint64_t{16} * qp->rq_stride);
    return qp;
  }

  void bring_up(QpEntry& qp, uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    ASSERT_EQ(
        modify_qp(*fabric_, qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.rq_psn = attr.sq_psn = 0xffffff;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 14;
    attr.ah_attr.dlid = fabric_->header().ports_table[qp.port_index].lid.load();
    attr.ah_attr.port_num = 1;
    ASSERT_EQ(modify_qp(*fabric_, qp, attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = kTimeout;
    attr.retry_cnt = 2;
    attr.rnr_retry = 1;
    ASSERT_EQ(modify_qp(*fabric_, qp, attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }

  int send(QpEntry& qp, uint64_t id, uint32_t bytes, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer_.data()), bytes, key_};
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(buffer_.data()) + kBufferBytes / 2;
    request.wr.rdma.rkey = key_;
    return post_send(*fabric_, qp, &request, &bad, nullptr);
  }
  int receive(QpEntry& qp, uint64_t id) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer_.data()) + kBufferBytes / 2, kBufferBytes / 2, key_};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    return post_recv(*fabric_, qp, &request, &bad);
  }
  /// One completion; without one, IBV_WC_GENERAL_ERR, which nothing here expects.
  ibv_wc poll(QpEntry& qp) {
    ibv_wc wc{};
    wc.status = IBV_WC_GENERAL_ERR;
    poll_cq(*fabric_, fabric_->header().cqs[qp.send_cq], 1, &wc);
    return wc;
  }
  bool quiet(QpEntry& qp) {
    ibv_wc wc{};
    return poll_cq(*fabric_, fabric_->header().cqs[qp.send_cq], 1, &wc) == 0;
  }
  void rule(const std::string& text) {
    ParseResult parsed = parse_rules(text);
    ASSERT_TRUE(parsed.ok()) << parsed.problems.front().message;
    std::string error;
    ASSERT_TRUE(
        install(fabric_->header().faults, parsed.rules.data(), parsed.rules.size(), false, now_, error))
        << error;
    fabric_->update_hooks();
  }
  /// Sequence NAKs that have left the responder's port.
  uint32_t sequence_naks() {
    uint32_t naks = 0;
    for (const MessageRecord& record : read_all(fabric_->header().trace)) {
      naks += record.opcode == Opcode::kAck && record.direction == Direction::kTx &&
              record.syndrome == static_cast<uint8_t>(AckSyndrome::kSeqErr);
    }
    return naks;
  }
  /// Moves the clock and lets the send queues look at it.
  uint64_t advance_to(uint64_t at) {
    now_ = at;
    uint32_t slots[] = {index_of(*fabric_, *a_), index_of(*fabric_, *b_)};
    return progress_pending(*fabric_, slots, 2);
  }

  uint64_t now_ = kStart;
  std::unique_ptr<Fabric> fabric_;
  ContextEntry* context_ = nullptr;
  MrEntry* mr_ = nullptr;
  uint32_t key_ = 0;
  QpEntry* a_ = nullptr;
  QpEntry* b_ = nullptr;
  std::vector<uint8_t> buffer_;
};

TEST_F(Engine, Send_ArrivesAtOnceAndPsnWrapsAt24Bits) {
  ASSERT_EQ(receive(*b_, 1), 0);
  std::memset(buffer_.data(), 0x5a, 3000);
  ASSERT_EQ(send(*a_, 2, 3000), 0);
  EXPECT_EQ(poll(*a_).status, IBV_WC_SUCCESS);
  ibv_wc wc = poll(*b_);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 3000u);
  EXPECT_EQ(buffer_[kBufferBytes / 2 + 2999], 0x5a);
  EXPECT_EQ(b_->expected_psn, 2u) << "three packets from 0xffffff";
}

TEST_F(Engine, LostMessage_FailsAfterRetryCountPlusOneTimeouts) {
  rule("when opcode=WRITE attempt=all do drop");
  ASSERT_EQ(send(*a_, 1, 64, IBV_WR_RDMA_WRITE), 0);
  uint64_t timeout = ack_timeout_ns(kTimeout);
  EXPECT_EQ(timeout, 4096u << kTimeout);
  for (int tries = 0; tries < 3; ++tries) {
    EXPECT_EQ(advance_to(now_), kStart + (tries + 1) * timeout);
    advance_to(kStart + (tries + 1) * timeout - 1);
    EXPECT_TRUE(quiet(*a_)) << "try " << tries;
    advance_to(kStart + (tries + 1) * timeout);
  }
  EXPECT_EQ(poll(*a_).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(a_->state.load(), IBV_QPS_ERR);
  EXPECT_EQ(b_->state.load(), IBV_QPS_RTS);
}

TEST_F(Engine, ReceiverNotReady_WaitsAsLongAsTheRespondersTimerSays) {
  ASSERT_EQ(send(*a_, 1, 8), 0);
  uint64_t wait = rnr_wait_ns(14);
  EXPECT_EQ(wait, 1'280'000u);
  advance_to(kStart + wait - 1);
  ASSERT_EQ(receive(*b_, 2), 0);
  EXPECT_TRUE(quiet(*a_));
  advance_to(kStart + wait);
  EXPECT_EQ(poll(*a_).status, IBV_WC_SUCCESS);
  EXPECT_EQ(poll(*b_).wr_id, 2u);
}

TEST_F(Engine, ReceiverNeverReady_LetsThePosterGoOnASlowMachine) {
  // Every look at the clock takes longer than the RNR timer; the clock stops when somebody looks for ever.
  struct SlowClock {
    uint64_t now = kStart;
    uint32_t looks = 0;
  } slow;
  constexpr uint32_t kForEver = 10'000;
  fabric_->set_clock(
      [](void* argument) {
        auto* clock = static_cast<SlowClock*>(argument);
        return ++clock->looks < kForEver ? clock->now += rnr_wait_ns(0) : clock->now;
      },
      &slow);
  a_->attr.rnr_retry = 7;  // for ever
  ASSERT_EQ(send(*a_, 1, 64), 0);
  EXPECT_LT(slow.looks, kForEver);
  EXPECT_TRUE(quiet(*a_));
  ASSERT_EQ(receive(*b_, 2), 0);
  advance_to(now_);
  EXPECT_EQ(poll(*a_).status, IBV_WC_SUCCESS);
}

TEST_F(Engine, RnrTimerTable_HasZeroAsTheLongestWait) {
  EXPECT_EQ(rnr_wait_ns(0), 655'360'000u);
  EXPECT_EQ(rnr_wait_ns(1), 10'000u);
  EXPECT_EQ(rnr_wait_ns(31), 491'520'000u);
  for (uint8_t i = 1; i < 32; ++i) EXPECT_LT(rnr_wait_ns(i), rnr_wait_ns(0));
}

TEST_F(Engine, RateAndLatency_DecideWhenAMessageArrives) {
  FabricConfig config;
  config.rate = 1'000'000'000;  // 1 byte per ns
  config.latency_ns = 5'000;
  connect(config);
  ASSERT_EQ(send(*a_, 1, 20'000, IBV_WR_RDMA_WRITE), 0);
  buffer_[0] = 0x77;
  EXPECT_EQ(advance_to(kStart + 24'999), kStart + 25'000);
  EXPECT_EQ(buffer_[kBufferBytes / 2], 0);
  EXPECT_EQ(advance_to(kStart + 25'000), kStart + 30'000) << "the answer takes the latency once more";
  EXPECT_EQ(buffer_[kBufferBytes / 2], 0x77);
  EXPECT_TRUE(quiet(*a_));
  advance_to(kStart + 30'000);
  EXPECT_EQ(poll(*a_).status, IBV_WC_SUCCESS);
}

TEST_F(Engine, LateWrite_LandsAfterItsRequesterHasGivenUp) {
  rule("when opcode=WRITE message=1 do late-write 1s");
  buffer_[0] = 0x33;
  ASSERT_EQ(send(*a_, 1, 64, IBV_WR_RDMA_WRITE), 0);
  uint64_t timeout = ack_timeout_ns(kTimeout);
  for (int tries = 0; tries <= 3; ++tries) advance_to(kStart + tries * timeout);
  EXPECT_EQ(poll(*a_).status, IBV_WC_RETRY_EXC_ERR);
  buffer_[0] = 0x44;  // the data left when it was sent
  now_ = kStart + 999'999'999;
  topology_tick(*fabric_, now_);
  EXPECT_EQ(buffer_[kBufferBytes / 2], 0);
  now_ = kStart + 1'000'000'000;
  topology_tick(*fabric_, now_);
  EXPECT_EQ(buffer_[kBufferBytes / 2], 0x33);
}

TEST_F(Engine, LateWrite_IsRefusedOnceTheResponderIsInErr) {
  rule("when opcode=WRITE message=1 do late-write 1s");
  buffer_[0] = 0x33;
  ASSERT_EQ(send(*a_, 1, 64, IBV_WR_RDMA_WRITE), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(modify_qp(*fabric_, *b_, attr, IBV_QP_STATE), 0);
  now_ = kStart + 1'000'000'000;
  topology_tick(*fabric_, now_);
  EXPECT_EQ(buffer_[kBufferBytes / 2], 0);
}

TEST_F(Engine, DropAck_IsNotCoveredByALaterOne) {
  rule("when opcode=WRITE message=1 do drop-ack");
  ASSERT_EQ(send(*a_, 1, 64, IBV_WR_RDMA_WRITE), 0);
  ASSERT_EQ(send(*a_, 2, 64, IBV_WR_RDMA_WRITE), 0);
  EXPECT_TRUE(quiet(*a_));
}

TEST_F(Engine, DroppedAck_IsCoveredByALaterOne) {
  rule("when opcode=ACK message=1 do drop");
  ASSERT_EQ(send(*a_, 1, 64, IBV_WR_RDMA_WRITE), 0);
  EXPECT_TRUE(quiet(*a_));
  ASSERT_EQ(send(*a_, 2, 64, IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(poll(*a_).wr_id, 1u);
  EXPECT_EQ(poll(*a_).wr_id, 2u);
}

TEST_F(Engine, Gap_IsRefusedOnceUntilWhatIsMissingArrives) {
  restart(fabric_->header().trace, true);
  rule(
      "when opcode=WRITE message=1 attempt=first do drop\nagain: when opcode=WRITE message=1 attempt=1 do "
      "drop");
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(send(*a_, id, 64, IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(sequence_naks(), 1u);
  EXPECT_EQ(a_->retries, 1u);
  EXPECT_TRUE(quiet(*a_)) << "the request was lost twice: only the timer helps";
  // The timer runs from the first look after the loss.
  advance_to(kStart + 1);
  advance_to(kStart + 1 + ack_timeout_ns(kTimeout));
  for (uint64_t id = 1; id <= 4; ++id) {
    const ibv_wc wc = poll(*a_);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, id);
  }
  EXPECT_EQ(sequence_naks(), 1u);
  // The next gap is another one.
  rule("when opcode=WRITE message=1 attempt=first do drop");
  for (uint64_t id = 5; id <= 6; ++id) ASSERT_EQ(send(*a_, id, 64, IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(sequence_naks(), 2u);
}

TEST(Psn, Distance_IsSignedModulo2To24) {
  EXPECT_EQ(psn_distance(0, 0xffffff), 1);
  EXPECT_EQ(psn_distance(0xffffff, 0), -1);
  EXPECT_EQ(psn_distance(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(psn_distance(0x800000, 0), -0x800000);
  EXPECT_EQ(packets_of(0, 1024), 1u);
  EXPECT_EQ(packets_of(1025, 1024), 2u);
}

TEST(QpTransitions, EveryRowNeedsWhatItRequiresAndTakesNothingElse) {
  for (const Transition& row : qp_transitions()) {
    EXPECT_TRUE(transition_allowed(row.type, row.from, row.to, IBV_QP_STATE | row.required));
    EXPECT_TRUE(transition_allowed(row.type, row.from, row.to, IBV_QP_STATE | row.required | row.optional));
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
      if (bit == IBV_QP_STATE) continue;
      if ((row.required & bit) != 0) {
        EXPECT_FALSE(transition_allowed(row.type, row.from, row.to, row.required & ~bit)) << bit;
      } else if ((row.optional & bit) == 0) {
        EXPECT_FALSE(transition_allowed(row.type, row.from, row.to, row.required | bit)) << bit;
      }
    }
  }
}

}  // namespace
}  // namespace bfo::softhca
