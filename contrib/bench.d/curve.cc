// SPDX-License-Identifier: BSD-3-Clause
//
// curve: latency and bandwidth of an MPI at many message sizes in one job, as one JSON line. Ranks 0 and 1.
//
// usage: curve FAMILY MIN MAX [EXTRA-SIZE...]
//   latency          half a round trip, contiguous bytes, us
//   window           windows of 8 messages (64 below 4 KiB) and an empty answer, 10^6 bytes per second
//   strided-latency  latency of doubles with a gap of one double after each, on both sides
//   strided-window   window of the same
//   self             one MPI_Isend and MPI_Recv to oneself, contiguous, us
//   threads          as window, with MPI_THREAD_MULTIPLE
// Sizes are the powers of two from MIN to MAX and the EXTRA-SIZEs, in bytes. Of the blocks of one size the
// first decile is reported (latency) or the last (bandwidth): what the code takes while nobody disturbs it.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kBlocks = 24;

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Memory and data type of messages of `bytes` bytes, contiguous or with gaps.
class Layout {
 public:
  Layout(size_t bytes, bool strided) : bytes_(bytes), memory_((strided ? 2 : 1) * bytes + 64, 1) {
    if (!strided) return;
    count_ = 1;
    const int doubles = static_cast<int>(bytes / sizeof(double));
    MPI_Type_vector(doubles, 1, 2, MPI_DOUBLE, &type_);
    MPI_Type_commit(&type_);
  }
  ~Layout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  void* data() { return memory_.data(); }
  int count() const { return type_ == MPI_BYTE ? static_cast<int>(bytes_) : count_; }
  MPI_Datatype type() const { return type_; }

 private:
  size_t bytes_;
  std::vector<char> memory_;
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

/// Seconds of each block of `body`, after two blocks that do not count.
std::vector<double> blocks_of(const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int b = -2; b < kBlocks; ++b) {
    const double start = MPI_Wtime();
    body();
    if (b >= 0) seconds.push_back(MPI_Wtime() - start);
  }
  return seconds;
}

double latency_us(size_t bytes, bool strided, int rank) {
  Layout m(bytes, strided);
  const int rounds = static_cast<int>(std::clamp<size_t>((2u << 20) / (bytes + 4096), 2, 200));
  const int peer = 1 - rank;
  const auto seconds = blocks_of([&] {
    for (int i = 0; i < rounds; ++i) {
      if (rank == 0) MPI_Send(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD);
      MPI_Recv(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD);
    }
  });
  return quantile(seconds, 0.1) * 1e6 / rounds / 2;
}

double window_mbs(size_t bytes, bool strided, int rank) {
  const int window = bytes < 4096 ? 64 : 8;
  const int rounds = static_cast<int>(std::clamp<size_t>((4u << 20) / (bytes + 4096) / 8, 1, 20));
  std::vector<std::unique_ptr<Layout>> buffers;
  for (int w = 0; w < window; ++w) buffers.push_back(std::make_unique<Layout>(bytes, strided));
  std::vector<MPI_Request> requests(static_cast<size_t>(window));
  const auto seconds = blocks_of([&] {
    for (int i = 0; i < rounds; ++i) {
      for (size_t w = 0; w < requests.size(); ++w) {
        Layout& m = *buffers[w];
        if (rank == 0)
          MPI_Isend(m.data(), m.count(), m.type(), 1, 2, MPI_COMM_WORLD, &requests[w]);
        else
          MPI_Irecv(m.data(), m.count(), m.type(), 0, 2, MPI_COMM_WORLD, &requests[w]);
      }
      MPI_Waitall(window, requests.data(), MPI_STATUSES_IGNORE);
      if (rank == 0)
        MPI_Recv(nullptr, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      else
        MPI_Send(nullptr, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
  });
  return static_cast<double>(bytes) * window * rounds / quantile(seconds, 0.1) * 1e-6;
}

double self_us(size_t bytes, int rank) {
  Layout out(bytes, false);
  Layout in(bytes, false);
  const int rounds = static_cast<int>(std::clamp<size_t>((4u << 20) / (bytes + 4096), 2, 500));
  const auto seconds = blocks_of([&] {
    for (int i = 0; i < rounds; ++i) {
      MPI_Request request;
      MPI_Isend(out.data(), out.count(), out.type(), rank, 4, MPI_COMM_WORLD, &request);
      MPI_Recv(in.data(), in.count(), in.type(), rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  });
  return quantile(seconds, 0.1) * 1e6 / rounds;
}

double measure(const std::string& family, size_t bytes, int rank) {
  if (family == "latency") return latency_us(bytes, false, rank);
  if (family == "strided-latency") return latency_us(bytes, true, rank);
  if (family == "strided-window") return window_mbs(bytes, true, rank);
  if (family == "self") return self_us(bytes, rank);
  return window_mbs(bytes, false, rank);
}

bool known(const std::string& family) {
  for (const char* name : {"latency", "window", "strided-latency", "strided-window", "self", "threads"})
    if (family == name) return true;
  return false;
}

/// The sizes asked for, ascending; empty when an argument is wrong.
std::vector<size_t> sizes_of(int argc, char** argv) {
  std::vector<size_t> given;
  for (int i = 2; i < argc; ++i) {
    char* end = nullptr;
    const long value = std::strtol(argv[i], &end, 10);
    if (*end || value < 8 || value > (1l << 27)) return {};
    given.push_back(static_cast<size_t>(value));
  }
  if (given.size() < 2 || given[0] > given[1]) return {};
  std::vector<size_t> sizes(given.begin() + 2, given.end());
  for (size_t n = given[0]; n <= given[1]; n *= 2) sizes.push_back(n);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string family = argc > 1 ? argv[1] : "";
  const auto sizes = sizes_of(argc, argv);
  if (!known(family) || sizes.empty()) {
    std::fprintf(stderr,
                 "usage: curve latency|window|strided-latency|strided-window|self|threads MIN MAX [SIZE...]"
                 " (bytes, 8 to 2^27)\n");
    return 2;
  }
  int provided = 0;
  const int wanted = family == "threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2 || provided < wanted) {
    if (rank == 0)
      std::fprintf(stderr, "curve: needs 2 ranks (has %d) and thread level %d (has %d)\n", size, wanted,
                   provided);
    MPI_Finalize();
    return 2;
  }
  std::string line = "{\"program\": \"curve\", \"values\": {";
  for (const size_t bytes : sizes) {
    char text[64];
    std::snprintf(text, sizeof text, "%s\"%zu\": %.5g", line.back() == '{' ? "" : ", ", bytes,
                  measure(family, bytes, rank));
    line += text;
  }
  if (rank == 0) std::printf("%s}}\n", line.c_str());
  MPI_Finalize();
  return 0;
}
