// SPDX-License-Identifier: BSD-3-Clause
//
// cells.cc: which changes of one cell of the PML's state tables does the whole stack notice? `cells N` makes
// N runs of `dance` and a share of other configurations with the true tables, notes which cells each of them
// comes to, and then plays those runs with the cell changed, until one fails. It prints a line for each
// change that test/sim/cell_catches.txt has a run for, and the sum.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "test/sim/cell_changes.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr size_t kRunsPerCell = 300;

struct Run {
  uint16_t config;
  uint64_t seed;
};
struct Share {
  const char* config;
  uint64_t part;  // of the runs of the first one
};
constexpr Share kShares[] = {
    {"dance", 1},   {"words", 1},  {"barrier", 2},  {"reopen", 2},       {"alone", 2},     {"fins", 5},
    {"pair", 20},   {"slow", 20},  {"told", 60},    {"unfenceable", 20}, {"packets", 40},  {"storm", 60},
    {"device", 60}, {"park", 200}, {"onerail", 80}, {"default", 80},     {"strangers", 80}};

struct Reached {
  std::vector<Run> send[core::kSendPhases][core::kSendEvents];
  std::vector<Run> recv[core::kRecvPhases][core::kRecvEvents];
};

bool run(const Run& r, const cells::Tables* tables, Reached* out) {
  Scenario s;
  if (!generate(r.seed, kShares[r.config].config, s)) std::abort();
  World world(s);
  world.tables = tables;
  if (out != nullptr)
    world.on_end = [&](const Engine& e) {
      const auto note = [&r](const auto& counts, auto& lists) {
        for (size_t i = 0; i < std::size(counts); ++i)
          for (size_t j = 0; j < std::size(counts[i]); ++j) {
            auto& list = lists[i][j];
            const bool known = !list.empty() && list.back().seed == r.seed && list.back().config == r.config;
            if (counts[i][j] != 0 && !known && list.size() < kRunsPerCell) list.push_back(r);
          }
      };
      note(e.machine().sends(), out->send);
      note(e.machine().recvs(), out->recv);
    };
  return !world.run().failed;
}

/// The number of the first of `runs` that fails, or -1. They are made in a process of their own.
long first_failure(const cells::Change& c, const std::vector<Run>& runs) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (write(ends[1], &i, sizeof i) != sizeof i) _exit(2);
      alarm(30);
      if (!run(runs[i], &c.tables, nullptr)) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  size_t at = 0;
  for (size_t next; read(ends[0], &next, sizeof next) == sizeof next;) at = next;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? -1 : static_cast<long>(at);
}

int hunt(uint64_t runs) {
  const char* const source = std::getenv("BFO_SRCDIR");
  std::map<std::string, std::string> known;
  std::string error;
  if (!cells::read_list(std::string(source != nullptr ? source : ".") + "/test/sim/cell_catches.txt", known,
                        error)) {
    std::fprintf(stderr, "cells: %s\n", error.c_str());
    return 2;
  }
  Reached reached;
  for (uint16_t i = 0; i < std::size(kShares); ++i)
    for (uint64_t seed = 1; seed <= runs / kShares[i].part; ++seed)
      if (!run(Run{i, seed}, nullptr, &reached))
        std::printf("FAILED --config %s --seed %llu with the true tables\n", kShares[i].config,
                    static_cast<unsigned long long>(seed));
  size_t all = 0, caught = 0, unreached = 0;
  for (const cells::Change& c : cells::all_changes()) {
    if (known.count(c.name) == 0) continue;
    const std::vector<Run>& list = c.recv ? reached.recv[c.phase][c.event] : reached.send[c.phase][c.event];
    const long at = first_failure(c, list);
    ++all;
    caught += at >= 0;
    unreached += list.empty();
    if (at >= 0)
      std::printf("%s: %s:%llu\n", c.name.c_str(), kShares[list[static_cast<size_t>(at)].config].config,
                  static_cast<unsigned long long>(list[static_cast<size_t>(at)].seed));
    else
      std::printf("%s: %s\n", c.name.c_str(), list.empty() ? "not reached" : "not noticed");
    std::fflush(stdout);
  }
  std::printf("# of %zu changes %zu are noticed, %zu not, %zu are of cells that no run came to\n", all,
              caught, all - caught - unreached, unreached);
  return 0;
}

}  // namespace
}  // namespace bfo::stack

int main(int argc, char** argv) {
  if (argc == 2) return bfo::stack::hunt(std::strtoull(argv[1], nullptr, 10));
  std::fprintf(stderr, "usage: cells N\n");
  return 2;
}
