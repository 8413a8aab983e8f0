// SPDX-License-Identifier: BSD-3-Clause
//
// world.h: one simulated machine: runs a scenario to its end and says which promise was broken, if any. A
// world is used for many runs; nothing but memory survives from one to the next.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/book.h"
#include "test/sim/context.h"
#include "test/sim/fabric.h"
#include "test/sim/process.h"

namespace bfo::sim {

struct Result {
  bool ok = false;
  std::string violation;  ///< "P1: ..." when not ok
  uint64_t trace_hash = 0;
  Stats stats;
};

/// How often each table cell was used, over all runs of a world.
struct Coverage {
  uint64_t send[core::kSendPhases][core::kSendEvents] = {};
  uint64_t recv[core::kRecvPhases][core::kRecvEvents] = {};
};

class World {
 public:
  World();
  ~World();
  Result run(const Scenario& s, const Hooks& hooks = {}, bool trace = false);
  const Coverage& coverage() const { return coverage_; }

 private:
  void release();
  void loop();
  void handle(const Event& e);
  void begin_communicators();
  void fault(const Fault& f, bool begin);
  void forge(const Fault& f);
  bool all_quiet();
  void check_end();
  void check_resent(uint32_t message);
  void check_balance();
  void collect();

  Context ctx_;
  Fabric fabric_;
  Book book_;
  Shared shared_;
  const Scenario* scenario_ = nullptr;
  std::vector<Fault> faults_;
  uint32_t faults_open_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  Coverage coverage_;
};

}  // namespace bfo::sim
