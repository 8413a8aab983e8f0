// SPDX-License-Identifier: BSD-3-Clause
//
// curve: latency and bandwidth of an MPI at many message sizes in one job, as one JSON line.
//
// usage: curve FAMILY MIN MAX [EXTRA-SIZE...]
// Two ranks:
//   latency          half a round trip, contiguous bytes, us
//   window           windows of 8 messages (64 below 4 KiB, 2 above 4 MiB) and an empty answer, 10^6 bytes/s
//   bidirectional    windows in both directions at once, 10^6 bytes/s of both
//   strided-latency  latency of doubles with a gap of one double after each, on both sides
//   strided-window   window of the same
//   self             one MPI_Isend and MPI_Recv to oneself, contiguous, us
//   threads          as window, with MPI_THREAD_MULTIPLE
// An even number of ranks:
//   rate             windows of 64 messages from each rank of the lower half to one of the upper, 10^6 per s
// Any number of ranks:
//   sendrecv         MPI_Sendrecv in a ring, us
//   allreduce        MPI_Allreduce of doubles (of bytes where they do not fit), us
//   alltoall         MPI_Alltoall, so many bytes to each rank, us
// Sizes are the powers of two from MIN to MAX and the EXTRA-SIZEs, in bytes. Of the blocks of one size the
// first decile is taken (times) or the last (bandwidth): what the code takes while nobody disturbs it. All
// sizes are measured in several passes, and the best one counts: a disturbance that lasts seconds is not
// taken for a size. Long messages are measured in several places of memory, because the pages of a buffer
// decide how fast it is.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kBlocks = 12;  ///< of one size in one pass
constexpr int kPasses = 4;

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;

/// Memory and data type of messages of `bytes` bytes, contiguous or with gaps. One of a page or more begins
/// with a page: where malloc() begins depends on what the MPI has allocated before, and copies between pages
/// at different offsets are slower. Shorter ones begin with a cache line, lest those of a window all fall in
/// one set of the cache.
class Layout {
 public:
  Layout(size_t bytes, bool strided) : bytes_(bytes) {
    const size_t align = bytes < kPage ? kLine : kPage;
    const size_t size = ((strided ? 2 : 1) * bytes + align) / align * align;
    memory_ = static_cast<char*>(std::aligned_alloc(align, size));
    if (!memory_) MPI_Abort(MPI_COMM_WORLD, 1);
    std::memset(memory_, 1, size);
    if (!strided) return;
    count_ = 1;
    const int doubles = static_cast<int>(bytes / sizeof(double));
    MPI_Type_vector(doubles, 1, 2, MPI_DOUBLE, &type_);
    MPI_Type_commit(&type_);
  }
  ~Layout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
    std::free(memory_);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  void* data() { return memory_; }
  int count() const { return type_ == MPI_BYTE ? static_cast<int>(bytes_) : count_; }
  MPI_Datatype type() const { return type_; }

 private:
  size_t bytes_;
  char* memory_ = nullptr;
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

using Buffers = std::vector<std::unique_ptr<Layout>>;

Buffers buffers_of(int count, size_t bytes, bool strided) {
  Buffers buffers;
  for (int w = 0; w < count; ++w) buffers.push_back(std::make_unique<Layout>(bytes, strided));
  return buffers;
}

/// Seconds of each of `count` blocks of `body`, after two blocks that do not count.
std::vector<double> blocks_of(const std::function<void()>& body, int count = kBlocks) {
  std::vector<double> seconds;
  for (int b = -2; b < count; ++b) {
    const double start = MPI_Wtime();
    body();
    if (b >= 0) seconds.push_back(MPI_Wtime() - start);
  }
  return seconds;
}

/// Places of memory in which messages of `bytes` bytes are measured.
int places_of(size_t bytes) {
  return bytes >= (256u << 10) && bytes <= (8u << 20) ? 3 : 1;
}

void ping_pong(Layout& m, int rounds, int rank) {
  const int peer = 1 - rank;
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) MPI_Send(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD);
    MPI_Recv(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(m.data(), m.count(), m.type(), peer, 1, MPI_COMM_WORLD);
  }
}

double latency_us(size_t bytes, bool strided, int rank) {
  const int rounds = static_cast<int>(std::clamp<size_t>((2u << 20) / (bytes + 4096), 2, 200));
  const int places = places_of(bytes);
  const Buffers buffers = buffers_of(places, bytes, strided);
  std::vector<double> seconds;
  for (const auto& m : buffers) {
    const auto more = blocks_of([&] { ping_pong(*m, rounds, rank); }, kBlocks / places);
    seconds.insert(seconds.end(), more.begin(), more.end());
  }
  return quantile(seconds, 0.1) * 1e6 / rounds / 2;
}

