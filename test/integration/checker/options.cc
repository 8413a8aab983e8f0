// SPDX-License-Identifier: BSD-3-Clause
//
// Command line of the checker: long options, value as the next argument or behind '='.
#include "test/integration/checker/options.h"

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

namespace bfo::checker {
namespace {

bool number(const std::string& text, double low, double high, double* value) {
  char* end = nullptr;
  errno = 0;
  const double v = std::strtod(text.c_str(), &end);
  if (errno || end == text.c_str()) return false;
  double scale = 1;
  if (*end == 'k' || *end == 'K')
    scale = 1 << 10, ++end;
  else if (*end == 'm' || *end == 'M')
    scale = 1 << 20, ++end;
  else if (*end == 'g' || *end == 'G')
    scale = 1 << 30, ++end;
  if (*end || v * scale < low || v * scale > high) return false;
  *value = v * scale;
  return true;
}

}  // namespace

const char* usage() {
  return "usage: mpirun ... checker [options]\n"
         "  --quick            smaller rounds (seconds instead of tens of seconds)\n"
         "  --seconds S        repeat the phases until S seconds have passed\n"
         "  --bytes N[k|m|g]   repeat the phases until N bytes have been verified\n"
         "  --phase NAME       only this phase (may be repeated, or a comma-separated list)\n"
         "  --list             print the phases and exit\n"
         "  --seed N           replay a run (printed in the summary)\n"
         "  --threads N        MPI_THREAD_MULTIPLE with N threads per rank\n"
         "  --max-size N[k|m]  largest message (default 5m, at most 15m)\n"
         "  --around N         also use sizes around N bytes (may be repeated)\n"
         "  --hold-ms N        watch received buffers for late writes for N ms (default 300)\n"
         "  --stall-s N        give up after N seconds without progress (default 60)\n"
         "  --self-test        damage the own data in every way and check that it is noticed\n"
         "  --stall-test       wait for a message that never comes: must end with status 4\n"
         "  --stock-ob1        leave out what ob1 of Open MPI 4.1.4 gets wrong: restarted persistent "
         "buffered\n"
         "                     sends beyond the eager limit (it sends other bytes) and truncated rendezvous\n"
         "                     messages (it writes behind the end of the receive buffer)\n"
         "  --verbose          name each phase when it starts\n";
}

bool parse(int argc, char** argv, Options* o, std::string* error) {
  const std::map<std::string, bool*> flags{{"--quick", &o->quick},
                                           {"--list", &o->list},
                                           {"--help", &o->help},
                                           {"--self-test", &o->self_test},
                                           {"--stall-test", &o->stall_test},
                                           {"--verbose", &o->verbose},
                                           {"--stock-ob1", &o->stock_ob1}};
  struct Number {
    double low, high;
    std::function<void(double)> set;
  };
  const std::map<std::string, Number> numbers{
      {"--seconds", {0, 1e6, [o](double v) { o->seconds = v; }}},
      {"--bytes", {0, 1e15, [o](double v) { o->bytes = static_cast<uint64_t>(v); }}},
      {"--threads", {1, 16, [o](double v) { o->threads = static_cast<int>(v); }}},
      {"--max-size", {64, 15 << 20, [o](double v) { o->max_size_bytes = static_cast<uint64_t>(v); }}},
      {"--around", {1, 15 << 20, [o](double v) { o->around.push_back(static_cast<uint64_t>(v)); }}},
      {"--hold-ms", {0, 600000, [o](double v) { o->hold_ms = static_cast<int>(v); }}},
      {"--stall-s", {1, 36000, [o](double v) { o->stall_s = static_cast<int>(v); }}}};
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    std::string value;
    if (const auto eq = name.find('='); eq != std::string::npos) {
      value = name.substr(eq + 1);
      name.resize(eq);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    if (const auto found = numbers.find(name); found != numbers.end()) {
      const auto& [low, high, set] = found->second;
      double v = 0;
      if (!number(value, low, high, &v)) {
        *error = name + " " + value + ": expected a number from " +
                 std::to_string(static_cast<int64_t>(low)) + " to " +
                 std::to_string(static_cast<int64_t>(high));
        return false;
      }
      set(v);
    } else if (name == "--seed") {
      o->seed = std::strtoull(value.c_str(), nullptr, 0);
      if (!o->seed) {
        *error = "--seed " + value + ": expected a number other than 0";
        return false;
      }
    } else if (name == "--phase") {
      std::istringstream list(value);
      for (std::string phase; std::getline(list, phase, ',');) o->phases.push_back(phase);
    } else {
      *error = "unknown argument " + name + "; see --help";
      return false;
    }
  }
  return true;
}

}  // namespace bfo::checker
