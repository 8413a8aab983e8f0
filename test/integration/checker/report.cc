// SPDX-License-Identifier: BSD-3-Clause
//
// The reporter: one line on stderr per finding, with everything needed to look for the cause.
#include "test/integration/checker/report.h"

#include <cstdio>

namespace bfo::checker {

void Report::add(const char* phase, Kind kind, const std::string& text) {
  counts_[static_cast<size_t>(kind)].fetch_add(1);
  const uint64_t n = errors_.fetch_add(1);
  if (muted_ || n > kPrinted) return;
  const std::lock_guard guard(lock_);
  if (n == kPrinted) {
    std::fprintf(stderr, "checker: rank %d: further findings are counted but not printed\n", rank_);
  } else {
    std::fprintf(stderr, "checker: rank %d phase %s: %s: %s\n", rank_, phase, name_of(kind), text.c_str());
  }
}

void Report::add(const char* phase, const Finding& f, const Message& expected, const char* when) {
  add(phase, f.kind,
      std::string(when) + " " + describe(expected) + ": bytes " + std::to_string(f.first) + ".." +
          std::to_string(f.last) + " are wrong: " + f.text);
}

void Report::forget() {
  errors_ = 0;
  for (auto& c : counts_) c = 0;
}

}  // namespace bfo::checker
