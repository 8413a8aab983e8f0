// SPDX-License-Identifier: BSD-3-Clause
//
// main.cc: bfo-sim, the command.

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "test/sim/coverage.h"
#include "test/sim/scenario.h"
#include "test/sim/shrink.h"
#include "test/sim/world.h"

namespace bfo::sim {
namespace {

struct Options {
  uint64_t seed = 1;
  uint64_t runs = 1;
  double minutes = 0;
  double progress = 60;  ///< seconds between lines that tell how far it is
  std::string config = "default";
  std::string replay;
  std::string save;      ///< where a shrunk schedule goes
  std::string coverage;  ///< list of cells that may stay unreached
  bool coverage_report = false;
  bool trace = false;
  bool print_schedule = false;
  bool shrink = true;
  bool keep_going = false;
  Hooks hooks;
};

[[noreturn]] void usage(int status) {
  std::fputs(
      "usage: bfo-sim [--seed S] [--runs N] [--minutes M] [--config NAME] [--trace]\n"
      "Runs the component's protocol code on a simulated network in virtual time; run i has seed S+i.\n"
      "  --minutes M      stop after M minutes even if there are runs left\n"
      "  --progress S     say every S seconds on stderr how far it is (default 60; 0: never)\n"
      "  --replay FILE    run the schedule in FILE instead\n"
      "  --print          print the schedule of the seed and exit\n"
      "  --save FILE      write a failing schedule, shrunk, to FILE (default: print it)\n"
      "  --no-shrink      print the line that replays a failure and stop there\n"
      "  --keep-going     count failing seeds instead of stopping at the first\n"
      "  --coverage       print the cells of the state tables that were never used\n"
      "  --require FILE   fail if such a cell is not listed in FILE (\"table phase event: reason\")\n"
      "  --no-fence, --no-gate   take a safety rule out, to see the checkers notice\n"
      "configurations:",
      status == 0 ? stdout : stderr);
  for (const std::string& n : config_names()) std::fprintf(status == 0 ? stdout : stderr, " %s", n.c_str());
  std::fputc('\n', status == 0 ? stdout : stderr);
  std::exit(status);
}

[[noreturn]] void complain(const std::string& what) {
  std::fprintf(stderr, "bfo-sim: %s\n", what.c_str());
  std::exit(2);
}

uint64_t number(const std::string& name, const char* text) {
  char* end = nullptr;
  const uint64_t v = std::strtoull(text, &end, 0);
  if (*text == '\0' || *end != '\0') complain(name + " needs a number, not \"" + text + "\"");
  return v;
}

Options parse_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value;
    const size_t eq = name.find('=');
    const bool inline_value = eq != std::string::npos;
    if (inline_value) {
      value = name.substr(eq + 1);
      name.resize(eq);
    }
    auto arg = [&]() -> const char* {
      if (inline_value) return value.c_str();
      if (i + 1 >= argc) complain(name + " needs a value");
      return argv[++i];
    };
    if (name == "--seed")
      o.seed = number(name, arg());
    else if (name == "--runs")
      o.runs = number(name, arg());
    else if (name == "--minutes")
      o.minutes = std::atof(arg());
    else if (name == "--progress")
      o.progress = std::atof(arg());
    else if (name == "--config")
      o.config = arg();
    else if (name == "--replay")
      o.replay = arg();
    else if (name == "--save")
      o.save = arg();
    else if (name == "--require")
      o.coverage = arg();
    else if (name == "--coverage")
      o.coverage_report = true;
    else if (name == "--trace")
      o.trace = true;
    else if (name == "--print")
      o.print_schedule = true;
    else if (name == "--no-shrink")
      o.shrink = false;
    else if (name == "--keep-going")
      o.keep_going = true;
    else if (name == "--no-fence")
      o.hooks.no_fence = true;
    else if (name == "--no-gate")
      o.hooks.no_gate = true;
    else if (name == "--help" || name == "-h")
      usage(0);
    else {
      std::fprintf(stderr, "bfo-sim: unknown option \"%s\"\n", name.c_str());
      usage(2);
    }
  }
  Scenario s;
  if (o.replay.empty() && !generate(1, o.config, s))
    complain("there is no configuration \"" + o.config + "\"; --help lists them");
  return o;
}

