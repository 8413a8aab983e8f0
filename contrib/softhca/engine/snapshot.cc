// SPDX-License-Identifier: BSD-3-Clause
//
// The snapshot.
#include "contrib/softhca/engine/snapshot.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/output_file.h"
#include "contrib/softhca/fabric/report.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kFiringsShown = 8;

void snapshot(const Fabric& fabric, const std::string& reason, bool with_trace) {
  const char* path = std::getenv("SOFTHCA_COUNTERS");
  if (path == nullptr || *path == 0) return;
  if (!dump_counters(const_cast<Fabric&>(fabric).header(), fabric.name(), path, reason, with_trace))
    std::fprintf(stderr, "softhca: cannot write %s: %s\n", path, output_problem(errno));
}

}  // namespace

void snapshot_fault(const Fabric& fabric, const Decision& decision) {
  if (decision.kind == ActionKind::kNone || decision.rule >= kMaxRules) return;
  const RuleSlot& slot = const_cast<Fabric&>(fabric).header().faults.slots[decision.rule];
  if (slot.counters.fired.load(std::memory_order_relaxed) > kFiringsShown) return;
  snapshot(fabric, std::string("fault:") + slot.rule.name, false);
}

void snapshot_exit(const Fabric& fabric) {
  snapshot(fabric, "exit", false);
}

void snapshot_end(const Fabric& fabric) {
  const FaultTable& faults = const_cast<Fabric&>(fabric).header().faults;
  std::fputs(report_unfired(faults).c_str(), stderr);
  snapshot(fabric, "end", true);
}

}  // namespace bfo::softhca
