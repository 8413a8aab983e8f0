// SPDX-License-Identifier: BSD-3-Clause
//
// console.cc: text and rate of the lines about lost rails. Does not use Open MPI.
#include "pml/bfo/glue/console.h"

#include <cstdio>
#include <cstring>

#include "common/failover_btl.h"

namespace bfo::glue {

Console::Port* Console::find(const EventNames& names) {
  for (size_t i = 0; i < used_; ++i) {
    if (ports_[i].number == names.port && strcmp(ports_[i].device, names.device) == 0) return &ports_[i];
  }
  if (used_ == kPorts) return nullptr;
  Port& port = ports_[used_++];
  snprintf(port.device, sizeof(port.device), "%s", names.device);
  port.number = names.port;
  return &port;
}

void Console::tell(const FailoverEvent& e, const EventNames& names, uint64_t now_ns) {
  Port* port = find(names);
  if (port != nullptr && port->told_ns != 0 && now_ns - port->told_ns < kQuietNs) {
    ++port->counted;
    return;
  }
  using ull = unsigned long long;
  const bool went = e.resumed_ns > e.evidence_ns && e.bytes_resent + e.messages_resent != 0;
  const bool waits = e.bytes_waiting + e.messages_waiting != 0;
  char resent[160] = "nothing had to be sent again";
  int n = 0;
  if (went)
    n = snprintf(resent, sizeof(resent), "resumed after %.3f ms, %llu bytes sent again%s",
                 static_cast<double>(e.resumed_ns - e.evidence_ns) * 1e-6, static_cast<ull>(e.bytes_resent),
                 waits ? ", " : "");
  if (waits)
    snprintf(resent + n, sizeof(resent) - static_cast<size_t>(n), "%llu bytes wait for a rail",
             static_cast<ull>(e.bytes_waiting));
  char more[64] = "";
  if (port != nullptr) {
    if (port->counted != 0)
      snprintf(more, sizeof(more), " (and %u times since the last line)", port->counted);
    port->counted = 0;
    port->told_ns = now_ns;
  }
  // Nothing broke that was there: the sentence about what helps is printed by the BTL, once for many peers.
  const bool lacks = e.cause == BFO_CAUSE_RESOURCE;
  const char* what = lacks ? "goes on without" : "lost";
  const char* gone = lacks               ? " (btl/verbs says what helps)"
                     : e.rails_left == 0 ? " (its process or node may be gone)"
                                         : "";
  char line[512];
  snprintf(line, sizeof(line), "bfo: rank %d %s rail %d (%s port %u) to rank %d%s: %s; %s, %u rail%s left%s",
           names.rank, what, static_cast<int>(e.rail), names.device, names.port, names.peer, more, e.text,
           resent, static_cast<unsigned>(e.rails_left), e.rails_left == 1 ? "" : "s", gone);
  print_(line);
}

void Console::finish(int rank) {
  for (size_t i = 0; i < used_; ++i) {
    Port& port = ports_[i];
    if (port.counted == 0) continue;
    char line[256];
    snprintf(line, sizeof(line), "bfo: rank %d lost %s port %u %u more time%s", rank, port.device,
             port.number, port.counted, port.counted == 1 ? "" : "s");
    print_(line);
    port.counted = 0;
  }
}

}  // namespace bfo::glue