int replay(const Options& o) {
  std::ifstream in(o.replay);
  if (!in) complain("cannot read " + o.replay);
  std::stringstream text;
  text << in.rdbuf();
  Scenario s;
  std::string error;
  if (!parse(text.str(), s, error)) complain(o.replay + ": " + error);
  World w;
  const Result r = w.run(s, o.hooks, o.trace);
  std::printf("%s: %s (%" PRIu64 " messages, %" PRIu64 " restarts, trace %016" PRIx64 ")\n", o.replay.c_str(),
              r.ok ? "ok" : r.violation.c_str(), r.stats.messages, r.stats.restarts, r.trace_hash);
  if (!r.ok && !o.save.empty()) {
    std::ofstream(o.save) << "# " << r.violation << "\n" << print(shrink(w, s, o.hooks, 4000));
    std::printf("shrunk schedule: %s\n", o.save.c_str());
  }
  return r.ok ? 0 : 1;
}

void report_failure(World& w, const Options& o, const Scenario& s, uint64_t seed, const Result& r) {
  std::printf("FAILED seed %" PRIu64 ": %s\n", seed, r.violation.c_str());
  std::printf("replay: test/sim/bfo-sim --seed %" PRIu64 " --config %s%s%s --trace\n", seed, o.config.c_str(),
              o.hooks.no_fence ? " --no-fence" : "", o.hooks.no_gate ? " --no-gate" : "");
  if (!o.shrink) return;
  const Scenario small = shrink(w, s, o.hooks, 3000);
  const Result again = w.run(small, o.hooks, false);
  std::string text = "# " + again.violation + "\n" + print(small);
  if (o.save.empty()) {
    std::printf("shrunk to %zu messages and %zu faults:\n%s", small.pairs.size(), small.faults.size(),
                text.c_str());
  } else {
    std::ofstream(o.save) << text;
    std::printf("shrunk to %zu messages and %zu faults: %s\n", small.pairs.size(), small.faults.size(),
                o.save.c_str());
  }
}

struct Sums {
  Stats total;
  uint64_t runs = 0;
  uint64_t with_restart = 0;
  uint64_t failures = 0;
  uint64_t rail_ns = 0;
  uint64_t hash = 0;
};

void add(Sums& sums, const Result& r, const Machine& m) {
  const Stats& s = r.stats;
  Stats& t = sums.total;
  ++sums.runs;
  if (s.restarts != 0) ++sums.with_restart;
  sums.rail_ns += s.virtual_ns * m.procs * m.rails;
  sums.hash = mix(sums.hash, r.trace_hash);
  t.messages += s.messages;
  t.faults += s.faults;
  t.failovers += s.failovers;
  t.restarts += s.restarts;
  t.resent_bytes += s.resent_bytes;
  t.application_bytes += s.application_bytes;
  t.posted_bytes += s.posted_bytes;
  t.control_bytes += s.control_bytes;
  t.late_packets += s.late_packets;
  t.duplicates += s.duplicates;
  t.stale += s.stale;
  t.malformed += s.malformed;
  t.forged += s.forged;
  t.events += s.events;
  t.lost_requests += s.lost_requests;
  for (int i = 0; i < 4; ++i) t.by_protocol[i] += s.by_protocol[i];
}

