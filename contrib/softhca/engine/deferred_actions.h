// SPDX-License-Identifier: BSD-3-Clause
//
// Deferred actions. An engine step must not do them while it holds locks: flush a queue pair in the
// state ERR, fail the queue pairs of a CQ that overflowed, wake a sleeping process, carry out a fault rule.
#pragma once

#include <vector>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

class DeferredActions {
 public:
  explicit DeferredActions(Fabric& fabric) : fabric_(fabric) {}
  /// Runs all actions. Every entry point of the engine ends here. No lock may be held.
  ~DeferredActions() {
    if (any_) [[unlikely]]
      run();
  }
  DeferredActions(const DeferredActions&) = delete;
  DeferredActions& operator=(const DeferredActions&) = delete;

  void flush_qp(uint32_t qpn) { add({Kind::kFlushQp, qpn, 0, {}}); }
  void fail_cq(uint32_t cq) { add({Kind::kFailCq, cq, 0, {}}); }
  void wake(uint32_t process, WakeName pipe) { add({Kind::kWake, process, pipe, {}}); }
  void act(const Decision& decision) { add({Kind::kAct, 0, 0, decision}); }
  void run();

 private:
  enum class Kind { kFlushQp, kFailCq, kWake, kAct };
  struct Item {
    Kind kind;
    uint32_t object;
    WakeName pipe;
    Decision decision;
  };
  void add(const Item& item) {
    items_.push_back(item);
    any_ = true;
  }

  Fabric& fabric_;
  bool any_ = false;
  std::vector<Item> items_;
};

}  // namespace bfo::softhca
