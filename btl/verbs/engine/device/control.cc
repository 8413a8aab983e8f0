// SPDX-License-Identifier: BSD-3-Clause
//
// control.cc: see control.h.
#include "btl/verbs/engine/device/control.h"

#include <sched.h>

#include <algorithm>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {

void ControlLane::open(ControlMode mode, uint32_t width, std::atomic<bool>* service_needed,
                       ControlThreads* threads, bool urgent) {
  close(0);
  mode_ = ControlMode::kInline;
  if (mode == ControlMode::kInline) return;
  width = std::clamp(width, 1u, kMaxWidth);
  threads_ = threads != nullptr ? threads : &own_;
  if (threads == nullptr) own_.open(width);
  if (threads_->is_open()) queue_ = make<ControlQueue>();
  if (queue_ == nullptr) return own_.close();
  queue_->width = width;
  queue_->urgent = urgent;
  queue_->service_needed = service_needed;
  threads_->add(*queue_);
  mode_ = mode;
}

void ControlLane::submit(Command& command, Urgency urgency) {
  ++pending_;
  command.dropped = false;
  if (mode_ == ControlMode::kInline) {
    command.run(command);
    --pending_;
    return command.done(command);
  }
  const bool threaded = mode_ == ControlMode::kThread;
  threads_->put(*queue_, command, static_cast<size_t>(urgency), threaded);
  if (!threaded) return;
  // Threads inherit the binding of the process, so the control thread may wait for this processor, where the
  // application polls. A rail's failover waits for urgent commands: let it run now.
  if (urgency == Urgency::kFirst) sched_yield();
  // No thread can be had: slow is better than never.
  while (threads_->threadless() && run_one()) {
  }
}

bool ControlLane::run_one() {
  return queue_ != nullptr && threads_->run_one(*queue_);
}

void ControlLane::finish() {
  while (queue_ != nullptr && queue_->any_result.load(std::memory_order_acquire)) {
    CommandFifo results = threads_->take_results(*queue_);
    while (Command* const command = results.pop()) {
      --pending_;
      command->done(*command);
    }
  }
}

bool ControlLane::close(uint64_t timeout_ns) {
  if (queue_ == nullptr) return true;
  const bool ended = threads_->drain(*queue_, timeout_ns);
  finish();
  while (ended && run_one()) finish();
  threads_->remove(*queue_, !ended);
  queue_ = nullptr;
  mode_ = ControlMode::kInline;
  own_.close();
  return ended;
}

}  // namespace bfo::engine
