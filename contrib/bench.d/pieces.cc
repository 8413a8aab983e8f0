// SPDX-License-Identifier: BSD-3-Clause
//
// pieces: half a round trip in which each of two processes in turn copies the other's buffer to its own with
// process_vm_readv, in pieces, as one JSON line. It is what the software HCA does for RDMA READs, without
// verbs or MPI: what more and shorter READs cost on this machine.
//
// usage: pieces BYTES PIECE
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

constexpr int kRounds = 400;

struct Shared {
  std::atomic<int> turn{0};  ///< whose it is: even ones are process 0's
  std::atomic<bool> failed{false};
  std::atomic<int> pid[2]{};
  std::atomic<char*> buffer[2]{};
};

/// Waits for its own turn. False: the other one has failed.
bool wait_turn(const Shared& s, int turn) {
  while (s.turn.load(std::memory_order_acquire) != turn)
    if (s.failed.load()) return false;
  return true;
}

bool read_all(pid_t pid, char* to, char* from, size_t bytes, size_t piece) {
  for (size_t at = 0; at < bytes; at += piece) {
    const size_t n = std::min(piece, bytes - at);
    const iovec mine{to + at, n};
    const iovec theirs{from + at, n};
    if (process_vm_readv(pid, &mine, 1, &theirs, 1, 0) != static_cast<ssize_t>(n)) return false;
  }
  return true;
}

/// Microseconds of each round trip, seen by this process.
std::vector<double> run(Shared& s, int me, size_t bytes, size_t piece) {
  std::vector<char> memory(bytes, 1);
  s.buffer[me] = memory.data();
  s.pid[me] = getpid();
  while ((s.pid[1 - me] == 0 || s.buffer[1 - me] == nullptr) && !s.failed) {
  }
  std::vector<double> round_trips;
  auto before = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
    if (!wait_turn(s, 2 * round + me)) break;
    if (!read_all(s.pid[1 - me], memory.data(), s.buffer[1 - me], bytes, piece)) {
      s.failed = true;
      break;
    }
    s.turn.store(2 * round + me + 1, std::memory_order_release);
    const auto now = std::chrono::steady_clock::now();
    round_trips.push_back(std::chrono::duration<double, std::micro>(now - before).count());
    before = now;
  }
  while (!s.failed && s.turn.load() != 2 * kRounds) {  // the other one still reads from here
  }
  return round_trips;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const size_t piece = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (bytes == 0 || piece == 0) {
    std::fprintf(stderr, "usage: pieces BYTES PIECE: two numbers of bytes, neither 0\n");
    return 2;
  }
  void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    std::perror("pieces: mmap");
    return 1;
  }
  Shared& s = *new (page) Shared;
  const pid_t child = fork();
  if (child < 0) {
    std::perror("pieces: fork");
    return 1;
  }
  std::vector<double> us = run(s, child == 0 ? 1 : 0, bytes, piece);
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  if (s.failed) {
    std::fprintf(stderr, "pieces: process_vm_readv failed: kernel.yama.ptrace_scope has to be 0\n");
    return 1;
  }
  std::sort(us.begin(), us.end());
  std::printf("{\"program\": \"pieces\", \"bytes\": %zu, \"piece\": %zu, \"us\": %.2f}\n", bytes, piece,
              us[us.size() / 10] / 2);
  return 0;
}
