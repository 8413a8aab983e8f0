// SPDX-License-Identifier: BSD-3-Clause
//
// timeline: rank 0 streams messages to rank 1 for a while; rank 1 notes when each of them was complete.
// Prints one JSON line with the totals and the longest pause, and writes bytes per millisecond to a file for
// the plot.
//
// usage: timeline --bytes N --seconds S --window N [--file PATH]
#include <mpi.h>

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

/// Rank 1: times of completion in seconds.
std::vector<double> receive_all(const Options& o) {
  std::vector<char> buffer(static_cast<size_t>(o.bytes));
  std::vector<double> times;
  const double start = MPI_Wtime();
  for (long last = 0; !last;) {
    MPI_Recv(buffer.data(), o.bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    times.push_back(MPI_Wtime() - start);
    std::memcpy(&last, buffer.data(), sizeof last);
  }
  return times;
}

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
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!parse(argc, argv, &o)) {
    if (rank == 0) std::fprintf(stderr, "usage: timeline --bytes N --seconds S --window N [--file PATH]\n");
    MPI_Finalize();
    return 2;
  }
  int status = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    send_all(o);
  } else if (rank == 1) {
    const auto times = receive_all(o);
    double pause = 0;
    double at = 0;
    std::vector<double> gaps;
    for (size_t i = 1; i < times.size(); ++i) {
      gaps.push_back(times[i] - times[i - 1]);
      if (gaps.back() > pause) pause = gaps.back(), at = times[i - 1];
    }
    std::sort(gaps.begin(), gaps.end());
    const double typical = gaps.empty() ? 0 : gaps[gaps.size() / 2];
    std::printf(
        "{\"program\": \"timeline\", \"messages\": %zu, \"bytes\": %zu, \"seconds\": %.4f, "
        "\"longest_pause_ms\": "
        "%.4f, \"pause_at_ms\": %.3f, \"median_gap_ms\": %.5f}\n",
        times.size(), times.size() * static_cast<size_t>(o.bytes), times.back(), pause * 1e3, at * 1e3,
        typical * 1e3);
    if (!o.file.empty() && !write_file(o, times)) status = 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}
