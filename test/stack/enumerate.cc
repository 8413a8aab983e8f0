// SPDX-License-Identifier: BSD-3-Clause
//
// enumerate.cc: not sampled but all of it: for each protocol, message size around each threshold and number
// of rails, every work request k of either side fails in every way; for some short messages also every pair
// of failures. `enumerate` runs what fits in make check, `enumerate --all` everything.
// bfo-time-limit: 300

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "test/stack/script.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

/// One way of moving one message.
struct Case {
  const char* name;
  bool put, get;
  sim::SendStyle style;
  bool contiguous;
  bool unexpected;  ///< the receive is posted late
  bool truncated;
};
constexpr Case kCases[] = {
    {"eager without record", false, false, sim::SendStyle::kInline, true, false, false},
    {"eager with record", false, false, sim::SendStyle::kStandard, false, false, false},
    {"eager, unexpected", false, false, sim::SendStyle::kInline, true, true, false},
    {"synchronous", false, false, sim::SendStyle::kSync, true, false, false},
    {"copy", false, false, sim::SendStyle::kStandard, true, false, false},
    {"copy, not contiguous, truncated", false, false, sim::SendStyle::kStandard, false, false, true},
    {"copy, unexpected", false, false, sim::SendStyle::kStandard, true, true, false},
    {"get", false, true, sim::SendStyle::kStandard, true, false, false},
    {"get, unexpected", false, true, sim::SendStyle::kStandard, true, true, false},
    {"get, truncated", false, true, sim::SendStyle::kStandard, true, false, true},
    {"put", true, false, sim::SendStyle::kStandard, true, false, false},
    {"put, unexpected", true, false, sim::SendStyle::kStandard, true, true, false},
    {"put, truncated", true, false, sim::SendStyle::kStandard, true, false, true},
    {"get or put", true, true, sim::SendStyle::kStandard, true, false, false},
};

constexpr FaultKind kWays[] = {FaultKind::kLose, FaultKind::kErrorNow, FaultKind::kNoAnswer,
                               FaultKind::kErrorDone, FaultKind::kHold};
// Sizes at which the way of a message changes.
constexpr uint32_t kEager = 256;
constexpr uint32_t kFirst = 192;  // bytes that come with a rendezvous, header included
constexpr uint32_t kMaxSend = 512;
constexpr uint32_t kSegment = 1024;

Scenario story(const Case& c, uint32_t length, uint32_t rails) {
  Scenario s;
  s.config = "enumerate";
  Machine& m = s.machine;
  m.rails = rails;
  m.connected = true;
  m.free_comms = true;
  m.use_put = c.put;
  m.use_get = c.get;
  m.eager_limit = kEager;
  m.rndv_eager = kFirst;
  m.max_send = kMaxSend;
  m.min_rdma = 1;
  m.rdma_frag = kSegment;
  m.piece = 8;
  m.timeout = 3;  // 33 us, twice
  m.retry_count = 1;
  m.control_ns = 10 * kUs;
  m.events_ns = 10 * kUs;
  m.fabric.err_lands = 400;
  s.program.comms.push_back({3, 0, -1, 0});
  s.program.procs = m.procs;
  sim::PairPlan p;
  p.dst = 1;
  p.length = length;
  p.capacity = c.truncated ? length / 2 + 3 : length;
  p.send_style = c.style;
  p.contiguous = c.contiguous;
  p.send_at = 2 * kUs;
  p.recv_at = c.unexpected ? 30 * kUs : 0;
  s.program.pairs.push_back(p);
  // The next message must neither be lost nor come first.
  p = sim::PairPlan{};
  p.dst = 1;
  p.length = p.capacity = 8;
  p.send_style = sim::SendStyle::kInline;
  p.send_at = 3 * kUs;
  p.recv_at = 1 * kUs + (c.unexpected ? 30 * kUs : 0);
  s.program.pairs.push_back(p);
  s.last_ns = 2 * kMs;  // until then packets can fail
  return s;
}

Fault failure(FaultKind way, uint32_t from, uint32_t rail, uint32_t k) {
  Fault f;
  f.kind = way;
  f.p = from;
  f.q = 1 - from;
  f.r = rail;
  f.n = k;
  if (way == FaultKind::kHold) f.d = 90 * kUs;
  return f;
}

