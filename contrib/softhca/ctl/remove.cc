// SPDX-License-Identifier: BSD-3-Clause
//
// softhcactl remove: removes the fabric of a job that was killed, and writes the report that the job could
// not write.
#include <cstdio>
#include <cstdlib>

#include "common/output_file.h"
#include "contrib/softhca/ctl/choose.h"
#include "contrib/softhca/ctl/commands.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fabric/report.h"

namespace bfo::softhca::ctl {
namespace {

bool is_there(const std::string& name) {
  for (const std::string& each : list_fabrics()) {
    if (each == name) return true;
  }
  return false;
}

/// Reports and removes one fabric; 1 when processes still use it.
int remove_one(const std::string& name) {
  if (!is_there(name)) return 0;  // its last process has removed it
  std::string error;
  {
    const std::unique_ptr<Fabric> fabric = Fabric::observe(name, error);
    if (!fabric) return complain(error);
    uint32_t users = 0;
    for (uint32_t i = 0; i < kMaxProcesses; ++i)
      users += i != fabric->process() && fabric->alive(i, true) ? 1 : 0;
    if (users != 0) {
      return complain("fabric " + name + " is in use by " + std::to_string(users) +
                      " process(es); end them first");
    }
    FabricHeader& h = fabric->header();
    fputs(report_unfired(h.faults).c_str(), stderr);
    const char* path = std::getenv("SOFTHCA_COUNTERS");
    if (path != nullptr && *path != 0 && !dump_counters(h, name, path, "end", true)) {
      complain(std::string("cannot write ") + path + ": " + output_problem(errno));
    }
    h.keep.store(0);
  }
  Fabric::remove_if_unused(name);
  return 0;
}

}  // namespace

int remove(const Options& options) {
  std::string error;
  if (registry_directory(error).empty()) return complain(error);
  std::vector<std::string> names = options.arguments;
  if (names.empty() && options.all) names = list_fabrics();
  if (names.empty() && !options.all) return complain("remove takes the name of a fabric, or --all");
  int result = 0;
  for (const std::string& name : names) result |= remove_one(name);
  return result;
}

}  // namespace bfo::softhca::ctl
