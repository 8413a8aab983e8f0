// SPDX-License-Identifier: BSD-3-Clause
//
// shrink.cc: see shrink.h.
#include "test/stack/shrink.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr unsigned kRunSeconds = 60;

bool has(const std::vector<uint32_t>& list, uint32_t i) {
  return std::binary_search(list.begin(), list.end(), i);
}

std::vector<uint32_t> all(size_t n) {
  std::vector<uint32_t> list(n);
  std::iota(list.begin(), list.end(), 0u);
  return list;
}

std::string print(const char* option, const std::vector<uint32_t>& list) {
  std::string text = std::string(" --") + option + " ";
  if (list.empty()) return text + "none";
  for (size_t i = 0; i < list.size(); ++i) {
    const size_t from = i;
    while (i + 1 < list.size() && list[i + 1] == list[i] + 1) ++i;
    if (from != 0) text += ",";
    text += std::to_string(list[from]);
    if (i != from) text += (i == from + 1 ? "," : "-") + std::to_string(list[i]);
  }
  return text;
}

/// The word before the colon.
std::string kind(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

class Shrinker {
 public:
  Shrinker(const Scenario& s, uint32_t runs)
      : scenario_(s), best_(whole(s)), kind_(failure_of(s)), left_(runs) {}

  Cut work() {
    for (bool better = !kind_.empty(); better;) {
      better = drop_processes();
      better |= drop(&Cut::faults);
      better |= drop(&Cut::messages);
    }
    return best_;
  }

 private:
  bool accept(const Cut& c) {
    if (left_ == 0) return false;
    --left_;
    if (failure_of(cut(scenario_, c)) != kind_) return false;
    best_ = c;
    return true;
  }

  bool drop_processes() {
    bool better = false;
    for (size_t i = best_.processes.size(); i-- > 0 && best_.processes.size() > 2;) {
      Cut c = best_;
      c.processes.erase(c.processes.begin() + static_cast<ptrdiff_t>(i));
      better |= accept(c);
    }
    return better;
  }

  /// Halves first, then quarters, down to single ones.
  bool drop(std::vector<uint32_t> Cut::*list) {
    bool better = false;
    for (size_t chunk = std::max<size_t>(1, (best_.*list).size() / 2);; chunk /= 2) {
      for (size_t at = 0; at < (best_.*list).size();) {
        Cut c = best_;
        auto& l = c.*list;
        l.erase(l.begin() + static_cast<ptrdiff_t>(at),
                l.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, l.size())));
        if (accept(c))
          better = true;
        else
          at += chunk;
      }
      if (chunk <= 1) return better;
    }
  }

  const Scenario& scenario_;
  Cut best_;
  std::string kind_;
  uint32_t left_;
};

}  // namespace

Cut whole(const Scenario& s) {
  return {all(s.machine.procs), all(s.program.pairs.size()), all(s.faults.size())};
}

Scenario cut(const Scenario& s, const Cut& c) {
  Scenario out = s;
  const std::vector<uint32_t> processes = c.processes.empty() ? all(s.machine.procs) : c.processes;
  std::vector<uint32_t> number(s.machine.procs);
  for (size_t i = 0; i < processes.size(); ++i) number[processes[i]] = static_cast<uint32_t>(i);
  out.machine.procs = out.program.procs = static_cast<uint32_t>(processes.size());
  out.program.pairs.clear();
  out.faults.clear();
  for (uint32_t i = 0; i < s.program.pairs.size(); ++i) {
    sim::PairPlan p = s.program.pairs[i];
    if (!has(c.messages, i) || !has(processes, p.src) || !has(processes, p.dst)) continue;
    p.src = number[p.src];
    p.dst = number[p.dst];
    out.program.pairs.push_back(p);
  }
  std::erase_if(out.machine.rates, [&](const PortRate& r) { return !has(processes, r.process); });
  for (PortRate& r : out.machine.rates) r.process = number[r.process];
  for (uint32_t i = 0; i < s.faults.size(); ++i) {
    Fault f = s.faults[i];
    if (!has(c.faults, i) || !has(processes, f.p) || !has(processes, f.q)) continue;
    f.p = number[f.p];
    f.q = number[f.q];
    out.faults.push_back(f);
  }
  settle(out);
  return out;
}

std::string print(const Cut& c) {
  return print("processes", c.processes) + print("messages", c.messages) + print("faults", c.faults);
}

bool parse_list(const std::string& text, std::vector<uint32_t>& out) {
  out.clear();
  if (text == "none") return true;
  const char* at = text.c_str();
  for (;;) {
    char* end = nullptr;
    const unsigned long from = std::strtoul(at, &end, 10);
    if (end == at) return false;
    unsigned long to = from;
    if (*end == '-') {
      at = end + 1;
      to = std::strtoul(at, &end, 10);
      if (end == at) return false;
    }
    if (to < from || to > 1'000'000 || (!out.empty() && from <= out.back())) return false;
    for (unsigned long i = from; i <= to; ++i) out.push_back(static_cast<uint32_t>(i));
    if (*end == '\0') return true;
    if (*end != ',') return false;
    at = end + 1;
  }
}

bool parse_option(const std::string& option, const std::string& value, Cut& c) {
  if (option == "--processes") return parse_list(value, c.processes);
  if (option == "--messages") return parse_list(value, c.messages);
  return option == "--faults" && parse_list(value, c.faults);
}

std::string failure_of(const Scenario& s) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kRunSeconds);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);  // what a failed check says would be said at every attempt
    World world(s);
    const std::string text = kind(world.run().violation);
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  if (child > 0)
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "";
  if (!WIFSIGNALED(status)) return text;
  return WTERMSIG(status) == SIGALRM ? "does not end" : "signal " + std::to_string(WTERMSIG(status));
}

Cut shrink(const Scenario& s, uint32_t runs) {
  return Shrinker(s, runs).work();
}

}  // namespace bfo::stack
