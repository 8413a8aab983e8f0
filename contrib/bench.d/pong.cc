// SPDX-License-Identifier: BSD-3-Clause
//
// pong: latency and bandwidth of an MPI between ranks 0 and 1, as one JSON line. Latency is taken in blocks,
// so that what a disturbed block took can be told from what the code takes.
//
// usage: pong [--latency BYTES] [--blocks N] [--iterations N] [--bandwidth BYTES] [--window N] [--repeat N]
//             [--callgrind MESSAGES [--size BYTES] [--strided 1]]
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_TOGGLE_COLLECT
#endif

namespace {

struct Options {
  long latency_bytes = -1;
  int blocks = 60;
  int iterations = 300;
  long bandwidth_bytes = -1;
  int window = 8;
  int repeat = 12;
  int callgrind = 0;
  long size = 8;
  bool strided = false;
};

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    char* end = nullptr;
    const long value = i + 1 < argc ? std::strtol(argv[i + 1], &end, 10) : -1;
    if (i + 1 >= argc || *end || value < 0 || value > (1l << 30)) {
      std::fprintf(stderr, "pong: %s: expected a number from 0 to 2^30 behind it\n", name.c_str());
      return false;
    }
    if (name == "--latency")
      o->latency_bytes = value;
    else if (name == "--blocks")
      o->blocks = static_cast<int>(value);
    else if (name == "--iterations")
      o->iterations = static_cast<int>(value);
    else if (name == "--bandwidth")
      o->bandwidth_bytes = value;
    else if (name == "--window")
      o->window = static_cast<int>(value);
    else if (name == "--repeat")
      o->repeat = static_cast<int>(value);
    else if (name == "--callgrind")
      o->callgrind = static_cast<int>(value);
    else if (name == "--size")
      o->size = value;
    else if (name == "--strided")
      o->strided = value != 0;
    else {
      std::fprintf(stderr, "pong: unknown argument %s\n", name.c_str());
      return false;
    }
  }
  return true;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void ping_pong(char* buffer, int count, int iterations, int rank, MPI_Datatype type = MPI_BYTE) {
  const int peer = 1 - rank;
  for (int i = 0; i < iterations; ++i) {
    if (rank == 0) {
      MPI_Send(buffer, count, type, peer, 1, MPI_COMM_WORLD);
      MPI_Recv(buffer, count, type, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buffer, count, type, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffer, count, type, peer, 1, MPI_COMM_WORLD);
    }
  }
}

/// For callgrind: rank 0 sends and receives with collection on, and waits with collection off, until rank 1
/// says in shared memory that its answer is on the way. So wait loops hardly turn, and the count is the same
/// in every run. A message that is longer than the eager limit has to wait inside MPI_Send and MPI_Recv: of
/// these count the functions that do not wait.
bool count_instructions(const Options& o, int rank) {
  const int messages = o.callgrind;
  char path[] = "/tmp/bfo-pong-XXXXXX";
  int fd = -1;
  if (rank == 0) fd = mkstemp(path);
  MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0 && ftruncate(fd, 4096) != 0) return false;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) fd = open(path, O_RDWR);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return false;
  auto* answered = new (page) std::atomic<int>;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) unlink(path);
  std::vector<char> memory(static_cast<size_t>(o.size) * 2 + 64, 1);
  char* const buffer = memory.data();
  MPI_Datatype type = MPI_BYTE;
  int count = static_cast<int>(o.size);
  if (o.strided) {
    MPI_Type_vector(count / 8, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    count = 1;
  }
  CALLGRIND_START_INSTRUMENTATION;  // until here the process runs several times as fast
  ping_pong(buffer, count, o.size > 4096 ? 20 : 200, rank, type);
  for (int i = 1; i <= messages; ++i) {
    if (rank == 0) {
      CALLGRIND_TOGGLE_COLLECT;
      MPI_Send(buffer, count, type, 1, 1, MPI_COMM_WORLD);
      CALLGRIND_TOGGLE_COLLECT;
      while (answered->load() < i) sched_yield();
      CALLGRIND_TOGGLE_COLLECT;
      MPI_Recv(buffer, count, type, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CALLGRIND_TOGGLE_COLLECT;
    } else {
      MPI_Recv(buffer, count, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (o.size <= 4096) {
        MPI_Send(buffer, count, type, 0, 1, MPI_COMM_WORLD);
        answered->store(i);
      } else {
        answered->store(i);
        MPI_Send(buffer, count, type, 0, 1, MPI_COMM_WORLD);
      }
    }
  }
  return true;
}

/// Half round trips in microseconds, one per block.
std::vector<double> latency(const Options& o, int rank) {
  std::vector<char> buffer(static_cast<size_t>(o.latency_bytes) + 64, 1);
  std::vector<double> blocks;
  ping_pong(buffer.data(), static_cast<int>(o.latency_bytes), o.iterations, rank);
  for (int b = 0; b < o.blocks; ++b) {
    const double start = MPI_Wtime();
    ping_pong(buffer.data(), static_cast<int>(o.latency_bytes), o.iterations, rank);
    blocks.push_back((MPI_Wtime() - start) * 1e6 / o.iterations / 2);
  }
  return blocks;
}

/// 10^6 bytes per second from rank 0 to rank 1, one value per window of messages and its answer, which is
/// empty: one that goes again is no part of the bytes sent again.
std::vector<double> bandwidth(const Options& o, int rank) {
  const auto bytes = static_cast<size_t>(o.bandwidth_bytes);
  const auto window = static_cast<size_t>(o.window);
  std::vector<std::vector<char>> buffers(window, std::vector<char>(bytes, 1));
  std::vector<MPI_Request> requests(window);
  std::vector<double> values;
  for (int r = -2; r < o.repeat; ++r) {
    const double start = MPI_Wtime();
    for (size_t w = 0; w < window; ++w) {
      if (rank == 0) {
        MPI_Isend(buffers[w].data(), static_cast<int>(bytes), MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[w]);
      } else {
        MPI_Irecv(buffers[w].data(), static_cast<int>(bytes), MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[w]);
      }
    }
    MPI_Waitall(o.window, requests.data(), MPI_STATUSES_IGNORE);
    if (rank == 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(nullptr, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    if (r >= 0) values.push_back(static_cast<double>(bytes * window) / (MPI_Wtime() - start) * 1e-6);
  }
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, &o)) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    if (rank == 0) std::fprintf(stderr, "pong: needs 2 ranks, has %d\n", size);
    MPI_Finalize();
    return 2;
  }
  std::string line = "{\"program\": \"pong\"";
  char text[300];
  if (o.callgrind && !count_instructions(o, rank)) {
    std::fprintf(stderr, "pong: cannot share a page between the ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (o.latency_bytes >= 0) {
    const auto v = latency(o, rank);
    std::snprintf(text, sizeof text,
                  ", \"latency_us\": {\"min\": %.4f, \"p10\": %.4f, \"median\": %.4f, \"p90\": %.4f}",
                  quantile(v, 0), quantile(v, 0.1), quantile(v, 0.5), quantile(v, 0.9));
    line += text;
  }
  if (o.bandwidth_bytes >= 0) {
    const auto v = bandwidth(o, rank);
    std::snprintf(text, sizeof text, ", \"bandwidth_mbs\": {\"max\": %.1f, \"p90\": %.1f, \"median\": %.1f}",
                  quantile(v, 1), quantile(v, 0.9), quantile(v, 0.5));
    line += text;
  }
  if (rank == 0) std::printf("%s}\n", line.c_str());
  MPI_Finalize();
  return 0;
}
