// SPDX-License-Identifier: BSD-3-Clause
//
// softhcactl check, environment, inject, rules and clear: everything about fault rules, and what a job would
// start with.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "contrib/softhca/ctl/choose.h"
#include "contrib/softhca/ctl/commands.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/environment.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fault/fault_file.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fabric/report.h"

namespace bfo::softhca::ctl {
namespace {

/// The whole file, "-" is standard input. False and a sentence when it cannot be read or is too long.
bool read_text(const std::string& path, std::string& text, std::string& error) {
  if (path != "-") return read_fault_file(path, text, error);
  char block[4096];
  size_t bytes = 0;
  while (text.size() <= kMaxFaultText && (bytes = fread(block, 1, sizeof block, stdin)) > 0)
    text.append(block, bytes);
  if (ferror(stdin) == 0) return true;
  error = std::string("cannot read standard input: ") + strerror(errno);
  return false;
}

int print_problems(const std::string& source, const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) fprintf(stderr, "%s\n", format_problem(source, problem).c_str());
  return 1;
}

std::vector<std::string> names_in(const FaultTable& table) {
  std::vector<std::string> names;
  const unsigned used = table.used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    if (table.slots[i].counters.state.load() != RuleState::kEmpty)
      names.emplace_back(table.slots[i].rule.name);
  }
  return names;
}

}  // namespace

int check(const Options& options) {
  if (options.arguments.size() != 1) return complain("check takes one fault file, or - for standard input");
  const std::string& path = options.arguments.front();
  std::string text, error;
  if (!read_text(path, text, error)) return complain(error);
  const ParseResult parsed = parse_rules(text);
  if (!parsed.ok()) return print_problems(path, parsed.problems);
  if (options.json) {
    for (const Rule& rule : parsed.rules) {
      printf("{\"type\":\"rule\",\"line\":%u,\"name\":%s,\"text\":%s}\n", rule.line,
             json_string(rule.name).c_str(), json_string(describe(rule)).c_str());
    }
    return 0;
  }
  for (const Rule& rule : parsed.rules) printf("%s\n", describe(rule).c_str());
  printf("%s: %zu rule%s, no mistakes\n", path.c_str(), parsed.rules.size(),
         parsed.rules.size() == 1 ? "" : "s");
  return 0;
}

int environment(const Options& options) {
  if (!options.arguments.empty()) return complain("environment takes no argument");
  std::string error;
  Environment read;
  if (!read_environment(getenv, read, error) || registry_directory(error).empty()) return complain(error);
  if (read.config.faults.empty()) return 0;
  std::string text;
  if (!read_fault_file(read.config.faults, text, error)) return complain("SOFTHCA_FAULTS: " + error);
  const ParseResult parsed = parse_rules(text);
  return parsed.ok() ? 0 : print_problems(read.config.faults, parsed.problems);
}

int inject(const Options& options) {
  std::string text, error;
  std::string source = "rule";
  if (!options.file.empty()) {
    source = options.file;
    if (!read_text(options.file, text, error)) return complain(error);
  }
  for (const std::string& argument : options.arguments) text += (text.empty() ? "" : " ") + argument;
  if (text.empty())
    return complain(
        "nothing to inject: give a rule, for example softhcactl inject 'when device=softhca1 do port-down'");
  const std::unique_ptr<Fabric> fabric = choose_fabric(options);
  if (!fabric) return 1;
  FabricHeader& h = fabric->header();
  ParseResult parsed = parse_rules(text, names_in(h.faults));
  if (!parsed.ok()) return print_problems(source, parsed.problems);
  for (Rule& rule : parsed.rules) {
    if (options.file.empty()) rule.line = 0;
  }
  if (!install(h.faults, parsed.rules.data(), parsed.rules.size(), false, monotonic_ns(), error))
    return complain(error);
  fabric->update_hooks();
  // Rules that are due are carried out now, also when every process of the job sleeps.
  topology_tick(*fabric, monotonic_ns());
  printf("%zu rule%s injected\n", parsed.rules.size(), parsed.rules.size() == 1 ? "" : "s");
  return 0;
}

int rules(const Options& options) {
  const std::unique_ptr<Fabric> fabric = choose_fabric(options);
  if (!fabric) return 1;
  const FaultTable& table = fabric->header().faults;
  const unsigned used = table.used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    if (table.slots[i].counters.state.load(std::memory_order_acquire) == RuleState::kEmpty) continue;
    fputs((options.json ? rule_json(table, i) : rule_text(table, i)).c_str(), stdout);
  }
  return 0;
}

int clear(const Options& options) {
  const std::unique_ptr<Fabric> fabric = choose_fabric(options);
  if (!fabric) return 1;
  const unsigned cleared = softhca::clear(fabric->header().faults, monotonic_ns());
  fabric->update_hooks();
  printf("%u rule%s switched off\n", cleared, cleared == 1 ? "" : "s");
  return 0;
}

}  // namespace bfo::softhca::ctl