void print_sums(const Sums& sums, const Options& o, double seconds) {
  const double n = sums.runs ? static_cast<double>(sums.runs) : 1;
  const Stats& t = sums.total;
  auto mean = [n](uint64_t v) { return static_cast<double>(v) / n; };
  std::printf("%" PRIu64 " runs of \"%s\" from seed %" PRIu64 ", %" PRIu64
              " failed, %.1f s, %.2f ms per run\n",
              sums.runs, o.config.c_str(), o.seed, sums.failures, seconds, seconds * 1000 / n);
  std::printf(
      "mean per run: %.0f messages (%.0f eager, %.0f rendezvous, %.0f reads, %.0f writes), %.1f faults, "
      "%.1f rail epochs lost, %.1f restarts (%.1f %% of runs have one)\n",
      mean(t.messages), mean(t.by_protocol[0]), mean(t.by_protocol[1]), mean(t.by_protocol[2]),
      mean(t.by_protocol[3]), mean(t.faults), mean(t.failovers), mean(t.restarts),
      100.0 * static_cast<double>(sums.with_restart) / n);
  std::printf(
      "              %.0f application bytes, %.0f payload bytes on rails, %.0f resent, %.0f header bytes, "
      "%.1f late packets, %.1f duplicates, %.1f stale, %.2f malformed of %.2f forged, %.0f events, "
      "%.2f lost requests\n",
      mean(t.application_bytes), mean(t.posted_bytes), mean(t.resent_bytes), mean(t.control_bytes),
      mean(t.late_packets), mean(t.duplicates), mean(t.stale), mean(t.malformed), mean(t.forged),
      mean(t.events), mean(t.lost_requests));
  const double years = static_cast<double>(sums.rail_ns) / 1e9 / 86400 / 365;
  // At one failure of a rail in 1000 hours of work, which is pessimistic.
  const double lived = static_cast<double>(t.failovers) / 2 * 1000 / 8766;
  std::printf("rail-years per hour: %.2f of virtual time; %.0f by failures seen, at one in 1000 h per rail\n",
              years * 3600 / seconds, lived * 3600 / seconds);
  std::printf("trace of all runs: %016" PRIx64 "\n", sums.hash);
}

/// A line now and then, so that a run of hours is seen to get on.
void print_progress(const Sums& sums, const Options& o, double seconds) {
  std::fprintf(stderr,
               "bfo-sim: %.0f s: %" PRIu64 " of %" PRIu64 " runs of \"%s\", %" PRIu64
               " failed, %.2f ms per run\n",
               seconds, sums.runs, o.runs, o.config.c_str(), sums.failures,
               seconds * 1000 / static_cast<double>(sums.runs));
}

int run_seeds(const Options& o) {
  World w;
  Sums sums;
  Scenario s;
  const auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double next_line = o.progress;
  for (uint64_t i = 0; i < o.runs; ++i) {
    if (o.minutes > 0 && elapsed() > o.minutes * 60) break;
    const uint64_t seed = o.seed + i;
    generate(seed, o.config, s);
    const Result r = w.run(s, o.hooks, o.trace);
    add(sums, r, s.machine);
    if (o.progress > 0 && elapsed() >= next_line) {
      next_line = elapsed() + o.progress;
      print_progress(sums, o, elapsed());
    }
    if (r.ok) continue;
    ++sums.failures;
    if (o.keep_going) {
      if (sums.failures <= 40) std::printf("FAILED seed %" PRIu64 ": %s\n", seed, r.violation.c_str());
      continue;
    }
    report_failure(w, o, s, seed, r);
    break;
  }
  print_sums(sums, o, elapsed());
  bool ok = sums.failures == 0;
  if (o.coverage_report) print_unreached(w.coverage());
  if (!o.coverage.empty()) {
    // A slow machine stops early: then an unreached cell says nothing.
    if (sums.runs == o.runs)
      ok &= check_coverage(w.coverage(), o.coverage);
    else
      std::printf("table cells: not judged, only %" PRIu64 " of %" PRIu64 " runs in the time given\n",
                  sums.runs, o.runs);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace bfo::sim

int main(int argc, char** argv) {
  using namespace bfo::sim;
  const Options o = parse_options(argc, argv);
  if (!o.replay.empty()) return replay(o);
  if (o.print_schedule) {
    Scenario s;
    generate(o.seed, o.config, s);
    std::fputs(print(s).c_str(), stdout);
    return 0;
  }
  return run_seeds(o);
}
