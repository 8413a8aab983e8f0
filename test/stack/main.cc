// SPDX-License-Identifier: BSD-3-Clause
//
// main.cc: bfo-stack, runs of the whole stack in virtual time from the command line.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "test/stack/coverage.h"
#include "test/stack/script.h"
#include "test/stack/shrink.h"
#include "test/stack/world.h"

namespace {

using namespace bfo::stack;

int usage() {
  std::fprintf(
      stderr,
      "usage: bfo-stack [--config NAME|list] [--seed N] [--runs N] [--trace] [--keep-going] [--seconds N]\n"
      "                 [--shrink] [--processes LIST] [--messages LIST] [--faults LIST] [--print]\n"
      "                 [--coverage] [--require FILE]\n"
      "       bfo-stack --script FILE [--trace]\n"
      "Runs the PML on the BTL's engine on simulated devices. One seed is one run.\n"
      "  --shrink   of a run that fails, leave out processes, messages and faults while it still fails, and\n"
      "             print the line that replays what is left\n"
      "  --print    print the run as a script instead\n"
      "  --script   make the run that FILE describes\n"
      "  --coverage print the cells of the PML's state tables that no run came to\n"
      "  --require  fail if such a cell is not listed in FILE (\"table phase event: reason\")\n"
      "  LIST       what takes part, by number: 0,3-5 or none\n");
  return 2;
}

struct Options {
  std::string config = "default";
  std::string script;
  std::string require;  // list of cells that may stay unreached
  bool coverage = false;
  bool print = false;
  uint64_t seed = 1;
  uint64_t runs = 0;  // not said: 1, or as many as there is time for
  double seconds = 0;
  bool trace = false;
  bool keep_going = false;
  bool shrink = false;
  std::vector<std::string> cut;  // options and values
};

double elapsed(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

Scenario scenario_of(const Options& o, uint64_t seed) {
  Scenario s;
  if (!generate(seed, o.config, s)) std::exit(usage());
  Cut c = whole(s);
  for (size_t i = 0; i + 1 < o.cut.size(); i += 2)
    if (!parse_option(o.cut[i], o.cut[i + 1], c)) std::exit(usage());
  return o.cut.empty() ? s : cut(s, c);
}

/// False: it failed.
bool run_one(const Options& o, uint64_t seed, Result* result, Coverage* coverage) {
  const Scenario s = scenario_of(o, seed);
  if (o.trace) std::printf("%s\n", print(s.machine).c_str());
  World world(s, o.trace);
  world.on_end = [coverage](const Engine& pml) { coverage->add(pml); };
  *result = world.run();
  if (!result->failed) return true;
  std::printf("FAILED --config %s --seed %llu: %s\n", o.config.c_str(), static_cast<unsigned long long>(seed),
              result->violation.c_str());
  return false;
}

int run_script(const Options& o) {
  std::ifstream in(o.script);
  std::stringstream text;
  text << in.rdbuf();
  Scenario s;
  std::string error = "cannot be read";
  if (!in || !parse_script(text.str(), s, error)) {
    std::fprintf(stderr, "bfo-stack: %s: %s\n", o.script.c_str(), error.c_str());
    return 2;
  }
  World world(s, o.trace);
  const Result r = world.run();
  std::printf("%s: %s; %llu messages, %llu rails lost, %llu restarts, trace %016llx\n", o.script.c_str(),
              r.failed ? r.violation.c_str() : "ok", static_cast<unsigned long long>(r.messages),
              static_cast<unsigned long long>(r.failovers), static_cast<unsigned long long>(r.restarts),
              static_cast<unsigned long long>(r.trace_hash));
  return r.failed ? 1 : 0;
}

/// The run may end its process: it is not made here.
int shrink_one(const Options& o) {
  const Scenario s = scenario_of(o, o.seed);
  const Cut c = shrink(s);
  const std::string how = failure_of(cut(s, c));
  std::printf("%s: --config %s --seed %llu%s\n", how.empty() ? "does not fail" : how.c_str(),
              o.config.c_str(), static_cast<unsigned long long>(o.seed), print(c).c_str());
  return how.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (a == "--trace") {
      o.trace = true;
    } else if (a == "--keep-going") {
      o.keep_going = true;
    } else if (a == "--coverage") {
      o.coverage = true;
    } else if (a == "--print") {
      o.print = true;
    } else if (a == "--shrink") {
      o.shrink = true;
    } else if (value == nullptr) {
      return usage();
    } else if (++i; a == "--script") {
      o.script = value;
    } else if (a == "--require") {
      o.require = value;
    } else if (a == "--config") {
      o.config = value;
    } else if (a == "--seed") {
      o.seed = std::strtoull(value, nullptr, 10);
    } else if (a == "--runs") {
      o.runs = std::strtoull(value, nullptr, 10);
    } else if (a == "--seconds") {
      o.seconds = std::strtod(value, nullptr);
    } else if (a == "--processes" || a == "--messages" || a == "--faults") {
      o.cut.insert(o.cut.end(), {a, value});
    } else {
      return usage();
    }
  }
  if (o.runs == 0) o.runs = o.seconds != 0 ? ~uint64_t{0} : 1;
  if (o.config == "list") {
    for (const std::string& name : config_names()) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (!o.script.empty()) return run_script(o);
  if (o.print) return std::fputs(script_of(scenario_of(o, o.seed)).c_str(), stdout) < 0 ? 1 : 0;
  if (o.shrink) return shrink_one(o);
  const auto start = std::chrono::steady_clock::now();
  Result total;
  uint64_t failed = 0;
  uint64_t n = 0;
  Coverage coverage;
  for (; n < o.runs && (o.seconds == 0 || elapsed(start) < o.seconds); ++n) {
    Result r;
    if (!run_one(o, o.seed + n, &r, &coverage)) ++failed;
    total.events += r.events;
    total.packets += r.packets;
    total.messages += r.messages;
    total.failovers += r.failovers;
    total.restarts += r.restarts;
    total.late_landed += r.late_landed;
    total.virtual_ns += r.virtual_ns;
    total.healed_ns = std::max(total.healed_ns, r.healed_ns);
    total.trace_hash = bfo::sim::mix(total.trace_hash, r.trace_hash);
    if (r.failed && !o.keep_going) break;
  }
  const double s = elapsed(start);
  const auto u = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf(
      "%s: %llu runs, %llu failed, %.1f s, %.0f runs a second; %llu messages, %llu packets, %llu rails lost, "
      "%llu "
      "restarts, %llu late accesses, %.1f s virtual, longest end after the last fault %llu ms, trace "
      "%016llx\n",
      o.config.c_str(), u(n), u(failed), s, static_cast<double>(n) / s, u(total.messages), u(total.packets),
      u(total.failovers), u(total.restarts), u(total.late_landed),
      static_cast<double>(total.virtual_ns) / 1e9, u(total.healed_ns / kMs), u(total.trace_hash));
  if (o.coverage) print_unreached(coverage);
  // A slow machine stops early: then an unreached cell says nothing.
  if (!o.require.empty() && n < o.runs)
    std::printf("table cells: not judged, only %llu of %llu runs in the time given\n", u(n), u(o.runs));
  else if (!o.require.empty() && !check_coverage(coverage, o.require))
    return 1;
  return failed != 0 ? 1 : 0;
}
