// SPDX-License-Identifier: BSD-3-Clause
//
// softhcactl: shows the fabrics of this user and injects faults into them.
#include <cstdio>
#include <string_view>

#include "contrib/softhca/ctl/choose.h"
#include "contrib/softhca/ctl/commands.h"
#include "common/version.h"

int main(int argc, char** argv) {
  using namespace bfo::softhca;
  ctl::Options options;
  std::string error;
  if (!ctl::read_options(argc, argv, options, error)) {
    ctl::complain(error);
    return 2;
  }
  if (options.help) {
    fputs(ctl::kUsage, stdout);
    return 0;
  }
  if (options.version) {
    printf("softhcactl (openmpi-bfo) %s\n", bfo::kBuild);
    return 0;
  }
  struct Command {
    std::string_view name;
    int (*run)(const ctl::Options&);
  };
  static constexpr Command kCommands[] = {
      {"list", ctl::list},     {"check", ctl::check},       {"environment", ctl::environment},
      {"inject", ctl::inject}, {"rules", ctl::rules},       {"clear", ctl::clear},
      {"trace", ctl::trace},   {"counters", ctl::counters}, {"remove", ctl::remove},
  };
  for (const Command& command : kCommands) {
    if (command.name == options.command) return command.run(options);
  }
  ctl::complain("unknown command \"" + options.command +
                "\"; expected list, check, environment, inject, rules, clear, counters, trace or remove");
  return 2;
}
