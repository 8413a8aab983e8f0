// SPDX-License-Identifier: BSD-3-Clause
//
// The rig: two verbs endpoints in one process, connected or not, with the few calls that the conformance
// tests repeat. Everything waits with a deadline; nothing here can hang.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "test/conformance/lab.h"

namespace bfo::conformance {

inline constexpr int kDeadlineMs = 4000;
inline constexpr size_t kBufferBytes = 1 << 20;
inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct SideOptions {
  ibv_qp_type type = IBV_QPT_RC;
  int device = 0;
  bool srq = false;
  int cqe = 256;
  int send_wr = 64;
  int recv_wr = 64;
  int sge = 4;
  int inline_bytes = 64;
  int sig_all = 1;
  int mr_access = kAllAccess;
  unsigned qp_access = kAllAccess;
  bool one_cq = false;
};

struct LinkOptions {
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t timeout = 14;
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;
  uint8_t max_rd_atomic = 4;
  uint8_t max_dest_rd_atomic = 4;
  uint32_t sq_psn = 0xfffffe;  ///< the 24-bit wrap is part of every test
};

/// How to reach the port with that Side::lid.
ibv_ah_attr address_of(uint16_t lid);

/// One open device with one queue pair.
class Side {
 public:
  explicit Side(const SideOptions& options = {});
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  int to_init();
  int to_rtr(uint16_t dlid, uint32_t dest_qpn, uint32_t rq_psn, const LinkOptions& link = {});
  int to_rts(const LinkOptions& link = {});
  int to_state(ibv_qp_state state);
  ibv_qp_state state() const;
  void destroy_qp();

  int post_recv(uint64_t wr_id, uint32_t offset, uint32_t length);
  int post_recv(uint64_t wr_id, const std::vector<ibv_sge>& list);
  int post_send(ibv_send_wr& wr) const;
  /// A request of `length` bytes at `offset` of the own buffer.
  int send(uint64_t wr_id, uint32_t offset, uint32_t length, ibv_wr_opcode opcode = IBV_WR_SEND,
           const Side* remote = nullptr, uint32_t remote_offset = 0, unsigned flags = IBV_SEND_SIGNALED);
  ibv_sge sge(uint32_t offset, uint32_t length) const;
  uint64_t address(uint32_t offset) const { return reinterpret_cast<uint64_t>(buffer.data()) + offset; }

  /// Next completion, with a deadline.
  std::optional<ibv_wc> wait(ibv_cq* cq, int timeout_ms = kDeadlineMs);
  std::optional<ibv_wc> wait_send(int timeout_ms = kDeadlineMs) { return wait(send_cq, timeout_ms); }
  std::optional<ibv_wc> wait_recv(int timeout_ms = kDeadlineMs) { return wait(recv_cq, timeout_ms); }
  /// True when nothing completes for a while.
  bool quiet(ibv_cq* cq, int ms = 30);

  /// Next asynchronous event, acknowledged; empty when none comes in time.
  std::optional<ibv_async_event> wait_event(int timeout_ms = kDeadlineMs);
  /// Skips others until one of `type` comes.
  bool wait_event_of(ibv_event_type type, int timeout_ms = kDeadlineMs);

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> buffer;
  uint16_t lid = 0;
  uint32_t qpn = 0;

 private:
  unsigned qp_access_ = 0;
};

/// Two sides of one service, connected and in RTS.
class Pair {
 public:
  explicit Pair(const SideOptions& options = {}, const LinkOptions& link = {})
      : Pair(options, options, link) {}
  Pair(const SideOptions& a_options, const SideOptions& b_options, const LinkOptions& link);
  ~Pair();
  void connect(const LinkOptions& link);

  Side a;
  Side b;
};

/// A byte that the device may be writing right now, as programs that wait for an RDMA write look at it.
/// Nothing orders the two, on hardware neither, so ThreadSanitizer must not judge this read.
__attribute__((noinline, no_sanitize("thread"))) uint8_t look(const volatile uint8_t& byte);

/// True for the record that tells the fate of one transmission of a request of that opcode.
bool is_attempt(const MessageRecord& record, Opcode opcode);

/// Test fixture: no rules, a fresh trace.
class Conformance : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

#define EXPECT_WC(wc, expected_status, expected_wr_id)                                        \
  do {                                                                                        \
    const auto& checked = (wc);                                                               \
    ASSERT_TRUE(checked.has_value()) << "no completion\n" << Lab::get().trace_text();         \
    EXPECT_EQ(checked->status, expected_status) << ibv_wc_status_str(checked->status) << "\n" \
                                                << Lab::get().trace_text();                   \
    EXPECT_EQ(checked->wr_id, static_cast<uint64_t>(expected_wr_id));                         \
  } while (0)

}  // namespace bfo::conformance
