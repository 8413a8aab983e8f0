// SPDX-License-Identifier: BSD-3-Clause
//
// The checker: an MPI program that knows what every byte of every message must be. See phases.cc for what it
// does and stamp.h for what it can tell apart. Exit status: 0 all right, 1 wrong data, 2 usage, 3 MPI error,
// 4 stalled.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "test/integration/checker/phases.h"
#include "test/integration/checker/self_test.h"

namespace bfo::checker {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool selected(const Options& o, const Phase& p) {
  if (o.phases.empty()) return std::strcmp(p.name, "threads") != 0 || o.threads > 0;
  return std::find(o.phases.begin(), o.phases.end(), p.name) != o.phases.end();
}

/// Rank 0 decides whether there is another pass.
bool another_pass(const Shared& s, MPI_Comm comm, Clock::time_point start) {
  uint64_t mine[2] = {s.report.bytes(), s.report.errors()};
  uint64_t sum[2] = {};
  MPI_Reduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, 0, comm);
  int more = seconds_since(start) < s.options.seconds || sum[0] < s.options.bytes;
  if (sum[1]) more = 0;
  MPI_Bcast(&more, 1, MPI_INT, 0, comm);
  return more;
}

int run(Worker& w, MPI_Comm comm, uint64_t seed) {
  const Shared& s = w.shared;
  const auto start = Clock::now();
  int passes = 0;
  do {
    for (const Phase& p : phases()) {
      if (!selected(s.options, p)) continue;
      if (s.options.verbose && s.rank == 0) {
        std::fprintf(stderr, "checker: %.2f s: pass %d phase %s\n", seconds_since(start), passes, p.name);
      }
      w.set_phase(p.name);
      p.run(w, comm);
      s.dog.beat();
    }
    ++passes;
  } while (another_pass(s, comm, start));
  w.set_phase("final look");
  w.pool.drain();
  uint64_t mine[4] = {s.report.messages(), s.report.bytes(), s.report.rechecked_bytes(), s.report.errors()};
  uint64_t sum[4] = {};
  MPI_Allreduce(mine, sum, 4, MPI_UINT64_T, MPI_SUM, comm);
  if (s.rank == 0) {
    std::printf(
        "checker: %s: ranks %d threads %d seed 0x%llx passes %d seconds %.2f messages %llu bytes-verified "
        "%llu "
        "bytes-verified-again-later %llu errors %llu\n",
        sum[3] ? "FAILED" : "ok", s.size, std::max(1, s.options.threads),
        static_cast<unsigned long long>(seed), passes, seconds_since(start),
        static_cast<unsigned long long>(sum[0]), static_cast<unsigned long long>(sum[1]),
        static_cast<unsigned long long>(sum[2]), static_cast<unsigned long long>(sum[3]));
    std::fflush(stdout);
  }
  return sum[3] ? 1 : 0;
}

/// Small messages of a size that nothing else has, sent right before MPI_Finalize: there is no barrier behind
/// them, and a fault may hit the very last one. Returns the number of errors of this rank.
uint64_t last_words(Worker& w, MPI_Comm comm) {
  constexpr uint64_t kBytes = 1777;
  constexpr int kCount = 16;
  w.set_phase("last words");
  const uint64_t errors = w.shared.report.errors();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const Lane lane(comm, 31);
  const int to = (rank + 1) % size;
  const int from = (rank + size - 1) % size;
  const Watchdog::Scope scope(w.shared.dog,
                              [] { return std::string("last words: messages right before MPI_Finalize"); });
  std::vector<uint8_t> out(kCount * kBytes), in(kCount * kBytes);
  MPI_Request requests[2 * kCount];
  for (int i = 0; i < kCount; ++i)
    w.check(MPI_Irecv(&in[i * kBytes], kBytes, MPI_BYTE, from, 126, comm, &requests[i]), "MPI_Irecv");
  for (int i = 0; i < kCount; ++i) {
    w.shared.stamp.fill(&out[i * kBytes], {lane.to(to, 126), static_cast<uint32_t>(i), kBytes});
    w.check(MPI_Isend(&out[i * kBytes], kBytes, MPI_BYTE, to, 126, comm, &requests[kCount + i]), "MPI_Isend");
  }
  w.check(MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
  for (int i = 0; i < kCount; ++i) {
    const Message m{lane.from(from, 126), static_cast<uint32_t>(i), kBytes};
    const Finding f = w.shared.stamp.verify(&in[i * kBytes], m);
    if (!f.ok()) w.shared.report.add(w.phase(), f, m, "received instead of");
  }
  return w.shared.report.errors() - errors;
}

int usage_error(int rank, const std::string& error) {
  if (rank == 0) std::fprintf(stderr, "checker: %s\n", error.c_str());
  MPI_Finalize();
  return 2;
}

int checker_main(int argc, char** argv) {
  Options options;
  std::string error;
  const bool parsed = parse(argc, argv, &options, &error);
  if (options.help || options.list) {  // usable without mpirun
    if (options.help) std::fputs(usage(), stdout);
    for (const Phase& p : phases()) std::printf("%-12s %s\n", p.name, p.what);
    return 0;
  }
  int provided = 0;
  const int wanted = options.threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!parsed) return usage_error(rank, error);
  if (provided < wanted)
    return usage_error(rank, "this MPI does not provide MPI_THREAD_MULTIPLE, asked for by --threads");
  if (size > 32) return usage_error(rank, "at most 32 ranks (the stamps have five bits for a rank)");
  for (const std::string& name : options.phases)
    if (std::none_of(phases().begin(), phases().end(), [&](const Phase& p) { return name == p.name; }))
      return usage_error(rank, "unknown phase " + name + "; --list names them");

  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  uint64_t seed = options.seed;
  if (!seed)
    seed = permute(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())) | 1;
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

  const Stamp stamp(seed);
  const Sizes sizes(seed, options.max_size_bytes, options.around);
  Report report(rank);
  Watchdog dog(rank, options.stall_s);
  Shared shared{options, stamp, sizes, report, dog, rank, size};
  std::vector<char> bsend(8u << 20);
  MPI_Buffer_attach(bsend.data(), static_cast<int>(bsend.size()));
  int status = 0;
  {
    Worker worker(shared, seed, 0);
    if (options.self_test) {
      int failures = self_test(worker, MPI_COMM_WORLD);
      MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      if (rank == 0) std::printf("checker: self-test %s\n", failures ? "FAILED" : "ok: every detector fired");
      status = failures ? 1 : 0;
    } else if (options.stall_test) {
      stall_test(worker, MPI_COMM_WORLD);
      status = 1;
    } else {
      status = run(worker, MPI_COMM_WORLD, seed);
      if (last_words(worker, MPI_COMM_WORLD)) status = 1;
    }
  }
  void* detached = nullptr;
  int detached_bytes = 0;
  MPI_Buffer_detach(&detached, &detached_bytes);
  MPI_Finalize();
  return status;
}

}  // namespace
}  // namespace bfo::checker

int main(int argc, char** argv) {
  return bfo::checker::checker_main(argc, argv);
}
