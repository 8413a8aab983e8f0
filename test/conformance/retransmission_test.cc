// SPDX-License-Identifier: BSD-3-Clause
//
// Retransmission on RC: timers, counters, replays. Timers are kTimescale times those of the specification.
#include <chrono>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Retry : public Conformance {
 protected:
  static std::vector<MessageRecord> sent(Opcode opcode) {
    return Lab::get().trace([opcode](const MessageRecord& r) { return is_attempt(r, opcode); });
  }
  static double milliseconds_between(const MessageRecord& first, const MessageRecord& second) {
    return static_cast<double>(second.time_ns - first.time_ns) * 1e-6;
  }
};

TEST_F(Retry, OnlyRcRetransmits) {
  SideOptions uc;
  uc.type = IBV_QPT_UC;
  Pair p(uc);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do drop");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq, 50));
  EXPECT_EQ(sent(Opcode::kSend).size(), 1u);
}

TEST_F(Retry, LostRequest_IsSentAgainAfterTheTimeout) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do drop");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_EQ(sent(Opcode::kSend).size(), 2u);
}

TEST_F(Retry, AckTimeout_LiesBetweenOneAndFourT) {
  LinkOptions link;
  link.timeout = 20;
  link.retry_cnt = 1;
  Pair p({}, link);
  Lab::get().inject("when opcode=WRITE attempt=all do drop");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  const auto attempts = sent(Opcode::kWrite);
  ASSERT_EQ(attempts.size(), 2u);
  const double t_ms = 4.096e-3 * (1 << 20) * kTimescale;
  EXPECT_GE(milliseconds_between(attempts[0], attempts[1]), t_ms * 0.99);
  EXPECT_LE(milliseconds_between(attempts[0], attempts[1]), t_ms * 4 + 100) << "100 ms for a busy machine";
}

TEST_F(Retry, RetryCount_ZeroMeansOneTransmission) {
  LinkOptions link;
  link.retry_cnt = 0;
  Pair p({}, link);
  Lab::get().inject("when opcode=WRITE attempt=all do drop");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(sent(Opcode::kWrite).size(), 1u);
}

TEST_F(Retry, RetryCount_SevenMeansEightTransmissions) {
  Pair p;
  Lab::get().inject("when opcode=WRITE attempt=all do drop");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(sent(Opcode::kWrite).size(), 8u);
}

TEST_F(Retry, RetryCount_StartsAnewAfterAnAcknowledgement) {
  LinkOptions link;
  link.retry_cnt = 2;
  Pair p({}, link);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(p.b.post_recv(i, 0, 64), 0);
  Lab::get().inject("one: when opcode=SEND do drop\ntwo: when opcode=SEND attempt=1 do drop");
  for (uint64_t i = 10; i < 14; ++i) {
    ASSERT_EQ(p.a.send(i, 0, 8), 0);
    EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, i);
  }
}

TEST_F(Retry, TimeoutZero_WaitsForEver) {
  LinkOptions link;
  link.timeout = 0;
  Pair p({}, link);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do drop");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_FALSE(p.a.wait_send(300).has_value());
  EXPECT_EQ(sent(Opcode::kSend).size(), 1u);
}

TEST_F(Retry, TimeoutZero_OutOfSequenceNakStillCounts) {
  LinkOptions link;
  link.timeout = 0;
  link.retry_cnt = 0;
  Pair p({}, link);
  // The first write never arrives, the one after it does and is refused: that is a retry too many.
  Lab::get().inject("when opcode=WRITE message=1 do drop");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  ASSERT_EQ(p.a.send(2, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 2);
}

TEST_F(Retry, OutOfSequenceNak_NeedsNoTimer) {
  LinkOptions link;
  link.timeout = 24;  // 0.7 s even scaled
  Pair p({}, link);
  Lab::get().inject("when opcode=WRITE message=1 do drop");
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  ASSERT_EQ(p.a.send(2, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(600));
  const auto naks = Lab::get().trace([](const MessageRecord& r) {
    return r.opcode == Opcode::kAck && r.syndrome == static_cast<uint8_t>(softhca::AckSyndrome::kSeqErr);
  });
  EXPECT_FALSE(naks.empty());
}

TEST_F(Retry, Rnr_DeliveredOnceAReceiveIsThere) {
  Pair p;
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_FALSE(p.a.wait_send(20).has_value());
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
}

TEST_F(Retry, Rnr_SevenIsForEver) {
  LinkOptions link;
  link.rnr_retry = 7;
  link.min_rnr_timer = 1;
  link.retry_cnt = 0;
  Pair p({}, link);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_FALSE(p.a.wait_send(100).has_value());
  EXPECT_GT(sent(Opcode::kSend).size(), 20u);
  EXPECT_EQ(p.a.state(), IBV_QPS_RTS);
}

TEST_F(Retry, Rnr_CountIsTheRequesters) {
  LinkOptions link;
  link.rnr_retry = 3;
  Pair p({}, link);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RNR_RETRY_EXC_ERR, 2);
  EXPECT_EQ(sent(Opcode::kSend).size(), 4u);
}

/// Time between the first two transmissions when the responder answers RNR with this timer.
double rnr_wait_ms(uint8_t timer) {
  LinkOptions link;
  link.rnr_retry = 1;
  link.min_rnr_timer = timer;
  Pair p({}, link);
  Lab::get().restart_trace();
  EXPECT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_TRUE(p.a.wait_send().has_value());
  const auto attempts = Lab::get().trace([](const MessageRecord& r) { return is_attempt(r, Opcode::kSend); });
  EXPECT_EQ(attempts.size(), 2u);
  return attempts.size() < 2 ? 0 : static_cast<double>(attempts[1].time_ns - attempts[0].time_ns) * 1e-6;
}

TEST_F(Retry, RnrTimerTable_All32Entries) {
  static constexpr double kTableMs[32] = {655.36, .01,   .02,   .03,    .04,    .06,    .08,    .12,
                                          .16,    .24,   .32,   .48,    .64,    .96,    1.28,   1.92,
                                          2.56,   3.84,  5.12,  7.68,   10.24,  15.36,  20.48,  30.72,
                                          40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
  for (uint8_t timer = 0; timer < 32; ++timer) {
    const double waited_ms = rnr_wait_ms(timer);
    EXPECT_GE(waited_ms, kTableMs[timer] * kTimescale * 0.99) << int{timer};
    EXPECT_LE(waited_ms, kTableMs[timer] * kTimescale + 100) << int{timer};
  }
}

TEST_F(Retry, RnrTimerZero_IsTheLongestWait) {
  EXPECT_GE(rnr_wait_ms(0), 655.36 * kTimescale * 0.99);
}

TEST_F(Retry, ReplayedSend_IsAcknowledgedAndNotExecutedAgain) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.post_recv(2, 64, 64), 0);
  Lab::get().inject("when opcode=ACK message=1 do drop");
  p.a.buffer[0] = 1;
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq)) << "executed twice";
  EXPECT_EQ(sent(Opcode::kSend).size(), 2u);
}

