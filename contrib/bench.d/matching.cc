// SPDX-License-Identifier: BSD-3-Clause
//
// matching: how many messages a second are matched while many others wait, as one JSON line. Rank 1 sends
// 8-byte messages with a tag each; rank 0 has them matched in the order of the tags, in reverse, or in random
// order, either out of the unexpected messages or by receives that were posted before.
//
// usage: matching [--depth N] [--order forward|reverse|random] [--kind posted|unexpected]
// A depth above 20000 is measured by the first 2000 matches only: the queue stays that long meanwhile.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kSampled = 2000;
constexpr int kWhole = 20000;
constexpr int kGo = 1 << 20;  ///< tag of what is no message to be matched

struct Options {
  int depth = 1000;
  std::string order = "forward";
  std::string kind = "unexpected";
};

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--depth" && std::atoi(value.c_str()) > 0 && std::atoi(value.c_str()) < kGo)
      o->depth = std::atoi(value.c_str());
    else if (name == "--order" && (value == "forward" || value == "reverse" || value == "random"))
      o->order = value;
    else if (name == "--kind" && (value == "posted" || value == "unexpected"))
      o->kind = value;
    else {
      std::fprintf(stderr,
                   "matching: %s %s: expected --depth 1..%d, --order forward|reverse|random or "
                   "--kind posted|unexpected\n",
                   name.c_str(), value.c_str(), kGo - 1);
      return false;
    }
  }
  return true;
}

/// The tags in the order in which they are to be matched: the timed ones first, then the rest as they came.
std::vector<int> order_of(const Options& o, int timed) {
  std::vector<int> tags(static_cast<size_t>(o.depth));
  std::iota(tags.begin(), tags.end(), 0);
  if (o.order == "reverse") std::reverse(tags.begin(), tags.end());
  if (o.order == "random") std::shuffle(tags.begin(), tags.end(), std::mt19937(1));
  std::sort(tags.begin() + timed, tags.end());
  return tags;
}

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "matching: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void send_all(const std::vector<int>& tags) {
  for (const int tag : tags) {
    const long value = tag;
    MPI_Send(&value, sizeof value, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
  }
}

/// Rank 0; seconds for the timed messages.
double unexpected(const std::vector<int>& tags, int timed) {
  char go = 0;
  MPI_Send(&go, 1, MPI_BYTE, 1, kGo, MPI_COMM_WORLD);
  MPI_Recv(&go, 1, MPI_BYTE, 1, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // behind all others
  const double begin = MPI_Wtime();
  double seconds = 0;
  for (size_t i = 0; i < tags.size(); ++i) {
    if (i == static_cast<size_t>(timed)) seconds = MPI_Wtime() - begin;
    long value = -1;
    MPI_Recv(&value, sizeof value, MPI_BYTE, 1, tags[i], MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(value == tags[i], "a receive got the message of another tag");
  }
  return seconds != 0 ? seconds : MPI_Wtime() - begin;
}

double posted(const std::vector<int>& tags, int timed) {
  const size_t n = tags.size();
  std::vector<long> values(n, -1);
  std::vector<MPI_Request> requests(n), first;
  for (size_t tag = 0; tag < n; ++tag)
    MPI_Irecv(&values[tag], sizeof(long), MPI_BYTE, 1, static_cast<int>(tag), MPI_COMM_WORLD, &requests[tag]);
  for (int i = 0; i < timed; ++i) {
    MPI_Request& r = requests[static_cast<size_t>(tags[static_cast<size_t>(i)])];
    first.push_back(r);
    r = MPI_REQUEST_NULL;
  }
  char go = 0;
  const double begin = MPI_Wtime();
  MPI_Send(&go, 1, MPI_BYTE, 1, kGo, MPI_COMM_WORLD);
  MPI_Waitall(timed, first.data(), MPI_STATUSES_IGNORE);
  const double seconds = MPI_Wtime() - begin;
  MPI_Send(&go, 1, MPI_BYTE, 1, kGo, MPI_COMM_WORLD);
  MPI_Waitall(static_cast<int>(n), requests.data(), MPI_STATUSES_IGNORE);
  for (size_t tag = 0; tag < n; ++tag)
    check(values[tag] == static_cast<long>(tag), "a receive got the message of another tag");
  return seconds;
}

void round_of_sender(const Options& o, const std::vector<int>& tags, int timed) {
  char go = 0;
  MPI_Recv(&go, 1, MPI_BYTE, 0, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (o.kind == "unexpected") {
    std::vector<int> as_they_come(tags.size());
    std::iota(as_they_come.begin(), as_they_come.end(), 0);
    send_all(as_they_come);
    MPI_Send(&go, 1, MPI_BYTE, 0, kGo, MPI_COMM_WORLD);
    return;
  }
  send_all({tags.begin(), tags.begin() + timed});
  MPI_Recv(&go, 1, MPI_BYTE, 0, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  send_all({tags.begin() + timed, tags.end()});
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Options o;
  if (!parse(argc, argv, &o)) MPI_Abort(MPI_COMM_WORLD, 2);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check(size >= 2, "two ranks are needed");
  const int timed = o.depth > kWhole ? kSampled : o.depth;
  const int rounds = std::max(2, kWhole / o.depth);  // the first one warms up
  const std::vector<int> tags = order_of(o, timed);
  double seconds = 0;
  for (int i = 0; i < rounds && rank < 2; ++i) {
    if (rank == 1) {
      round_of_sender(o, tags, timed);
      continue;
    }
    const double took = o.kind == "posted" ? posted(tags, timed) : unexpected(tags, timed);
    if (i > 0) seconds += took;
  }
  if (rank == 0) std::printf("{\"rate\": %.1f}\n", static_cast<double>(rounds - 1) * timed / seconds);
  MPI_Finalize();
  return 0;
}
