// SPDX-License-Identifier: BSD-3-Clause
//
// The fault actions: each does to memory, order and time what contrib/softhca/README.md says.
#include <algorithm>
#include <chrono>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

using Clock = std::chrono::steady_clock;

class Fault : public Conformance {
 protected:
  void TearDown() override {
    Conformance::TearDown();
    Lab::get().inject("do rate 0\ndo port-up");
    Side settle;
    settle.wait_event(5);
    Lab::get().clear_rules();
  }

  static LinkOptions impatient() {
    LinkOptions link;
    link.retry_cnt = 1;
    return link;
  }

  static void fill(Side& side, uint32_t length) {
    for (uint32_t i = 0; i < length; ++i) side.buffer[i] = static_cast<uint8_t>(i % 251 + 1);
  }

  static bool becomes(Side& poller, const uint8_t& byte, uint8_t value, int timeout_ms = kDeadlineMs) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    while (Clock::now() < deadline) {
      ibv_wc none;
      ibv_poll_cq(poller.send_cq, 0, &none);
      if (look(byte) == value) return true;
    }
    return false;
  }

  static size_t count(Verdict verdict) {
    return Lab::get().trace([verdict](const MessageRecord& r) { return r.verdict == verdict; }).size();
  }

  static bool wait_for(Side& poller, Verdict verdict) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(kDeadlineMs);
    while (Clock::now() < deadline && count(verdict) == 0) poller.quiet(poller.send_cq, 2);
    return count(verdict) != 0;
  }
};

TEST_F(Fault, Drop_LosesOnlyWhatComesAfterTheOffset) {
  Pair p({}, impatient());
  fill(p.a, 8192);
  Lab::get().inject("when opcode=WRITE offset=50% attempt=all do drop");
  ASSERT_EQ(p.a.send(1, 0, 8192, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), 4096), 0);
  EXPECT_EQ(std::count(p.b.buffer.begin() + 4096, p.b.buffer.begin() + 8192, 0), 4096);
}

TEST_F(Fault, DropAck_IsExecutedAndTheSenderFails) {
  Pair p({}, impatient());
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do drop-ack");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
}

TEST_F(Fault, DropAck_IsNotHealedByTheAnswersToLaterRequests) {
  Pair p({}, impatient());
  Lab::get().inject("when opcode=WRITE message=2 do drop-ack");
  fill(p.a, 64);
  for (uint64_t id = 1; id <= 4; ++id)
    ASSERT_EQ(p.a.send(id, (id - 1) * 8, 8, IBV_WR_RDMA_WRITE, &p.b, (id - 1) * 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 3);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 4);
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), 32), 0) << "all of it has arrived";
}

TEST_F(Fault, LateWrite_LandsAfterItsSenderGaveUp) {
  Pair p({}, impatient());
  fill(p.a, 64);
  Lab::get().inject("when opcode=WRITE message=1 do late-write 60ms");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(look(p.b.buffer[0]), 0) << "not yet";
  p.a.buffer[0] = 99;  // the sender uses its buffer again: what travels is the old content
  EXPECT_TRUE(becomes(p.b, p.b.buffer[0], 1)) << Lab::get().trace_text();
  EXPECT_EQ(count(Verdict::kReleased), 1u);
}

TEST_F(Fault, LateWrite_IsHeldUntilReleased) {
  Pair p({}, impatient());
  fill(p.a, 64);
  Lab::get().inject("when opcode=WRITE message=1 do late-write");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_FALSE(becomes(p.b, p.b.buffer[0], 1, 100));
  Lab::get().inject("do release");
  EXPECT_TRUE(becomes(p.b, p.b.buffer[0], 1));
}

TEST_F(Fault, LateWrite_IsRefusedByAQueuePairInError) {
  Pair p({}, impatient());
  fill(p.a, 64);
  Lab::get().inject("when opcode=WRITE message=1 do late-write 40ms");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(wait_for(p.b, Verdict::kReleasedDropped)) << Lab::get().trace_text();
  EXPECT_EQ(look(p.b.buffer[0]), 0);
}

TEST_F(Fault, LateWrite_IsRefusedAfterTheQueuePairIsGone) {
  Pair p({}, impatient());
  fill(p.a, 64);
  Lab::get().inject("when opcode=WRITE message=1 do late-write 40ms");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  p.b.destroy_qp();
  EXPECT_TRUE(wait_for(p.b, Verdict::kReleasedDropped)) << Lab::get().trace_text();
  EXPECT_EQ(look(p.b.buffer[0]), 0);
}

TEST_F(Fault, LateWrite_IsRefusedWhenItsRegionIsGone) {
  Pair p({}, impatient());
  fill(p.a, 64);
  std::vector<uint8_t> memory(4096);
  ibv_mr* mr = ibv_reg_mr(p.b.pd, memory.data(), memory.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  Lab::get().inject("when opcode=WRITE message=1 do late-write 40ms");
  ibv_sge sge = p.a.sge(0, 64);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memory.data());
  wr.wr.rdma.rkey = mr->rkey;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 0);
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_TRUE(wait_for(p.b, Verdict::kReleasedDropped));
  EXPECT_EQ(memory[0], 0);
}

