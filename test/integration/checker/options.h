// SPDX-License-Identifier: BSD-3-Clause
//
// Command line of the checker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bfo::checker {

struct Options {
  std::vector<std::string> phases;  ///< empty: all
  uint64_t seed = 0;                ///< 0: chosen by rank 0 from the clock
  uint64_t bytes = 0;               ///< repeat until this many bytes are verified on all ranks together
  double seconds = 0;               ///< repeat until this much time has passed
  uint64_t max_size_bytes = 5u << 20;
  int hold_ms = 300;  ///< how long a received buffer is watched for late writes
  int stall_s = 60;   ///< no progress for so long: say where and give up
  int threads = 0;    ///< 0: MPI_THREAD_FUNNELED; else MPI_THREAD_MULTIPLE and this many threads
  bool quick = false;
  bool list = false;
  bool help = false;
  bool self_test = false;
  bool stall_test = false;
  bool verbose = false;
  bool stock_ob1 = false;        ///< leave out the cases that ob1 of Open MPI 4.1 gets wrong
  std::vector<uint64_t> around;  ///< further size thresholds in bytes
};

/// Parses argv; on a mistake returns false and one sentence naming the argument and the remedy.
bool parse(int argc, char** argv, Options* options, std::string* error);
const char* usage();

}  // namespace bfo::checker
