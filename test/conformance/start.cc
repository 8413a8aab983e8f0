// SPDX-License-Identifier: BSD-3-Clause
//
// The start at work: environment, restart, and a look at whose libibverbs this is.
#include "test/conformance/start.h"

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/conformance/lab.h"

namespace bfo::conformance {
namespace {

constexpr char kMarker[] = "SOFTHCA_CONFORMANCE";

void restart(char** argv) {
  setenv("SOFTHCA_FABRIC", ("conformance-" + std::to_string(getpid())).c_str(), 1);
  setenv("SOFTHCA_RAILS", "2", 1);
  setenv("SOFTHCA_TIMESCALE", std::to_string(kTimescale).c_str(), 1);
  setenv("SOFTHCA_NODE", "0", 1);
  for (const char* other :
       {"SOFTHCA_RATE", "SOFTHCA_LATENCY", "SOFTHCA_FAULTS", "SOFTHCA_COUNTERS", "SOFTHCA_NODES"}) {
    unsetenv(other);
  }
  setenv(kMarker, "1", 1);
  execv("/proc/self/exe", argv);
  perror("execv");
  exit(1);
}

}  // namespace

void enter_fabric(char** argv) {
  if (Lab::other_devices()) return;
  if (std::getenv(kMarker) == nullptr) restart(argv);
  ibv_device** list = ibv_get_device_list(nullptr);
  const bool ours =
      list != nullptr && list[0] != nullptr && strncmp(ibv_get_device_name(list[0]), "softhca", 7) == 0;
  if (list != nullptr) ibv_free_device_list(list);
  if (ours) return;
  fprintf(stderr, "these tests need the software HCA: put its libibverbs.so.1 in LD_PRELOAD\n");
  exit(1);
}

}  // namespace bfo::conformance
