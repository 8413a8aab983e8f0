// SPDX-License-Identifier: BSD-3-Clause
//
// timeline: rank 0 streams messages to rank 1 for a while, or all ranks call MPI_Alltoall; the receivers note
// when each of them was complete. Prints one JSON line with the totals of rank 1 and the longest pause of any
// receiver, and writes rank 1's bytes per millisecond to a file for the plot.
//
// usage: timeline --bytes N --seconds S --window N [--file PATH]
//        timeline --bytes N --seconds S --alltoall 1
#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Options {
  int bytes = 65536;
  double seconds = 2;
  int window = 16;
  bool alltoall = false;
  std::string file;
};

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--bytes")
      o->bytes = std::atoi(argv[i + 1]);
    else if (name == "--seconds")
      o->seconds = std::atof(argv[i + 1]);
    else if (name == "--window")
      o->window = std::atoi(argv[i + 1]);
    else if (name == "--alltoall")
      o->alltoall = std::atoi(argv[i + 1]) != 0;
    else if (name == "--file")
      o->file = argv[i + 1];
    else
      return false;
  }
  return argc % 2 == 1 && o->bytes >= 8 && o->seconds > 0 && o->window > 0;
}

/// Rank 0: keeps `window` messages under way; the first word of each says whether it is the last one.
void send_all(const Options& o) {
  std::vector<std::vector<char>> buffers(static_cast<size_t>(o.window),
                                         std::vector<char>(static_cast<size_t>(o.bytes)));
  std::vector<MPI_Request> requests(static_cast<size_t>(o.window), MPI_REQUEST_NULL);
  const double start = MPI_Wtime();
  bool last = false;
  for (size_t i = 0; !last; i = (i + 1) % requests.size()) {
    MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    last = MPI_Wtime() - start > o.seconds;
    const long word = last;
    std::memcpy(buffers[i].data(), &word, sizeof word);
    MPI_Isend(buffers[i].data(), o.bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(o.window, requests.data(), MPI_STATUSES_IGNORE);
}

/// Rank 1: times of completion in seconds. As many receives are posted as there may be messages under way, or
/// a long message would be asked for when the one before is complete, and no second rail would be used.
std::vector<double> receive_all(const Options& o) {
  std::vector<std::vector<char>> buffers(static_cast<size_t>(o.window),
                                         std::vector<char>(static_cast<size_t>(o.bytes)));
  std::vector<MPI_Request> requests(buffers.size());
  const auto post = [&](size_t i) {
    MPI_Irecv(buffers[i].data(), o.bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
  };
  for (size_t i = 0; i < requests.size(); ++i) post(i);
  std::vector<double> times;
  const double start = MPI_Wtime();
  size_t next = 0;
  for (long last = 0; !last; next = (next + 1) % requests.size()) {
    MPI_Wait(&requests[next], MPI_STATUS_IGNORE);
    times.push_back(MPI_Wtime() - start);
    std::memcpy(&last, buffers[next].data(), sizeof last);
    if (!last) post(next);
  }
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return times;
}

/// All ranks: times of completion; rank 0's blocks say whether this is the last call.
std::vector<double> exchange_all(const Options& o, int rank, int ranks) {
  std::vector<char> out(static_cast<size_t>(o.bytes) * static_cast<size_t>(ranks)), in(out.size());
  std::vector<double> times;
  const double start = MPI_Wtime();
  for (long last = 0; !last;) {
    const long word = rank == 0 && MPI_Wtime() - start > o.seconds;
    for (int to = 0; to < ranks; ++to)
      std::memcpy(&out[static_cast<size_t>(to) * static_cast<size_t>(o.bytes)], &word, sizeof word);
    MPI_Alltoall(out.data(), o.bytes, MPI_BYTE, in.data(), o.bytes, MPI_BYTE, MPI_COMM_WORLD);
    times.push_back(MPI_Wtime() - start);
    std::memcpy(&last, in.data(), sizeof last);
  }
  return times;
}

/// The times between completions of one receiver.
struct Gaps {
  double longest = 0, at = 0, typical = 0;

  explicit Gaps(const std::vector<double>& times) {
    std::vector<double> gaps;
    for (size_t i = 1; i < times.size(); ++i) {
      gaps.push_back(times[i] - times[i - 1]);
      if (gaps.back() > longest) longest = gaps.back(), at = times[i - 1];
    }
    std::sort(gaps.begin(), gaps.end());
    if (!gaps.empty()) typical = gaps[gaps.size() / 2];
  }
};

bool write_file(const Options& o, const std::vector<double>& times) {
  std::FILE* f = std::fopen(o.file.c_str(), "w");
  if (!f) {
    std::fprintf(stderr, "timeline: cannot write %s\n", o.file.c_str());
    return false;
  }
  std::vector<long> bins(static_cast<size_t>(times.back() * 1e3) + 1);
  for (const double t : times) bins[static_cast<size_t>(t * 1e3)] += o.bytes;
  for (size_t i = 0; i < bins.size(); ++i) std::fprintf(f, "%zu %ld\n", i, bins[i]);
  return std::fclose(f) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (!parse(argc, argv, &o) || ranks < 2) {
    if (rank == 0)
      std::fprintf(stderr, "usage: timeline --bytes N --seconds S --window N [--file PATH] [--alltoall 1]\n");
    MPI_Finalize();
    return 2;
  }
  int status = 0;
  std::vector<double> times;
  MPI_Barrier(MPI_COMM_WORLD);
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  if (o.alltoall)
    times = exchange_all(o, rank, ranks);
  else if (rank == 0)
    send_all(o);
  else if (rank == 1)
    times = receive_all(o);
  const Gaps gaps(times);
  double longest = 0;
  MPI_Reduce(&gaps.longest, &longest, 1, MPI_DOUBLE, MPI_MAX, 1, MPI_COMM_WORLD);
  if (rank == 1) {
    const size_t blocks = o.alltoall ? static_cast<size_t>(ranks) : 1;
    std::printf(
        "{\"program\": \"timeline\", \"messages\": %zu, \"bytes\": %zu, \"seconds\": %.4f, "
        "\"longest_pause_ms\": %.4f, \"pause_at_ms\": %.3f, \"median_gap_ms\": %.5f, "
        "\"started_unix\": %.6f}\n",
        times.size(), times.size() * static_cast<size_t>(o.bytes) * blocks, times.back(), longest * 1e3,
        gaps.at * 1e3, gaps.typical * 1e3,
        static_cast<double>(wall.tv_sec) + 1e-9 * static_cast<double>(wall.tv_nsec));
    if (!o.file.empty() && !write_file(o, times)) status = 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}
