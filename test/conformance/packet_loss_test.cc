// SPDX-License-Identifier: BSD-3-Clause
//
// Packets that are lost: every message arrives, and the counters of the ports tell how many were missing, and
// which way they went. They are read as a program reads them that knows mlx5.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

using ReadFile = int (*)(const char*, const char*, char*, size_t);

uint64_t counter(const Side& side, const char* name) {
  static const auto read = reinterpret_cast<ReadFile>(dlsym(RTLD_DEFAULT, "ibv_read_sysfs_file"));
  char text[32] = {};
  const int length =
      read(side.context->device->ibdev_path, (std::string("ports/1/") + name).c_str(), text, sizeof text - 1);
  EXPECT_GT(length, 0) << name;
  return std::strtoull(text, nullptr, 10);
}

/// What a port has counted since this was made.
struct Counts {
  explicit Counts(const Side& of)
      : side(of),
        timeouts(counter(of, "hw_counters/local_ack_timeout_err")),
        naks(counter(of, "hw_counters/packet_seq_err")),
        responses(counter(of, "hw_counters/implied_nak_seq_err")),
        requests(counter(of, "hw_counters/out_of_sequence")),
        sent(counter(of, "counters/port_xmit_packets")),
        received(counter(of, "counters/port_rcv_packets")) {}
  Counts now() const {
    Counts n(side);
    n.timeouts -= timeouts;
    n.naks -= naks;
    n.responses -= responses;
    n.requests -= requests;
    n.sent -= sent;
    n.received -= received;
    return n;
  }
  const Side& side;
  uint64_t timeouts, naks, responses, requests, sent, received;
};

constexpr uint32_t kMessage = 64 << 10;  // 64 packets
constexpr int kMessages = 200;

void exchange(Side& a, const Side& b, ibv_wr_opcode opcode) {
  for (int i = 0; i < kMessages; ++i) {
    a.buffer[i] = static_cast<uint8_t>(i + 1);
    ASSERT_EQ(a.send(static_cast<uint64_t>(i), 0, kMessage, opcode, &b), 0);
    EXPECT_WC(a.wait_send(), IBV_WC_SUCCESS, i);
  }
}

/// Both sides have the same port, which so counts at both ends.
class PacketLoss : public Conformance {};

TEST_F(PacketLoss, WithoutLoss_OnlyPacketsAreCounted) {
  Pair p;
  const Counts before(p.a);
  exchange(p.a, p.b, IBV_WR_RDMA_WRITE);
  exchange(p.a, p.b, IBV_WR_RDMA_READ);
  const Counts n = before.now();
  EXPECT_EQ(n.timeouts + n.naks + n.responses + n.requests, 0u);
  // One packet asks for 64.
  EXPECT_EQ(n.sent, uint64_t{kMessages} * (64 + 1 + 64));
  EXPECT_EQ(n.received, n.sent);
}

TEST_F(PacketLoss, OfRequests_IsSeenAtBothEnds) {
  Pair p;
  Lab::get().inject("when opcode=WRITE do lose 2%");
  const Counts before(p.a);
  exchange(p.a, p.b, IBV_WR_RDMA_WRITE);
  const Counts n = before.now();
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), kMessage), 0);
  EXPECT_NEAR(static_cast<double>(n.naks + n.timeouts), 0.02 * 64 * kMessages, 70) << "four deviations";
  EXPECT_EQ(n.requests, n.naks) << "each NAK was sent by somebody who missed a request";
  EXPECT_EQ(n.responses, 0u);
  EXPECT_GT(n.sent, uint64_t{kMessages} * 64) << "lost packets are sent again";
}

TEST_F(PacketLoss, OfResponses_IsSeenByTheReader) {
  Pair p;
  Lab::get().inject("when opcode=ACK size>=32K do lose 2%");
  const Counts before(p.a);
  exchange(p.a, p.b, IBV_WR_RDMA_READ);
  const Counts n = before.now();
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), kMessage), 0);
  EXPECT_NEAR(static_cast<double>(n.responses + n.timeouts), 0.02 * 64 * kMessages, 70);
  EXPECT_EQ(n.naks + n.requests, 0u) << "all requests came in their order";
}

TEST_F(PacketLoss, OfTheLastPacket_IsFoundByTheTimer) {
  Pair p;
  Lab::get().inject("when opcode=WRITE count=1 attempt=first do lose 100%");
  const Counts before(p.a);
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  const Counts n = before.now();
  EXPECT_EQ(n.timeouts, 1u);
  EXPECT_EQ(n.naks + n.responses + n.requests, 0u);
}

}  // namespace
}  // namespace bfo::conformance
