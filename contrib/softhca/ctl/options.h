// SPDX-License-Identifier: BSD-3-Clause
//
// The command line of softhcactl, taken apart.
#pragma once

#include <string>
#include <vector>

namespace bfo::softhca::ctl {

struct Options {
  std::string fabric;  ///< --fabric, else $SOFTHCA_FABRIC, else empty
  bool json = false;
  bool follow = false;
  bool help = false;
  bool version = false;
  bool all = false;
  std::string file;  ///< --file
  std::string command;
  std::vector<std::string> arguments;
};

/// False and a sentence in `error` for a line that makes no sense.
bool read_options(int argc, char** argv, Options& options, std::string& error);

extern const char kUsage[];

}  // namespace bfo::softhca::ctl
