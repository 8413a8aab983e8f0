// SPDX-License-Identifier: BSD-3-Clause
//
// Peers that die: a process is killed at a random moment of its life, over and over. The survivor must get
// its completions and be able to clear up, and nothing of the dead may stay in the fabric.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "test/conformance/lab.h"
#include "test/conformance/rig.h"
#include "test/conformance/start.h"

extern char** environ;

namespace bfo::conformance {
namespace {

constexpr int kSocket = 3;
constexpr unsigned kDefaultKills = 200;
constexpr unsigned kSecondsPerRound = 100;  // a starved process takes long; a hang takes for ever

struct Address {
  uint32_t qpn;
  uint32_t lid;
  uint32_t rkey;
  uint32_t reserved;
  uint64_t memory;
};

bool exchange(int fd, const Side& side, Address& other) {
  const Address own{side.qpn, side.lid, side.mr->rkey, 0, side.address(0)};
  if (write(fd, &own, sizeof own) != sizeof own) return false;
  return recv(fd, &other, sizeof other, MSG_WAITALL) == sizeof other;
}

bool connect(Side& side, const Address& other) {
  LinkOptions link;
  link.timeout = 12;
  link.retry_cnt = 3;
  return side.to_init() == 0 &&
         side.to_rtr(static_cast<uint16_t>(other.lid), other.qpn, link.sq_psn, link) == 0 &&
         side.to_rts(link) == 0;
}

/// One turn of traffic: completions, a receive, a send and a write or read of mixed sizes. A full queue
/// refuses.
void turn(Side& side, const Address& other, uint32_t round) {
  ibv_wc wc[16];
  for (ibv_cq* cq : {side.send_cq, side.recv_cq}) ibv_poll_cq(cq, 16, wc);
  side.post_recv(1, 0, 16384);
  const uint32_t length = 1u << (round % 15);
  side.send(2, 0, length);
  ibv_sge sge = side.sge(0, length);
  ibv_send_wr wr{};
  wr.wr_id = 3;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = round % 3 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = other.memory + 32768;
  wr.wr.rdma.rkey = other.rkey;
  side.post_send(wr);
}

/// The process that will be killed: joins, connects, and sends until then.
int victim() {
  alarm(kSecondsPerRound);
  Side side;
  Address other{};
  if (!exchange(kSocket, side, other) || !connect(side, other)) return 1;
  for (uint32_t round = 0;; ++round) turn(side, other, round);
}

pid_t start_victim(int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, kSocket);
  setenv("SOFTHCA_NODE", "1", 1);
  char self[] = "/proc/self/exe";
  char word[] = "--victim";
  char* argv[] = {self, word, nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, self, &actions, nullptr, argv, environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  setenv("SOFTHCA_NODE", "0", 1);
  return pid;
}

/// What the requester of a queue pair waits for, for the failure message.
std::string describe_queue(const Side& side) {
  softhca::FabricHeader& h = Lab::get().header();
  const softhca::QpEntry& qp = h.qps[softhca::qp_slot(side.qpn)];
  const auto& oldest =
      *Lab::get().fabric().at<softhca::Wqe>(qp.sq_ring + uint64_t{qp.sq_done & qp.sq_mask} * qp.sq_stride);
  char text[300];
  snprintf(text, sizeof text,
           "tail %u sent %u arrived %u done %u freed %u, oldest: opcode %u stage %u attempt %u, deadline "
           "%lld hold %lld pending %u",
           qp.sq_tail, qp.sq_sent, qp.sq_arrived, qp.sq_done, qp.sq_freed.load(), oldest.opcode,
           static_cast<unsigned>(oldest.stage), oldest.attempt,
           static_cast<long long>(qp.deadline - softhca::monotonic_ns()),
           static_cast<long long>(qp.hold_until - softhca::monotonic_ns()), qp.sq_pending.load());
  return text;
}

/// Traffic with the victim until the queue pair fails; the kill comes after `kill_after_us`.
void survive(int socket, pid_t pid, unsigned kill_after_us) {
  Side side;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(kill_after_us);
  pollfd fd{socket, POLLIN, 0};
  const int patience_ms = static_cast<int>(kill_after_us / 1000) + 1;
  Address other{};
  bool connected = false;
  if (poll(&fd, 1, patience_ms) == 1 && exchange(socket, side, other)) connected = connect(side, other);
  uint32_t round = 0;
  while (std::chrono::steady_clock::now() < deadline && connected) turn(side, other, round++);
  kill(pid, SIGKILL);
  if (!connected) return;
  // The victim may have died anywhere; the own queue pair must come to its end by itself.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (side.state() != IBV_QPS_ERR && std::chrono::steady_clock::now() < end) turn(side, other, round++);
  EXPECT_EQ(side.state(), IBV_QPS_ERR) << describe_queue(side);
}

unsigned count_live(const std::function<bool(softhca::FabricHeader&, uint32_t)>& live, uint32_t limit) {
  softhca::FabricHeader& h = Lab::get().header();
  unsigned count = 0;
  for (uint32_t i = 0; i < limit; ++i) count += live(h, i) ? 1 : 0;
  return count;
}

void expect_clean() {
  Lab::get().fabric().reap();
  const unsigned qps =
      count_live([](auto& h, uint32_t i) { return h.qps[i].qpn.load() != 0; }, Lab::get().header().qp_fresh);
  const unsigned cqs =
      count_live([](auto& h, uint32_t i) { return h.cqs[i].used.load() != 0; }, softhca::kMaxCqs);
  const unsigned mrs =
      count_live([](auto& h, uint32_t i) { return h.mrs[i].key.load() != 0; }, softhca::kMaxMrs);
  const unsigned others = count_live(
      [](auto& h, uint32_t i) {
        return h.processes[i].state.load() != softhca::ProcessState::kFree &&
               h.processes[i].pid.load() != getpid();
      },
      softhca::kMaxProcesses);
  EXPECT_EQ(qps, 0u);
  EXPECT_EQ(cqs, 0u);
  EXPECT_EQ(mrs, 0u);
  EXPECT_EQ(others, 0u);
}

TEST(PeerKill, RandomKills_LeaveNothingBehind) {
  const char* text = std::getenv("SOFTHCA_KILLS");
  const unsigned kills = text != nullptr ? static_cast<unsigned>(atoi(text)) : kDefaultKills;
  const char* seed_text = std::getenv("SOFTHCA_SEED");
  const unsigned seed =
      seed_text != nullptr ? static_cast<unsigned>(atoi(seed_text)) : std::random_device{}();
  printf("fabric %s, SOFTHCA_SEED=%u\n", std::getenv("SOFTHCA_FABRIC"), seed);
  fflush(stdout);  // the script removes what is left, also after the alarm
  std::minstd_rand random(seed);
  for (unsigned i = 0; i < kills && !testing::Test::HasFailure(); ++i) {
    alarm(kSecondsPerRound);
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const pid_t pid = start_victim(pair[1]);
    ASSERT_GT(pid, 0);
    close(pair[1]);
    // Start-up takes some ten ms; a part of the kills falls into it.
    survive(pair[0], pid, 1000 + static_cast<unsigned>(random() % 40'000));
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    close(pair[0]);
    if (i % 16 == 15) expect_clean();
  }
  expect_clean();
}

}  // namespace
}  // namespace bfo::conformance

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--victim") return bfo::conformance::victim();
  std::vector<char*> original(argv, argv + argc + 1);
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  bfo::conformance::enter_fabric(original.data());
  // Open the observer before anything else, and keep the fabric: between rounds nobody else is in it.
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* first = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (first == nullptr) return 1;
  bfo::conformance::Lab::get().header();
  const int result = RUN_ALL_TESTS();
  bfo::conformance::Lab::get().leave();
  ibv_close_device(first);
  return result;
}