TEST_F(Fault, Delay_KeepsTheOrderOfTheQueuePair) {
  Pair p;
  Lab::get().inject("when opcode=WRITE message=1 do delay 30ms");
  const auto start = Clock::now();
  fill(p.a, 2);
  ASSERT_EQ(p.a.send(1, 0, 1, IBV_WR_RDMA_WRITE, &p.b, 0), 0);
  ASSERT_EQ(p.a.send(2, 1, 1, IBV_WR_RDMA_WRITE, &p.b, 0), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(29));
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_EQ(p.b.buffer[0], 2) << "the second write is the last one";
}

TEST_F(Fault, Reorder_LetsAnotherQueuePairOvertake) {
  Pair slow;
  Pair fast;
  Lab::get().inject("when qpn=" + std::to_string(slow.a.qpn) + " opcode=WRITE message=1 do reorder 50ms");
  fill(slow.a, 1);
  fill(fast.a, 1);
  ASSERT_EQ(slow.a.send(1, 0, 1, IBV_WR_RDMA_WRITE, &slow.b), 0);
  ASSERT_EQ(fast.a.send(2, 0, 1, IBV_WR_RDMA_WRITE, &fast.b), 0);
  EXPECT_WC(fast.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_EQ(look(slow.b.buffer[0]), 0);
  EXPECT_WC(slow.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_EQ(slow.b.buffer[0], 1);
}

TEST_F(Fault, Duplicate_IsSeenTwiceOnTheWire) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do duplicate");
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  const auto copies =
      Lab::get().trace([](const MessageRecord& r) { return (r.flags & softhca::kRecordDuplicate) != 0; });
  EXPECT_EQ(copies.size(), 1u);
}

TEST_F(Fault, Corrupt_ChangesOneByteUnnoticed) {
  Pair p;
  fill(p.a, 4096);
  Lab::get().inject("when opcode=WRITE offset=1000 do corrupt xor=0x40");
  ASSERT_EQ(p.a.send(1, 0, 4096, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  for (uint32_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(p.b.buffer[i], i == 1000 ? p.a.buffer[i] ^ 0x40 : p.a.buffer[i]) << i;
  }
}

TEST_F(Fault, Complete_SendsNothing) {
  Pair p;
  fill(p.a, 8);
  Lab::get().inject("when opcode=WRITE message=1 do complete REM_OP_ERR");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 1);
  EXPECT_EQ(look(p.b.buffer[0]), 0);
}

TEST_F(Fault, OneWay_LosesRequestsAndAcknowledgementsOfThatDirection) {
  Pair p({}, impatient());
  fill(p.b, 8);
  Lab::get().inject("when qpn=" + std::to_string(p.a.qpn) + " do one-way");
  ASSERT_EQ(p.b.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.a), 0);
  EXPECT_WC(p.b.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(p.a.buffer[0], 1) << "towards that queue pair data still flows";
  ASSERT_EQ(p.a.send(2, 100, 8, IBV_WR_RDMA_WRITE, &p.b, 100), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
}

TEST_F(Fault, PortDown_CutsTheMessageThatFiredIt) {
  Pair p({}, impatient());
  fill(p.a, 65536);
  Lab::get().inject("when size>=16K offset=50% do port-down");
  ASSERT_EQ(p.a.send(1, 0, 65536, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), 32768), 0);
  EXPECT_EQ(std::count(p.b.buffer.begin() + 32768, p.b.buffer.begin() + 65536, 0), 32768);
}

TEST_F(Fault, PortDown_ForATimeCostsNoConnection) {
  Pair p;  // 8 transmissions, 1 to 4 times 0.7 ms apart
  LinkOptions patient;
  patient.timeout = 18;
  Pair q({}, patient);
  Lab::get().inject("when qpn=" + std::to_string(q.a.qpn) + " message=1 do port-down for=20ms");
  ASSERT_EQ(q.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &q.b), 0);
  EXPECT_WC(q.a.wait_send(), IBV_WC_SUCCESS, 1);
}

TEST_F(Fault, Rate_SlowsThePort) {
  Pair p;
  Lab::get().inject("when device=0 do rate 10");
  const auto start = Clock::now();
  ASSERT_EQ(p.a.send(1, 0, 500'000, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(45));
  Lab::get().inject("when device=0 do rate 0");
}

TEST_F(Fault, LidChange_LeavesOldAddressesStale) {
  Pair p({}, impatient());
  const uint16_t old_lid = p.b.lid;
  Lab::get().inject("when device=0 node=0 do lid 4711");
  ASSERT_TRUE(p.a.wait_event_of(IBV_EVENT_LID_CHANGE));
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  Lab::get().inject("when device=0 node=0 do lid " + std::to_string(old_lid));
  EXPECT_TRUE(p.a.wait_event_of(IBV_EVENT_LID_CHANGE));
}

TEST_F(Fault, SpentRule_LeavesTheFastPath) {
  Pair p;
  Lab::get().inject("when opcode=WRITE message=1 do drop");
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_FALSE(softhca::armed(Lab::get().header().faults));
}

}  // namespace
}  // namespace bfo::conformance