class Enumeration {
 public:
  bool singles_and_pairs(const Case& c, uint32_t length, uint32_t rails, bool pairs) {
    Scenario s = story(c, length, rails);
    if (!run(s)) return false;
    for (const FaultKind way : kWays)
      for (uint32_t from = 0; from < 2; ++from)
        for (uint32_t rail = 0; rail < rails; ++rail)
          for (uint32_t k = 1;; ++k) {
            s.faults.assign(1, failure(way, from, rail, k));
            if (!run(s)) return false;
            if (fired_ == 0) break;  // there is no k-th work request
            ++singles;
            if (pairs && !second(s, rails)) return false;
          }
    return true;
  }
  uint64_t singles = 0;
  uint64_t doubles = 0;
  uint64_t restarts = 0;
  uint64_t late = 0;
  uint64_t runs = 0;

 private:
  /// Every second failure, in the run that the first one leads to.
  bool second(Scenario& s, uint32_t rails) {
    const Fault first = s.faults[0];
    for (const FaultKind way : kWays)
      for (uint32_t from = 0; from < 2; ++from)
        for (uint32_t rail = 0; rail < rails; ++rail)
          for (uint32_t k = 1;; ++k) {
            if (from == first.p && rail == first.r && k <= first.n) continue;  // the other order has it
            s.faults.assign(1, first);
            s.faults.push_back(failure(way, from, rail, k));
            if (!run(s)) return false;
            if (fired_ < 2) break;
            ++doubles;
          }
    s.faults.assign(1, first);
    return true;
  }
  bool run(const Scenario& s) {
    const Result r = World(s).run();
    ++runs;
    fired_ = r.faults;
    restarts += r.restarts;
    late += r.late_landed;
    if (!r.failed) return true;
    std::printf("FAILED: %s\n%s", r.violation.c_str(), script_of(s).c_str());
    return false;
  }
  uint64_t fired_ = 0;
};

std::vector<uint32_t> sizes(const Case& c) {
  std::vector<uint32_t> out;
  auto around = [&](uint32_t n) {
    for (const uint32_t k : {n - 1, n, n + 1}) out.push_back(k);
  };
  if (!c.put && !c.get) {
    out.push_back(0);
    out.push_back(1);
    around(kEager - 14);
    around(kFirst - 38);
  }
  if (c.style == sim::SendStyle::kInline) return out;
  around(kFirst - 38 + kMaxSend - 20);
  around(kSegment);
  around(3 * kSegment);
  return out;
}

/// The size that make check tries in pairs: one that goes in two pieces, if it can.
size_t in_pairs(const Case& c) {
  const bool whole = c.style == sim::SendStyle::kInline;
  return c.put || c.get || whole ? 4 : 10;
}

int main_with(bool all) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t singles = 0;
  uint64_t doubles = 0;
  uint64_t restarts = 0;
  uint64_t late = 0;
  for (const Case& c : kCases) {
    Enumeration e;
    const std::vector<uint32_t> lengths = sizes(c);
    for (size_t i = 0; i < lengths.size(); ++i)
      for (uint32_t rails = 1; rails <= kMaxStackRails; ++rails) {
        const bool some = i % 3 == 1;
        if (!all && !some && rails != 2) continue;
        const bool is_short = lengths[i] <= kSegment + 1;
        const bool pairs = is_short && (all || (rails == 2 && i == in_pairs(c)));
        if (!e.singles_and_pairs(c, lengths[i], rails, pairs)) {
          std::printf("in \"%s\", %u bytes, %u rails\n", c.name, lengths[i], rails);
          return 1;
        }
      }
    std::printf("%-34s %2zu sizes, %7" PRIu64 " single failures, %9" PRIu64 " pairs, %8" PRIu64 " restarts\n",
                c.name, lengths.size(), e.singles, e.doubles, e.restarts);
    std::fflush(stdout);
    singles += e.singles;
    doubles += e.doubles;
    restarts += e.restarts;
    late += e.late;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%" PRIu64 " cases: %" PRIu64 " single failures, %" PRIu64 " pairs of failures; %" PRIu64
              " restarts, %" PRIu64 " packets landed late; 0 failed; %.1f s\n",
              singles + doubles, singles, doubles, restarts, late, seconds);
  return 0;
}

}  // namespace
}  // namespace bfo::stack

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "--all") == 0;
  if (argc > 1 && !all) {
    std::fprintf(stderr, "usage: enumerate [--all]\n");
    return 2;
  }
  return bfo::stack::main_with(all);
}
