// SPDX-License-Identifier: BSD-3-Clause
//
// growth: what 8 bytes between ranks 0 and 1 cost while there is much else that does not move, as one JSON
// line.
//
// usage: growth WHAT [N]
//   communicators N  the messages go round robin over N duplicates of MPI_COMM_WORLD
//   peers            the other ranks have exchanged a message with ranks 0 and 1 each, and sleep
//   requests N       N receives are posted that no message arrives for until the end
//   start            seconds from before MPI_Init until each rank has exchanged a message with each other one
#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kBlocks = 40;
constexpr int kIterations = 500;  ///< round trips of a block
constexpr int kMost = 100000;
constexpr int kPing = 1, kEnd = 2, kNever = 3;  ///< tags

struct Job {
  int rank = 0, size = 0;
};

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Microseconds of half a round trip: the first decile of the blocks, what the code takes when the rest of
/// the machine keeps still.
double latency(const Job& job, const std::vector<MPI_Comm>& comms) {
  std::vector<double> blocks;
  long value = 0;
  size_t next = 0;
  for (int b = -2; b < kBlocks; ++b) {
    const double start = now();
    for (int i = 0; i < kIterations; ++i) {
      const MPI_Comm comm = comms[next];
      next = next + 1 == comms.size() ? 0 : next + 1;
      if (job.rank == 0) MPI_Send(&value, sizeof value, MPI_BYTE, 1, kPing, comm);
      MPI_Recv(&value, sizeof value, MPI_BYTE, 1 - job.rank, kPing, comm, MPI_STATUS_IGNORE);
      if (job.rank == 1) MPI_Send(&value, sizeof value, MPI_BYTE, 0, kPing, comm);
    }
    if (b >= 0) blocks.push_back((now() - start) * 1e6 / kIterations / 2);
  }
  std::sort(blocks.begin(), blocks.end());
  return blocks[kBlocks / 10];
}

double with_communicators(const Job& job, int n) {
  std::vector<MPI_Comm> comms(static_cast<size_t>(n));
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const double us = latency(job, comms);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  return us;
}

void exchange(int peer, int tag) {
  int value = 0;
  MPI_Sendrecv_replace(&value, 1, MPI_INT, peer, tag, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

double with_peers(const Job& job) {
  const timespec pause = {0, 50000000};
  double us = 0;
  if (job.rank > 1) {
    exchange(0, kPing);
    exchange(1, kPing);
    for (int ended = 0; !ended; nanosleep(&pause, nullptr))
      MPI_Iprobe(0, kEnd, MPI_COMM_WORLD, &ended, MPI_STATUS_IGNORE);
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, kEnd, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
  }
  for (int peer = 2; peer < job.size; ++peer) exchange(peer, kPing);
  us = latency(job, {MPI_COMM_WORLD});
  for (int peer = 2; peer < job.size && job.rank == 0; ++peer)
    MPI_Send(nullptr, 0, MPI_BYTE, peer, kEnd, MPI_COMM_WORLD);
  return us;
}

double with_requests(const Job& job, int n) {
  std::vector<int> values(static_cast<size_t>(n));
  std::vector<MPI_Request> requests(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    MPI_Irecv(&values[i], 1, MPI_INT, 1 - job.rank, kNever, MPI_COMM_WORLD, &requests[i]);
  const double us = latency(job, {MPI_COMM_WORLD});
  for (int i = 0; i < n; ++i) MPI_Send(&i, 1, MPI_INT, 1 - job.rank, kNever, MPI_COMM_WORLD);
  MPI_Waitall(n, requests.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < n; ++i) {
    if (values[static_cast<size_t>(i)] == i) continue;
    std::fprintf(stderr, "growth: receive %d got message %d\n", i, values[static_cast<size_t>(i)]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return us;
}

/// The same step for all: nobody waits for more than one other rank at a time.
double start_up(const Job& job, double began) {
  for (int step = 1; step < job.size; ++step) {
    int value = 0;
    const int to = (job.rank + step) % job.size, from = (job.rank - step + job.size) % job.size;
    MPI_Sendrecv_replace(&value, 1, MPI_INT, to, kPing, from, kPing, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  double seconds = now() - began;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

bool known(const std::string& what, int n) {
  if (what == "peers" || what == "start") return true;
  return (what == "communicators" || what == "requests") && n > 0 && n <= kMost;
}

}  // namespace

int main(int argc, char** argv) {
  const double began = now();
  const std::string what = argc > 1 ? argv[1] : "";
  const int n = argc > 2 ? std::atoi(argv[2]) : 0;
  if (!known(what, n)) {
    std::fprintf(stderr, "growth: expected communicators N, peers, requests N or start, N from 1 to %d\n",
                 kMost);
    return 2;
  }
  Job job;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.size);
  if (job.size < 2 || (job.size > 2 && (what == "communicators" || what == "requests"))) {
    if (job.rank == 0) std::fprintf(stderr, "growth: %s does not run on %d ranks\n", what.c_str(), job.size);
    MPI_Finalize();
    return 2;
  }
  const double value = what == "communicators" ? with_communicators(job, n)
                       : what == "requests"    ? with_requests(job, n)
                       : what == "peers"       ? with_peers(job)
                                               : start_up(job, began);
  if (job.rank == 0) std::printf("{\"value\": %.5g}\n", value);
  MPI_Finalize();
  return 0;
}
