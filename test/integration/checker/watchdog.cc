// SPDX-License-Identifier: BSD-3-Clause
//
// The watchdog: counts seconds without a beat.
#include "test/integration/checker/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unistd.h>

namespace bfo::checker {

Watchdog::Watchdog(int rank, int stall_s) : rank_(rank), stall_s_(stall_s), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard guard(lock_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Watchdog::Scope::Scope(Watchdog& dog, Describe describe) : dog_(dog), describe_(std::move(describe)) {
  const std::lock_guard guard(dog_.lock_);
  dog_.scopes_.push_back(&describe_);
}

Watchdog::Scope::~Scope() {
  const std::lock_guard guard(dog_.lock_);
  std::erase(dog_.scopes_, &describe_);
}

void Watchdog::watch() {
  std::unique_lock guard(lock_);
  uint64_t seen = beats_;
  int idle_s = 0;
  while (!stop_) {
    wake_.wait_for(guard, std::chrono::seconds(1), [this] { return stop_; });
    if (stop_) return;
    const uint64_t now = beats_;
    idle_s = now == seen ? idle_s + 1 : 0;
    seen = now;
    if (idle_s < stall_s_) continue;
    std::fprintf(stderr, "checker: rank %d: STALLED: no progress for %d seconds\n", rank_, idle_s);
    for (const Describe* describe : scopes_)
      std::fprintf(stderr, "checker: rank %d: waits in %s\n", rank_, (*describe)().c_str());
    std::fflush(stderr);
    _exit(kExitStatus);
  }
}

}  // namespace bfo::checker
