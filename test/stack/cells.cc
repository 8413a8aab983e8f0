// SPDX-License-Identifier: BSD-3-Clause
//
// cells.cc: runs with one cell of the PML's state tables changed (test/sim/cell_changes.h), in a process of
// their own, because a changed component may break an invariant, crash or never return. A run that ends badly
// has caught the change; the same run with the true tables must end well.
//
//   cells            replays test/stack/cell_catches.txt ("change: CONFIG SEED", or "change: script NAME" for
//                    test/stack/scripts/NAME.script)
//   cells --find N   looks for a run that catches each change: the scripts, N runs of "echoes" and a share of
//                    other configurations are made once to see which cells they come to, then repeated with
//                    each of those cells changed. Prints lines for cell_catches.txt; a change that no run
//                    catches is printed with the number of runs that came to its cell and of those that went
//                    another way because of it.
//   cells --find N CHANGE...   the same for changes whose names begin so
//   cells --try CHANGE RUN     one such run, with its trace
//
// bfo-time-limit: 300

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "test/sim/cell_changes.h"
#include "test/sim/sanitized.h"
#include "test/stack/script.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

using cells::Change;

struct Run {
  std::string config;  ///< or "script"
  uint64_t seed = 0;
  std::string script = {};
  uint64_t hash = 0;  ///< of the trace with the true tables
  std::string name() const { return config + " " + (script.empty() ? std::to_string(seed) : script); }
};

std::string source_file(const std::string& name) {
  const char* const top = std::getenv("BFO_SRCDIR");
  return std::string(top != nullptr ? top : ".") + "/test/stack/" + name;
}

/// False: there is no such run.
bool scenario_of(const Run& run, Scenario& out) {
  if (run.script.empty()) return generate(run.seed, run.config, out);
  std::ifstream in(source_file("scripts/" + run.script + ".script"));
  std::stringstream text;
  text << in.rdbuf();
  std::string error;
  return in && parse_script(text.str(), out, error);
}

bool parse_run(const std::string& text, Run& out) {
  std::istringstream words(text);
  std::string word;
  if (!(words >> out.config >> word)) return false;
  Scenario s;
  if (out.config == "script") {
    out.script = word;
  } else {
    char* end = nullptr;
    out.seed = std::strtoull(word.c_str(), &end, 10);
    if (*end != '\0') return false;
  }
  return scenario_of(out, s);
}

/// What the changed process leaves in shared memory.
struct Verdict {
  size_t at;        ///< the run it was busy with
  uint64_t differ;  ///< runs that ended well but went another way
  bool caught;
  char violation[160];
};

void quieten() {
  if (!std::freopen("/dev/null", "w", stderr)) std::abort();
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
#ifndef BFO_ADDRESS_SANITIZER
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
  for (v.at = 0; v.at < runs.size(); ++v.at) {
    limit_run();
    Scenario s;
    if (!scenario_of(runs[v.at], s)) _exit(2);
    World w(s);
    w.tables = &c.tables;
    const Result r = w.run();
    if (r.failed) {
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
    std::perror("cells: fork");
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

/// Which cells a run comes to, by row and column of both tables.
struct Reached {
  std::vector<Run> send[core::kSendPhases][core::kSendEvents];
  std::vector<Run> recv[core::kRecvPhases][core::kRecvEvents];
};
constexpr size_t kRunsPerCell = 2000;

/// The run with the true tables. False: the product itself breaks a promise.
bool true_run(Run& run, Reached* out) {
  Scenario s;
  if (!scenario_of(run, s)) {
    std::printf("FAILED %s: there is no such run\n", run.name().c_str());
    return false;
  }
  World w(s);
  uint64_t sends[core::kSendPhases][core::kSendEvents] = {};
  uint64_t recvs[core::kRecvPhases][core::kRecvEvents] = {};
  const auto add = [](const auto& counts, auto& sum) {
    for (size_t i = 0; i < std::size(sum); ++i)
      for (size_t j = 0; j < std::size(sum[i]); ++j) sum[i][j] += counts[i][j];
  };
  w.on_end = [&](const Engine& e) {
    add(e.machine().sends(), sends);
    add(e.machine().recvs(), recvs);
  };
  const Result r = w.run();
  run.hash = r.trace_hash;
  if (r.failed) std::printf("FAILED %s with the true tables: %s\n", run.name().c_str(), r.violation.c_str());
  if (out == nullptr || r.failed) return !r.failed;
  const auto note = [&run](const auto& counts, auto& lists) {
    for (size_t i = 0; i < std::size(counts); ++i)
      for (size_t j = 0; j < std::size(counts[i]); ++j)
        if (counts[i][j] != 0 && lists[i][j].size() < kRunsPerCell) lists[i][j].push_back(run);
  };
  note(sends, out->send);
  note(recvs, out->recv);
  return true;
}

// ---- replay

/// A change of the protocol moves what a seed does: then a run of the same configuration must do.
bool caught_elsewhere(const Change& c, const Run& old) {
  constexpr uint64_t kTries = 3000;
  std::vector<Run> others;
  if (!old.script.empty()) return false;
  for (uint64_t i = 1; i <= kTries; ++i) others.push_back(Run{old.config, i});
  const Verdict v = hunt(c, others);
  if (!v.caught || !true_run(others[v.at], nullptr)) return false;
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
  std::map<std::string, Run> known;  // that end well
  size_t tried = 0, moved = 0, lost = 0;
  for (const Change& c : cells::all_changes()) {
    const auto l = list.find(c.name);
    if (l == list.end() || l->second == "large") continue;
    Run run;
    if (!parse_run(l->second, run)) {
      std::printf("FAILED %s: no such run: %s\n", c.name.c_str(), l->second.c_str());
      return 1;
    }
    if (known.count(run.name()) == 0 && !true_run(run, nullptr)) return 1;
    known.emplace(run.name(), run);
    ++tried;
    const Verdict v = hunt(c, {run});
    if (v.caught) continue;
    ++moved;
    if (caught_elsewhere(c, run)) continue;
    ++lost;
    std::printf("FAILED %s: not caught by %s; cells --find looks for another run\n", c.name.c_str(),
                run.name().c_str());
  }
  std::printf(
      "%zu changed cells replayed: %zu caught by the run in the list, %zu by another one, %zu by none\n",
      tried, tried - moved, moved - lost, lost);
  return lost == 0 && tried != 0 ? 0 : 1;
}

// ---- find

struct Share {
  const char* config;
  uint64_t part;  // of the runs of the first one
};
constexpr Share kShares[] = {{"echoes", 1},  {"dance", 2},    {"words", 4},        {"barrier", 4},
                             {"reopen", 4},  {"alone", 4},    {"fins", 8},         {"pair", 20},
                             {"slow", 30},   {"told", 100},   {"unfenceable", 60}, {"packets", 80},
                             {"storm", 80},  {"device", 80},  {"park", 300},       {"onerail", 100},
                             {"death", 100}, {"forged", 100}, {"programs", 100},   {"strangers", 100}};

std::vector<Run> scripts() {
  std::vector<Run> runs;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(source_file("scripts"), none))
    if (file.path().extension() == ".script") runs.push_back(Run{"script", 0, file.path().stem().string()});
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.script < b.script; });
  return runs;
}