TEST_F(Retry, ReplayedWrite_DoesNotTouchMemoryAgain) {
  Pair p;
  Lab::get().inject("when opcode=ACK message=1 do drop\nslow: when opcode=WRITE attempt=1 do delay 30ms");
  p.a.buffer[0] = 1;
  ASSERT_EQ(p.a.send(3, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  for (int i = 0; i < 100 && look(p.b.buffer[0]) != 1; ++i) {
    ibv_wc none;
    ibv_poll_cq(p.a.send_cq, 0, &none);
  }
  ASSERT_EQ(look(p.b.buffer[0]), 1);
  p.b.buffer[0] = 99;  // the application has used the buffer again
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_EQ(p.b.buffer[0], 99);
}

TEST_F(Retry, ReplayedRead_ReadsAgain) {
  Pair p;
  Lab::get().inject("when opcode=ACK message=1 do drop");
  p.b.buffer[0] = 7;
  ASSERT_EQ(p.a.send(3, 100, 8, IBV_WR_RDMA_READ, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_EQ(p.a.buffer[100], 7);
  EXPECT_EQ(sent(Opcode::kRead).size(), 2u);
}

TEST_F(Retry, ReplayedAtomic_ReturnsTheSavedResult) {
  Pair p;
  Lab::get().inject("when opcode=ACK message=1 do drop");
  uint64_t counter = 100;
  memcpy(p.b.buffer.data(), &counter, 8);
  ibv_sge sge = p.a.sge(0, 8);
  ibv_send_wr wr{};
  wr.wr_id = 4;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic.remote_addr = p.b.address(0);
  wr.wr.atomic.rkey = p.b.mr->rkey;
  wr.wr.atomic.compare_add = 5;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 4);
  uint64_t old = 0;
  memcpy(&old, p.a.buffer.data(), 8);
  memcpy(&counter, p.b.buffer.data(), 8);
  EXPECT_EQ(old, 100u);
  EXPECT_EQ(counter, 105u) << "added twice";
  EXPECT_EQ(sent(Opcode::kFetchAdd).size(), 2u);
}

TEST_F(Retry, MaxRdAtomic_StallsTheRequester) {
  LinkOptions link;
  link.max_rd_atomic = 2;
  link.max_dest_rd_atomic = 2;
  Pair p({}, link);
  Lab::get().inject("when opcode=READ do delay 5ms");
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(p.a.send(i, 0, 64, IBV_WR_RDMA_READ, &p.b), 0);
  // More than the responder tracks would be refused: that all succeed shows that the requester holds back.
  for (uint64_t i = 0; i < 6; ++i) EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, i);
}

TEST_F(Retry, Answers_GoToTheAddressOfTheConnection) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  const auto acks = Lab::get().trace([](const MessageRecord& r) { return r.opcode == Opcode::kAck; });
  ASSERT_FALSE(acks.empty());
  EXPECT_EQ(acks[0].dst_qpn, p.a.qpn);
  EXPECT_EQ(acks[0].dst_lid, p.a.lid);
}

TEST_F(Retry, Duplicate_IsExecutedOnce) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.post_recv(2, 0, 64), 0);
  Lab::get().inject("twice: when opcode=SEND message=1 do duplicate");
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq));
  EXPECT_EQ(Lab::get().fired("twice"), 1u);
}

TEST_F(Retry, PsnWrap_OverManyMessages) {
  LinkOptions link;
  link.sq_psn = 0xfffff0;
  Pair p({}, link);
  Lab::get().inject("when opcode=WRITE every=3 do drop");
  for (uint64_t i = 0; i < 40; ++i) {
    p.a.buffer[i] = static_cast<uint8_t>(i + 1);
    ASSERT_EQ(p.a.send(i, static_cast<uint32_t>(i), 1, IBV_WR_RDMA_WRITE, &p.b, static_cast<uint32_t>(i)), 0);
  }
  for (uint64_t i = 0; i < 40; ++i) EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, i);
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), 40), 0);
}

}  // namespace
}  // namespace bfo::conformance
