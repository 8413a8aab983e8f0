// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/log.h"

#include <mpi.h>

namespace player {

Log::Log(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
  if (file_ != nullptr) return;
  std::fprintf(stderr, "player: cannot write %s\n", path.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
}

Log::~Log() {
  flush();
  std::fclose(file_);
}

void Log::wrong(const std::string& text) {
  line("WRONG " + text);
  if (++wrongs_ <= 20) std::fprintf(stderr, "player: WRONG %s\n", text.c_str());
}

void Log::flush() {
  std::fwrite(text_.data(), 1, text_.size(), file_);
  std::fflush(file_);
  text_.clear();
}

}  // namespace player
