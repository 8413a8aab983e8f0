// SPDX-License-Identifier: BSD-3-Clause
//
// The report: counters of ports and rules of a running fabric, for people and as JSON lines. Used by
// softhcactl and by the device for --counters FILE. Only reads shared memory; figures of a running job are a
// moment old.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Sums of one port over its queue pairs, living and gone.
struct PortTotals {
  uint64_t tx_messages = 0, tx_packets = 0, tx_bytes = 0;
  uint64_t rx_messages = 0, rx_packets = 0, rx_bytes = 0;
  uint64_t retries = 0, rnr_retries = 0, errors = 0;
};

/// Those of the port with this index.
PortTotals port_totals(FabricHeader& header, uint32_t port);

/// Totals of every port that carried something, is opened by a process or is not ACTIVE, by port index.
struct PortReport {
  uint32_t index = 0;
  PortTotals totals;
};
std::vector<PortReport> report_ports(FabricHeader& header);

std::string_view port_state_name(uint8_t state);
std::string_view qp_state_name(uint8_t state);
std::string_view rule_state_name(RuleState state);

/// Text as a JSON string with its quotes.
std::string json_string(std::string_view text);

/// Rule `index` with its counters, one line with its end: for people and as a JSON object.
std::string rule_text(const FaultTable& table, unsigned index);
std::string rule_json(const FaultTable& table, unsigned index);

/// One JSON object per line: a "snapshot" line with `reason`, then "port", "rule" and, when asked for,
/// "trace" lines. The format is documented in contrib/softhca/README.md.
std::string counters_json(FabricHeader& header, std::string_view fabric, std::string_view reason,
                          bool with_trace);

/// The same for people, without the trace.
std::string counters_text(FabricHeader& header, std::string_view fabric);

/// Appends counters_json to a file with one write. False, with errno, when it cannot be written.
bool dump_counters(FabricHeader& header, std::string_view fabric, const char* path, std::string_view reason,
                   bool with_trace);

}  // namespace bfo::softhca
