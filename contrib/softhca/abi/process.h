// SPDX-License-Identifier: BSD-3-Clause
//
// The process: what the drop-in library keeps per OS process: its fabric, the verbs objects of the program,
// and the timer thread, which makes progress while the program does not call the library.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "contrib/softhca/abi/verbs_api.h"
#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

struct Context;
struct Cq;
struct Qp;
struct Srq;

class Process {
 public:
  /// The one of this process; never destroyed, replaced in a forked child.
  static Process& instance();

  /// Joins the fabric on first use. When that is not possible the process ends, with the reason on stderr and
  /// status 2.
  void open();
  bool is_open() const { return fabric_ != nullptr; }
  Fabric& fabric() { return *fabric_; }
  ibv_device* device(uint32_t index) { return &devices_[index]; }

  /// --- objects by slot, for events ---
  void add(Qp& qp);
  void remove(Qp& qp);
  void add(Cq& cq);
  void remove(Cq& cq);
  void add(Srq& srq);
  void remove(Srq& srq);
  std::mutex& objects_mutex() { return objects_mutex_; }
  Qp* qp(uint32_t slot);
  Cq* cq(uint32_t slot);
  Srq* srq(uint32_t slot);
  const std::unordered_map<uint32_t, Cq*>& cqs() const { return cqs_; }

  // --- progress ---
  /// True when a queue pair of this process waits for a time or for an answer.
  bool waiting() const { return pending_->load(std::memory_order_relaxed) != 0; }
  /// Called by ibv_poll_cq while waiting().
  void progress_now();
  /// Called by ibv_poll_cq after many polls in a row that found nothing.
  void idle();
  /// Has the timer thread make progress when the program does not poll. Cheap when nothing waits.
  void kick() {
    if (waiting() || (fabric_->header().hooks.load(std::memory_order_relaxed) & kHookTimed) != 0) [[unlikely]]
      start_timer();
  }
  /// Starts the timer thread, or wakes it. It sleeps while nothing waits, and looks once a second for rules
  /// that softhcactl has injected: they apply to an open device also while the program sleeps. False and
  /// errno when there is no thread to be had; with an open device there is one.
  bool start_timer();
  unsigned spin() const { return spin_; }
  /// Requests on registered pages that are gone fail (fabric/pages.h).
  bool strict_pages() const { return strict_pages_; }

  /// At exit: leaves the fabric. Verbs that are called afterwards have no effect.
  void leave();

 private:
  Process() = default;
  static void* timer_main(void* process);
  void timer_loop();
  uint64_t progress_all();

  std::unique_ptr<Fabric> fabric_;
  std::mutex open_mutex_;
  std::vector<ibv_device> devices_;
  std::atomic<uint32_t> nothing_{0};
  std::atomic<uint32_t>* pending_ = &nothing_;
  unsigned spin_ = 64;
  bool strict_pages_ = false;

  std::mutex objects_mutex_;
  std::unordered_map<uint32_t, Qp*> qps_;
  std::unordered_map<uint32_t, Cq*> cqs_;
  std::unordered_map<uint32_t, Srq*> srqs_;

  std::mutex progress_mutex_;  ///< guards qp_slots_
  std::vector<uint32_t> qp_slots_;
  std::atomic<uint64_t> next_ns_{0};

  std::mutex timer_mutex_;
  std::condition_variable timer_wake_;
  std::atomic<bool> timer_running_{false};
  std::atomic<uint64_t> timer_target_{0};
  std::atomic<uint32_t> polls_{0};
  bool stop_ = false;
};

}  // namespace bfo::softhca
