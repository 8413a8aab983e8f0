// SPDX-License-Identifier: BSD-3-Clause
//
// cell_hunt.cc: runs the simulator with one cell of the state tables changed (cell_changes.h), in a process
// of its own, because a changed component may break an invariant, crash or never return. A run that ends
// badly has caught the change; the same run with the true tables must end well.
//
//   cell_hunt            replays test/sim/cell_catches.txt ("change: configuration:seed", or "corpus:name"
//   for
//                        the schedule test/sim/corpus/name.sched)
//   cell_hunt --find N   looks for a run that catches each change: the corpus, N runs of "dance" and some of
//                        the other configurations are made once to see which cells they come to, then
//                        repeated with each of those cells changed. Prints lines for cell_catches.txt; a
//                        change that no run catches is printed with the number of runs that came to its cell
//                        and of those that went another way because of it.
//   cell_hunt --try CHANGE CONFIG:SEED   one such run, with its trace
//
// bfo-time-limit: 300

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "test/sim/cell_changes.h"
#include "test/sim/scenario.h"
#include "test/sim/world.h"

namespace bfo::sim {
namespace {

using cells::Change;

struct Run {
  std::string config;  ///< or "corpus"
  uint64_t seed = 0;   ///< of a schedule of the corpus: of its dice; 0 as it is written
  uint64_t hash = 0;   ///< of the trace with the true tables
  std::string schedule = {};
  std::string name() const {
    if (schedule.empty()) return config + ":" + std::to_string(seed);
    return config + ":" + schedule + (seed == 0 ? "" : " with seed " + std::to_string(seed));
  }
};

std::string source_file(const std::string& name) {
  const char* const top = std::getenv("BFO_SRCDIR");
  return std::string(top ? top : ".") + "/test/sim/" + name;
}

/// False: there is no such run.
bool scenario_of(const Run& run, Scenario& out) {
  if (run.schedule.empty()) return generate(run.seed, run.config, out);
  std::ifstream in(source_file("corpus/" + run.schedule + ".sched"));
  if (!in) return false;
  std::stringstream text;
  text << in.rdbuf();
  std::string error;
  if (!parse(text.str(), out, error)) return false;
  if (run.seed != 0) out.machine.seed = run.seed;
  return true;
}

/// What the changed process leaves in shared memory.
struct Verdict {
  size_t at;        ///< the run it was busy with
  uint64_t differ;  ///< runs that ended well but went another way
  bool caught;
  char violation[160];
};

Hooks hooks_of(const Change& c) {
  Hooks h;
  h.send_table = &c.tables.send;
  h.recv_table = &c.tables.recv;
  return h;
}

void quieten() {
  if (!std::freopen("/dev/null", "w", stderr)) std::abort();
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit memory{uint64_t{2} << 30, uint64_t{2} << 30};
  setrlimit(RLIMIT_AS, &memory);
#endif
}

/// CPU time: a slow machine does not make a run endless.
void limit_run() {
  itimerval t{};
  t.it_value.tv_sec = 20;
  setitimer(ITIMER_PROF, &t, nullptr);
}

void changed_process(const Change& c, const std::vector<Run>& runs, Verdict& v) {
  quieten();
  World w;
  Scenario s;
  for (v.at = 0; v.at < runs.size(); ++v.at) {
    limit_run();
    if (!scenario_of(runs[v.at], s)) _exit(2);
    const Result r = w.run(s, hooks_of(c));
    if (!r.ok) {
      std::snprintf(v.violation, sizeof v.violation, "%s", r.violation.c_str());
      v.caught = true;
      _exit(0);
    }
    v.differ += r.trace_hash != runs[v.at].hash;
  }
  _exit(0);
}

/// The first of `runs` that catches the change is verdict.at.
Verdict hunt(const Change& c, const std::vector<Run>& runs) {
  static auto* const shared =
      ::new (mmap(nullptr, sizeof(Verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          Verdict;
  *shared = Verdict{};
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("cell_hunt: fork");
    std::exit(2);
  }
  if (child == 0) changed_process(c, runs, *shared);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Verdict v = *shared;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return v;
  v.caught = true;
  const int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  std::snprintf(v.violation, sizeof v.violation, "%s",
                sig == SIGABRT   ? "broken invariant"
                : sig == SIGPROF ? "never returns"
                                 : "crash");
  return v;
}

bool parse_run(const std::string& text, Run& out) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  out.config = text.substr(0, colon);
  Scenario s;
  if (out.config == "corpus") {
    out.schedule = text.substr(colon + 1);
    return !out.schedule.empty() && scenario_of(out, s);
  }
  char* end = nullptr;
  out.seed = std::strtoull(text.c_str() + colon + 1, &end, 10);
  return *end == '\0' && end != text.c_str() + colon + 1 && generate(out.seed, out.config, s);
}

/// The run with the true tables. False: the product itself breaks a promise.
bool true_run(World& w, Run& run) {
  Scenario s;
  if (!scenario_of(run, s)) {
    std::printf("FAILED %s: there is no such run\n", run.name().c_str());
    return false;
  }
  const Result r = w.run(s);
  run.hash = r.trace_hash;
  if (!r.ok) std::printf("FAILED %s with the true tables: %s\n", run.name().c_str(), r.violation.c_str());
  return r.ok;
}

// ---- replay

/// A change of the protocol moves what a seed does: then a run of the same configuration must do, or the same
/// schedule with other dice.
bool caught_elsewhere(const Change& c, const Run& old, World& w) {
  constexpr uint64_t kTries = 30000;
  std::vector<Run> others;
  const uint64_t n = old.config == "dance" || old.config == "pair" ? kTries : kTries / 50;
  for (uint64_t i = 1; i <= n; ++i) others.push_back(Run{old.config, i, 0, old.schedule});
  const Verdict v = hunt(c, others);
  if (!v.caught || !true_run(w, others[v.at])) return false;
  std::printf("moved: %s: %s catches it no more, %s does: %s\n", c.name.c_str(), old.name().c_str(),
              others[v.at].name().c_str(), v.violation);
  return true;
}

int replay() {
  std::map<std::string, std::string> list;
  std::string error;
  if (!cells::read_list(source_file("cell_catches.txt"), list, error)) {
    std::printf("%s\n", error.c_str());
    return 1;
  }
  World w;
  size_t tried = 0, moved = 0, lost = 0;
  for (const Change& c : cells::all_changes()) {
    const auto l = list.find(c.name);
    if (l == list.end() || l->second == "large") continue;
    Run run;
    if (!parse_run(l->second, run)) {
      std::printf("FAILED %s: no such run: %s\n", c.name.c_str(), l->second.c_str());
      return 1;
    }
    if (!true_run(w, run)) return 1;
    ++tried;
    const Verdict v = hunt(c, {run});
    if (v.caught) continue;
    ++moved;
    if (caught_elsewhere(c, run, w)) continue;
    ++lost;
    std::printf("FAILED %s: not caught by %s; cell_hunt --find looks for another run\n", c.name.c_str(),
                run.name().c_str());
  }
  std::printf(
      "%zu changed cells replayed: %zu caught by the run in the list, %zu by another one, %zu by none\n",
      tried, tried - moved, moved - lost, lost);
  return lost == 0 && tried != 0 ? 0 : 1;
}

// ---- find

constexpr size_t kRunsPerCell = 3000;

struct Reached {
  std::vector<Run> send[core::kSendPhases][core::kSendEvents];
  std::vector<Run> recv[core::kRecvPhases][core::kRecvEvents];
};

template <size_t P, size_t E>
void add_reached(const uint64_t (&before)[P][E], const uint64_t (&after)[P][E], const Run& run,
                 std::vector<Run> (&out)[P][E]) {
  for (size_t p = 0; p < P; ++p)
    for (size_t e = 0; e < E; ++e)
      if (after[p][e] != before[p][e] && out[p][e].size() < kRunsPerCell) out[p][e].push_back(run);
}

std::vector<Run> corpus() {
  std::vector<Run> runs;
  for (const auto& file : std::filesystem::directory_iterator(source_file("corpus")))
    if (file.path().extension() == ".sched") runs.push_back(Run{"corpus", 0, 0, file.path().stem().string()});
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.schedule < b.schedule; });
  return runs;
}

/// The number of runs that break a promise with the true tables.
size_t survey(uint64_t dances, Reached& out) {
  struct Share {
    const char* config;
    uint64_t runs;
  };
  const Share shares[] = {{"dance", dances},         {"pair", dances / 20},    {"device", dances / 400},
                          {"park", dances / 400},    {"death", dances / 400},  {"storm", dances / 400},
                          {"onerail", dances / 800}, {"default", dances / 800}};
  World w;
  size_t failed = 0;
  const auto look = [&](Run run) {
    const Coverage before = w.coverage();
    if (!true_run(w, run)) {
      ++failed;
      return;
    }
    add_reached(before.send, w.coverage().send, run, out.send);
    add_reached(before.recv, w.coverage().recv, run, out.recv);
  };
  for (const Run& run : corpus()) look(run);
  for (const Share& share : shares)
    for (uint64_t i = 1; i <= share.runs; ++i) look(Run{share.config, i});
  return failed;
}

int find(uint64_t dances) {
  auto reached = std::make_unique<Reached>();
  const size_t failed = survey(dances, *reached);
  size_t caught = 0, survive = 0, unreached = 0;
  for (const Change& c : cells::all_changes()) {
    const std::vector<Run>& runs = c.recv ? reached->recv[c.phase][c.event] : reached->send[c.phase][c.event];
    const Verdict v = hunt(c, runs);
    if (v.caught) {
      ++caught;
      std::printf("%s: %s\t# %s\n", c.name.c_str(), runs[v.at].name().c_str(), v.violation);
    } else if (runs.empty()) {
      ++unreached;
      std::printf("%s: not reached\n", c.name.c_str());
    } else {
      ++survive;
      std::printf("%s: survives %zu runs, of which %" PRIu64 " go another way\n", c.name.c_str(), runs.size(),
                  v.differ);
    }
    std::fflush(stdout);
  }
  std::printf("# %zu caught, %zu survive, %zu of cells that no run came to\n", caught, survive, unreached);
  return failed == 0 ? 0 : 1;
}

int try_one(const std::string& name, const std::string& text) {
  Run run;
  if (!parse_run(text, run)) return 2;
  for (const Change& c : cells::all_changes()) {
    if (c.name != name) continue;
    Scenario s;
    scenario_of(run, s);
    World w;
    const Result r = w.run(s, hooks_of(c), true);
    std::printf("%s\n", r.ok ? "not caught" : r.violation.c_str());
    return 0;
  }
  std::printf("no such change\n");
  return 2;
}

}  // namespace
}  // namespace bfo::sim

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (argc == 1) return bfo::sim::replay();
  if (what == "--find" && argc == 3) return bfo::sim::find(std::strtoull(argv[2], nullptr, 10));
  if (what == "--try" && argc == 4) return bfo::sim::try_one(argv[2], argv[3]);
  std::fprintf(stderr, "usage: cell_hunt [--find N | --try CHANGE CONFIG:SEED]\n");
  return 2;
}