int window_of(size_t bytes) {
  return bytes < 4096 ? 64 : bytes <= (4u << 20) ? 8 : 2;
}

/// One window of messages to `peer`, or from it, then an empty answer the other way.
void window_once(const Buffers& buffers, std::vector<MPI_Request>& requests, int peer, bool sender) {
  for (size_t w = 0; w < buffers.size(); ++w) {
    Layout& m = *buffers[w];
    if (sender)
      MPI_Isend(m.data(), m.count(), m.type(), peer, 2, MPI_COMM_WORLD, &requests[w]);
    else
      MPI_Irecv(m.data(), m.count(), m.type(), peer, 2, MPI_COMM_WORLD, &requests[w]);
  }
  MPI_Waitall(static_cast<int>(buffers.size()), requests.data(), MPI_STATUSES_IGNORE);
  if (sender)
    MPI_Recv(nullptr, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else
    MPI_Send(nullptr, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
}

double window_mbs(size_t bytes, bool strided, int rank) {
  const int rounds = static_cast<int>(std::clamp<size_t>((4u << 20) / (bytes + 4096) / 8, 1, 20));
  const int places = places_of(bytes);
  std::vector<Buffers> all;  // all at once: a place that was given back would come again
  for (int place = 0; place < places; ++place) all.push_back(buffers_of(window_of(bytes), bytes, strided));
  std::vector<double> seconds;
  for (const Buffers& buffers : all) {
    std::vector<MPI_Request> requests(buffers.size());
    const auto more = blocks_of(
        [&] {
          for (int i = 0; i < rounds; ++i) window_once(buffers, requests, 1 - rank, rank == 0);
        },
        kBlocks / places);
    seconds.insert(seconds.end(), more.begin(), more.end());
  }
  return static_cast<double>(bytes) * window_of(bytes) * rounds / quantile(seconds, 0.1) * 1e-6;
}

double bidirectional_mbs(size_t bytes, int rank) {
  const int rounds = static_cast<int>(std::clamp<size_t>((4u << 20) / (bytes + 4096) / 8, 1, 20));
  const Buffers out = buffers_of(window_of(bytes), bytes, false);
  const Buffers in = buffers_of(window_of(bytes), bytes, false);
  std::vector<MPI_Request> requests(2 * out.size());
  const auto seconds = blocks_of([&] {
    for (int i = 0; i < rounds; ++i) {
      for (size_t w = 0; w < out.size(); ++w) {
        MPI_Irecv(in[w]->data(), in[w]->count(), MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD, &requests[2 * w]);
        MPI_Isend(out[w]->data(), out[w]->count(), MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD,
                  &requests[2 * w + 1]);
      }
      MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    }
  });
  return 2 * static_cast<double>(bytes * out.size()) * rounds / quantile(seconds, 0.1) * 1e-6;
}

/// Of all pairs: each block begins with a barrier.
double rate(size_t bytes, int rank, int size) {
  constexpr int kWindow = 64;
  constexpr int kRounds = 10;
  const int pairs = size / 2;
  const bool sender = rank < pairs;
  const Buffers buffers = buffers_of(kWindow, bytes, false);
  std::vector<MPI_Request> requests(kWindow);
  const auto seconds = blocks_of([&] {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kRounds; ++i)
      window_once(buffers, requests, sender ? rank + pairs : rank - pairs, sender);
    MPI_Barrier(MPI_COMM_WORLD);
  });
  return static_cast<double>(kWindow) * kRounds * pairs / quantile(seconds, 0.1) * 1e-6;
}

/// Microseconds of one call of `body`, which all ranks make.
double call_us(size_t bytes, const std::function<void()>& body) {
  const int rounds = static_cast<int>(std::clamp<size_t>((2u << 20) / (bytes + 4096), 2, 100));
  const auto seconds = blocks_of([&] {
    for (int i = 0; i < rounds; ++i) body();
  });
  return quantile(seconds, 0.1) * 1e6 / rounds;
}

double sendrecv_us(size_t bytes, int rank, int size) {
  Layout out(bytes, false);
  Layout in(bytes, false);
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  return call_us(bytes, [&] {
    MPI_Sendrecv(out.data(), out.count(), MPI_BYTE, right, 6, in.data(), in.count(), MPI_BYTE, left, 6,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  });
}

double allreduce_us(size_t bytes) {
  const bool doubles = bytes % sizeof(double) == 0;
  std::vector<double> out(bytes / sizeof(double) + 1, 1.0);
  std::vector<double> in(out.size());
  const int count = static_cast<int>(doubles ? bytes / sizeof(double) : bytes);
  return call_us(bytes, [&] {
    MPI_Allreduce(out.data(), in.data(), count, doubles ? MPI_DOUBLE : MPI_BYTE, doubles ? MPI_SUM : MPI_BOR,
                  MPI_COMM_WORLD);
  });
}

double alltoall_us(size_t bytes, int size) {
  Layout out(bytes * static_cast<size_t>(size), false);
  Layout in(bytes * static_cast<size_t>(size), false);
  return call_us(bytes, [&] {
    MPI_Alltoall(out.data(), static_cast<int>(bytes), MPI_BYTE, in.data(), static_cast<int>(bytes), MPI_BYTE,
                 MPI_COMM_WORLD);
  });
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

/// The ranks a family takes.
enum class Ranks { kTwo, kEven, kAny };

struct Family {
  const char* name;
  Ranks ranks;
  bool time;  ///< less is better
  double (*measure)(size_t bytes, int rank, int size);
};

constexpr Family kFamilies[] = {
    {"latency", Ranks::kTwo, true, [](size_t n, int rank, int) { return latency_us(n, false, rank); }},
    {"window", Ranks::kTwo, false, [](size_t n, int rank, int) { return window_mbs(n, false, rank); }},
    {"bidirectional", Ranks::kTwo, false, [](size_t n, int rank, int) { return bidirectional_mbs(n, rank); }},
    {"strided-latency", Ranks::kTwo, true, [](size_t n, int rank, int) { return latency_us(n, true, rank); }},
    {"strided-window", Ranks::kTwo, false, [](size_t n, int rank, int) { return window_mbs(n, true, rank); }},
    {"self", Ranks::kTwo, true, [](size_t n, int rank, int) { return self_us(n, rank); }},
    {"threads", Ranks::kTwo, false, [](size_t n, int rank, int) { return window_mbs(n, false, rank); }},
    {"rate", Ranks::kEven, false, rate},
    {"sendrecv", Ranks::kAny, true, sendrecv_us},
    {"allreduce", Ranks::kAny, true, [](size_t n, int, int) { return allreduce_us(n); }},
    {"alltoall", Ranks::kAny, true, [](size_t n, int, int size) { return alltoall_us(n, size); }},
};

const Family* family_named(const std::string& name) {
  for (const Family& family : kFamilies)
    if (name == family.name) return &family;
  return nullptr;
}

bool fits(Ranks ranks, int size) {
  return ranks == Ranks::kAny || (ranks == Ranks::kEven ? size % 2 == 0 : size == 2);
}

/// The sizes asked for, ascending; empty when an argument is wrong.
std::vector<size_t> sizes_of(int argc, char** argv) {
  std::vector<size_t> given;
  for (int i = 2; i < argc; ++i) {
    char* end = nullptr;
    const long value = std::strtol(argv[i], &end, 10);
    if (*end || value < 1 || value > (1l << 27)) return {};
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
  const std::string name = argc > 1 ? argv[1] : "";
  const Family* const family = family_named(name);
  const auto sizes = sizes_of(argc, argv);
  if (family == nullptr || sizes.empty()) {
    std::fprintf(stderr, "usage: curve FAMILY MIN MAX [SIZE...] (bytes, 1 to 2^27); families:");
    for (const Family& one : kFamilies) std::fprintf(stderr, " %s", one.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  int provided = 0;
  const int wanted = name == "threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!fits(family->ranks, size) || provided < wanted) {
    if (rank == 0)
      std::fprintf(stderr, "curve %s: %d ranks with thread level %d; needs %s with level %d\n", name.c_str(),
                   size, provided, family->ranks == Ranks::kTwo ? "2 ranks" : "an even number", wanted);
    MPI_Finalize();
    return 2;
  }
  std::vector<double> best(sizes.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double value = family->measure(sizes[i], rank, size);
      if (pass == 0 || (value < best[i]) == family->time) best[i] = value;
    }
  }
  std::string line = "{\"program\": \"curve\", \"values\": {";
  for (size_t i = 0; i < sizes.size(); ++i) {
    char text[64];
    std::snprintf(text, sizeof text, "%s\"%zu\": %.5g", line.back() == '{' ? "" : ", ", sizes[i], best[i]);
    line += text;
  }
  if (rank == 0) std::printf("%s}}\n", line.c_str());
  MPI_Finalize();
  return 0;
}
