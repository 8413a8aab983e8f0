// SPDX-License-Identifier: BSD-3-Clause
//
// enumerate.cc: not sampled but all of it: for each protocol, message size around each threshold and number
// of rails, every work request k of either side fails in every way; for short messages and few rails, also
// every pair of failures. `enumerate` runs what fits in make check, `enumerate --all` everything.
// bfo-time-limit: 300

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "test/sim/scenario.h"
#include "test/sim/world.h"

namespace bfo::sim {
namespace {

constexpr uint64_t kUs = 1000;

/// One way of moving one message.
struct Case {
  const char* name;
  uint32_t put, get;
  SendStyle style;
  bool contiguous;
  bool unexpected;  ///< the receive is posted late
  bool truncated;
};
constexpr Case kCases[] = {
    {"eager without record", 0, 0, SendStyle::kInline, true, false, false},
    {"eager with record", 0, 0, SendStyle::kStandard, false, false, false},
    {"eager, unexpected", 0, 0, SendStyle::kInline, true, true, false},
    {"synchronous", 0, 0, SendStyle::kSync, true, false, false},
    {"copy", 0, 0, SendStyle::kStandard, true, false, false},
    {"copy, not contiguous, truncated", 0, 0, SendStyle::kStandard, false, false, true},
    {"copy, unexpected", 0, 0, SendStyle::kStandard, true, true, false},
    {"get", 0, 1024, SendStyle::kStandard, true, false, false},
    {"get, unexpected", 0, 1024, SendStyle::kStandard, true, true, false},
    {"get, truncated", 0, 1024, SendStyle::kStandard, true, false, true},
    {"put", 1024, 0, SendStyle::kStandard, true, false, false},
    {"put, unexpected", 1024, 0, SendStyle::kStandard, true, true, false},
    {"put, truncated", 1024, 0, SendStyle::kStandard, true, false, true},
    {"get or put", 1024, 1024, SendStyle::kStandard, true, false, false},
};

constexpr FaultKind kWays[] = {FaultKind::kDrop, FaultKind::kErrorNow, FaultKind::kNoAck,
                               FaultKind::kErrorDone, FaultKind::kHold};

Scenario story(const Case& c, uint32_t length, uint32_t rails) {
  Scenario s;
  s.config = "enumerate";
  Machine& m = s.machine;
  m.procs = 2;
  m.rails = rails;
  m.put_limit = c.put;
  m.get_limit = c.get;
  m.retry_ns = 60 * kUs;
  m.drain_ns = 15 * kUs;
  m.late_ns = 100 * kUs;
  m.backoff_ns = 10 * kUs;
  m.limit_ns = 200000 * kUs;
  s.comms.push_back(CommPlan{3, 0, -1, 0});
  PairPlan p;
  p.src = 0;
  p.dst = 1;
  p.length = length;
  p.capacity = c.truncated ? length / 2 + 3 : length;
  p.send_style = c.style;
  p.contiguous = c.contiguous;
  p.send_at = 2 * kUs;
  p.recv_at = c.unexpected ? 30 * kUs : 0;
  s.pairs.push_back(p);
  // The next message must neither be lost nor come first.
  p = PairPlan{};
  p.src = 0;
  p.dst = 1;
  p.length = p.capacity = 8;
  p.send_style = SendStyle::kInline;
  p.send_at = 3 * kUs;
  p.recv_at = 1 * kUs + (c.unexpected ? 30 * kUs : 0);
  s.pairs.push_back(p);
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
    const Result r = world_.run(s);
    fired_ = r.stats.faults;
    restarts += r.stats.restarts;
    late += r.stats.late_packets;
    if (r.ok) return true;
    std::printf("FAILED: %s\n%s", r.violation.c_str(), print(s).c_str());
    return false;
  }
  World world_;
  uint64_t fired_ = 0;
};

std::vector<uint32_t> sizes(const Case& c) {
  const Machine m;
  std::vector<uint32_t> out;
  auto around = [&](uint32_t n) {
    for (const uint32_t k : {n - 1, n, n + 1}) out.push_back(k);
  };
  if (c.put == 0 && c.get == 0) {
    out.push_back(0);
    out.push_back(1);
    around(m.eager_limit - 14);
    around(m.rndv_eager - 38);
  }
  if (c.style == SendStyle::kInline) return out;
  around(m.rndv_eager - 38 + m.max_send - 20);
  around(m.rdma_frag);
  around(3 * m.rdma_frag);
  return out;
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
      for (uint32_t rails = 1; rails <= kMaxSimRails; ++rails) {
        const bool some = i % 3 == 1;  // the threshold itself
        if (!all && !some && rails != 2) continue;
        const bool is_short = lengths[i] <= Machine{}.rdma_frag + 1;
        const bool pairs = is_short && (all || (some && rails <= 2));
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
}  // namespace bfo::sim

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "--all") == 0;
  if (argc > 1 && !all) {
    std::fprintf(stderr, "usage: enumerate [--all]\n");
    return 2;
  }
  return bfo::sim::main_with(all);
}
