// SPDX-License-Identifier: BSD-3-Clause
//
// event_samples.h: a loss, the names of its two ends, a slow rail, a port that got slower and one that loses
// packets; and lines that are kept.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "pml/bfo/glue/event_log.h"

namespace bfo::glue {

inline FailoverEvent sample() {
  FailoverEvent e;
  e.rail = 1;
  e.epoch = 3;
  std::snprintf(e.text, sizeof e.text, "RETRY_EXC_ERR");
  e.evidence_ns = 1'000'000'000;
  e.down_ns = 1'000'500'000;
  e.closed_ns = 1'002'500'000;
  e.resumed_ns = 1'000'750'000;
  e.bytes_resent = 4096;
  e.messages_resent = 2;
  e.duplicates_dropped = 1;
  e.restarts = 1;
  e.rails_left = 1;
  return e;
}

inline EventNames names() {
  EventNames n;
  n.rank = 0;
  n.peer = 1;
  n.device = "softhca1";
  n.port = 1;
  n.peer_host = "node2";
  n.peer_device = "softhca3";
  n.peer_port = 2;
  return n;
}

inline DegradedEvent slow() {
  DegradedEvent e;
  e.rail = 1;
  e.epoch = 3;
  e.in = true;
  e.rate = 80;
  e.before = 790;
  e.others = 795;
  e.low_ns = 1'200'000'000;
  e.age_ns = 12'500'000;
  e.rails_low = e.rails_judged = 1;
  return e;
}

inline PortSpeed slower() {
  PortSpeed speed;
  speed.rank = 3;
  speed.device = "softhca1";
  speed.port = 1;
  speed.before = 100'000;
  speed.now = 2'500;
  speed.cause = "IBV_EVENT_DEVICE_SPEED_CHANGE";
  speed.rails = 7;
  return speed;
}

inline PortLoss lossy() {
  PortLoss loss;
  loss.rank = 3;
  loss.host = "node1";
  loss.device = "softhca1";
  loss.port = 1;
  loss.rail = 1;
  loss.in = true;
  loss.lost = 213;
  loss.packets = 20'840;
  loss.ns = 3'040'000'000;
  return loss;
}

inline std::vector<std::string>* printed = nullptr;
inline void print(const char* line) {
  printed->push_back(line);
}

}  // namespace bfo::glue
