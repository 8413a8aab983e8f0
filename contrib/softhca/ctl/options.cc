// SPDX-License-Identifier: BSD-3-Clause
//
// The command line of softhcactl: options may stand before or after the command.
#include "contrib/softhca/ctl/options.h"

#include <cstdlib>
#include <string_view>

namespace bfo::softhca::ctl {

const char kUsage[] =
    "usage: softhcactl [--fabric NAME] [--json] COMMAND\n"
    "  list                      fabrics of this user with their ports and processes (--all: queue pairs "
    "too)\n"
    "  check FILE                reads a fault file and says what is wrong with it, without a fabric\n"
    "  environment               says what is wrong with the SOFTHCA_* variables, or nothing\n"
    "  inject RULE | --file FILE adds rules to a running fabric; their times count from now\n"
    "  rules                     the rules of a fabric with their counters\n"
    "  clear                     switches all rules off\n"
    "  counters                  counters of the ports and rules\n"
    "  trace [on|off]            prints the trace (--follow: goes on until interrupted), or switches it\n"
    "  remove NAME | --all       removes what a killed job has left\n"
    "  --version                 the version of this build\n"
    "The fabric is --fabric, else $SOFTHCA_FABRIC, else the only one of this user.\n"
    "The fault language is described in contrib/softhca/README.md.\n";

namespace {

bool take_value(int argc, char** argv, int& i, std::string_view name, std::string& into, std::string& error) {
  const std::string_view word = argv[i];
  if (word.size() > name.size()) {
    into = word.substr(name.size() + 1);
    return true;
  }
  if (i + 1 >= argc) {
    error = "nothing after " + std::string(name);
    return false;
  }
  into = argv[++i];
  return true;
}

bool is_option(std::string_view word, std::string_view name) {
  return word == name || (word.starts_with(name) && word[name.size()] == '=');
}

}  // namespace

bool read_options(int argc, char** argv, Options& options, std::string& error) {
  if (const char* fabric = std::getenv("SOFTHCA_FABRIC"); fabric != nullptr) options.fabric = fabric;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (is_option(word, "--fabric")) {
      if (!take_value(argc, argv, i, "--fabric", options.fabric, error)) return false;
    } else if (is_option(word, "--file")) {
      if (!take_value(argc, argv, i, "--file", options.file, error)) return false;
    } else if (word == "--json") {
      options.json = true;
    } else if (word == "--follow" || word == "-f") {
      options.follow = true;
    } else if (word == "--all" || word == "-a") {
      options.all = true;
    } else if (word == "--help" || word == "-h") {
      options.help = true;
    } else if (word == "--version") {
      options.version = true;
    } else if (word.size() > 1 && word.starts_with('-')) {
      error = "unknown option " + std::string(word) + "; softhcactl --help lists them";
      return false;
    } else if (options.command.empty()) {
      options.command = word;
    } else {
      options.arguments.emplace_back(word);
    }
  }
  if (options.help || options.version || !options.command.empty()) return true;
  error = "no command; softhcactl --help lists them";
  return false;
}

}  // namespace bfo::softhca::ctl