bool wanted(const Change& c, int n, char** names) {
  for (int i = 0; i < n; ++i)
    if (c.name.rfind(names[i], 0) == 0) return true;
  return n == 0;
}

int find(uint64_t runs, int n_names, char** names) {
  auto reached = std::make_unique<Reached>();
  size_t failed = 0, caught = 0, survive = 0, unreached = 0;
  const auto look = [&](Run run) { failed += !true_run(run, reached.get()); };
  for (const Run& run : scripts()) look(run);
  for (const Share& share : kShares)
    for (uint64_t seed = 1; seed <= runs / share.part; ++seed) look(Run{share.config, seed});
  for (const Change& c : cells::all_changes()) {
    if (!wanted(c, n_names, names)) continue;
    const std::vector<Run>& list = c.recv ? reached->recv[c.phase][c.event] : reached->send[c.phase][c.event];
    const Verdict v = hunt(c, list);
    if (v.caught) {
      ++caught;
      const std::string why(v.violation, std::strcspn(v.violation, "\n"));
      std::printf("%s: %s\t# %s\n", c.name.c_str(), list[v.at].name().c_str(), why.c_str());
    } else if (list.empty()) {
      ++unreached;
      std::printf("%s: not reached\n", c.name.c_str());
    } else {
      ++survive;
      std::printf("%s: survives %zu runs, of which %llu go another way\n", c.name.c_str(), list.size(),
                  static_cast<unsigned long long>(v.differ));
    }
    std::fflush(stdout);
  }
  std::printf("# %zu caught, %zu survive, %zu of cells that no run came to\n", caught, survive, unreached);
  return failed == 0 ? 0 : 1;
}

int try_one(const std::string& name, const std::string& text) {
  Run run;
  Scenario s;
  if (!parse_run(text, run) || !scenario_of(run, s)) return 2;
  for (const Change& c : cells::all_changes()) {
    if (c.name != name) continue;
    World w(s, true);
    w.tables = &c.tables;
    const Result r = w.run();
    std::printf("%s\n", r.failed ? r.violation.c_str() : "not caught");
    return 0;
  }
  std::printf("no such change\n");
  return 2;
}

}  // namespace
}  // namespace bfo::stack

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (argc == 1) return bfo::stack::replay();
  if (what == "--find" && argc >= 3)
    return bfo::stack::find(std::strtoull(argv[2], nullptr, 10), argc - 3, argv + 3);
  if (what == "--try" && argc == 4) return bfo::stack::try_one(argv[2], argv[3]);
  std::fprintf(stderr, "usage: cells [--find N [CHANGE...] | --try CHANGE RUN]\n");
  return 2;
}
