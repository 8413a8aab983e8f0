// SPDX-License-Identifier: BSD-3-Clause
//
// The watchdog: a thread that ends the process when no worker has made progress for too long, and says who
// waits for what. It makes no MPI call, because MPI is what hangs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace bfo::checker {

class Watchdog {
 public:
  static constexpr int kExitStatus = 4;
  Watchdog(int rank, int stall_s);
  ~Watchdog();
  /// Progress was made. Any thread, cheap.
  void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  /// Says what the caller waits for, called by the watchdog thread only when the process is about to end.
  using Describe = std::function<std::string()>;

  /// Registers a description for as long as it lives.
  class Scope {
   public:
    Scope(Watchdog& dog, Describe describe);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watchdog& dog_;
    const Describe describe_;
  };

 private:
  void watch();
  int rank_;
  int stall_s_;
  std::atomic<uint64_t> beats_{0};
  std::mutex lock_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<const Describe*> scopes_;  ///< those of the scopes that live
  std::thread thread_;
};

}  // namespace bfo::checker
