// SPDX-License-Identifier: BSD-3-Clause
//
// softhcactl counters and trace: what the fabric has done so far.
#include <time.h>

#include <cstdio>

#include "contrib/softhca/ctl/choose.h"
#include "contrib/softhca/ctl/commands.h"
#include "contrib/softhca/fabric/report.h"

namespace bfo::softhca::ctl {
namespace {

/// True while some process of the job lives.
bool job_runs(Fabric& fabric) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (i != fabric.process() && fabric.alive(i, true)) return true;
  }
  return false;
}

void print_records(Fabric& fabric, TraceReader& reader, bool json) {
  MessageRecord record;
  const uint64_t start_ns = fabric.header().created_ns;
  while (reader.next(record)) {
    const std::string line = json ? trace_json(record, start_ns) : trace_text(record, start_ns);
    printf("%s\n", line.c_str());
  }
  fflush(stdout);
}

}  // namespace

int counters(const Options& options) {
  const std::unique_ptr<Fabric> fabric = choose_fabric(options);
  if (!fabric) return 1;
  FabricHeader& h = fabric->header();
  const std::string text =
      options.json ? counters_json(h, fabric->name(), "counters", false) : counters_text(h, fabric->name());
  fputs(text.c_str(), stdout);
  return 0;
}

int trace(const Options& options) {
  const std::string what = options.arguments.empty() ? "" : options.arguments.front();
  if (options.arguments.size() > 1 || (!what.empty() && what != "on" && what != "off")) {
    return complain("trace takes on, off or nothing");
  }
  const std::unique_ptr<Fabric> fabric = choose_fabric(options);
  if (!fabric) return 1;
  TraceRing& ring = fabric->header().trace;
  if (!what.empty()) {
    ring.on.store(what == "on" ? 1 : 0);
    fabric->update_hooks();
    return 0;
  }
  if (!enabled(ring)) fprintf(stderr, "softhcactl: the trace is off; softhcactl trace on starts it\n");
  TraceReader reader(ring);
  print_records(*fabric, reader, options.json);
  while (options.follow && job_runs(*fabric)) {
    const timespec nap{0, 20'000'000};
    nanosleep(&nap, nullptr);
    print_records(*fabric, reader, options.json);
  }
  if (reader.lost() != 0) {
    fprintf(stderr, "softhcactl: %lu older records were overwritten\n",
            static_cast<unsigned long>(reader.lost()));
  }
  return 0;
}

}  // namespace bfo::softhca::ctl
