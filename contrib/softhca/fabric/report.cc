// SPDX-License-Identifier: BSD-3-Clause
//
// The report at work. Queue pairs keep their own figures while they live; a port's total is the sum of both.
#include "contrib/softhca/fabric/report.h"

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "common/output_file.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca {
namespace {

/// Fields that one process writes with plain stores and others read.
uint64_t peek(const uint64_t& field) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(field)).load(std::memory_order_relaxed);
}

PortTotals gone_totals(const PortEntry& p) {
  PortTotals t;
  t.tx_messages = p.tx_messages.load();
  t.tx_packets = p.tx_packets.load();
  t.tx_bytes = p.tx_bytes.load();
  t.rx_messages = p.rx_messages.load();
  t.rx_packets = p.rx_packets.load();
  t.rx_bytes = p.rx_bytes.load();
  t.retries = p.retries.load();
  t.rnr_retries = p.rnr_retries.load();
  t.errors = p.errors.load();
  return t;
}

void add_qp(PortTotals& t, const QpEntry& qp) {
  t.tx_messages += peek(qp.tx_messages);
  t.tx_packets += peek(qp.tx_packets) + peek(qp.response_packets_out);
  t.tx_bytes += peek(qp.tx_bytes);
  t.rx_messages += peek(qp.rx_messages);
  t.rx_packets += peek(qp.rx_packets) + peek(qp.response_packets_in);
  t.rx_bytes += peek(qp.rx_bytes);
  t.retries += peek(qp.retries);
  t.rnr_retries += peek(qp.rnr_retries);
  t.errors += peek(qp.errors);
}

std::string port_line(FabricHeader& header, const PortReport& report) {
  const PortEntry& port = header.ports_table[report.index];
  const PortTotals& t = report.totals;
  const std::string speed = write_link_speed(unpack_link_speed(port.speed.load()));
  char line[1000];
  snprintf(line, sizeof line,
           "{\"type\":\"port\",\"node\":%u,\"device\":\"softhca%u\",\"port\":%u,\"state\":\"%s\",\"lid\":%u,"
           "\"speed\":\"%s\",\"rate\":%" PRIu64 ",\"latency_ns\":%" PRIu64 ",\"tx_messages\":%" PRIu64
           ",\"tx_packets\":%" PRIu64 ",\"tx_bytes\":%" PRIu64 ",\"rx_messages\":%" PRIu64
           ",\"rx_packets\":%" PRIu64 ",\"rx_bytes\":%" PRIu64 ",\"retries\":%" PRIu64
           ",\"rnr_retries\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"link_downed\":%" PRIu64
           ",\"local_ack_timeout_err\":%" PRIu64 ",\"packet_seq_err\":%" PRIu64
           ",\"implied_nak_seq_err\":%" PRIu64 ",\"out_of_sequence\":%" PRIu64 "}\n",
           port_node(report.index), port_device(report.index), port_number(report.index),
           port_state_name(port.state.load()).data(), port.lid.load(), speed.c_str(), port.rate.load(),
           port.latency_ns.load(), t.tx_messages, t.tx_packets, t.tx_bytes, t.rx_messages, t.rx_packets,
           t.rx_bytes, t.retries, t.rnr_retries, t.errors, port.link_downed.load(), port.ack_timeouts.load(),
           port.sequence_naks.load(), port.early_responses.load(), port.early_requests.load());
  return line;
}

}  // namespace

PortTotals port_totals(FabricHeader& header, uint32_t port) {
  PortTotals totals = gone_totals(header.ports_table[port]);
  for (uint32_t i = 0; i < header.qp_fresh.load(); ++i) {
    const QpEntry& qp = header.qps[i];
    if (qp.qpn.load(std::memory_order_acquire) != 0 && qp.port_index == port) add_qp(totals, qp);
  }
  return totals;
}

std::vector<PortReport> report_ports(FabricHeader& header) {
  std::vector<PortTotals> totals(kMaxPorts);
  std::vector<bool> shown(kMaxPorts);
  for (uint32_t i = 0; i < kMaxPorts; ++i) {
    totals[i] = gone_totals(header.ports_table[i]);
    const uint8_t state = header.ports_table[i].state.load();
    shown[i] = totals[i].tx_messages != 0 || totals[i].rx_messages != 0 || state == kPortDown;
  }
  for (uint32_t i = 0; i < header.qp_fresh.load(); ++i) {
    const QpEntry& qp = header.qps[i];
    if (qp.qpn.load(std::memory_order_acquire) == 0 || qp.port_index >= kMaxPorts) continue;
    add_qp(totals[qp.port_index], qp);
    if (peek(qp.tx_messages) != 0 || peek(qp.rx_messages) != 0) shown[qp.port_index] = true;
  }
  for (uint32_t i = 0; i < header.contexts_used.load(); ++i) {
    const ContextEntry& context = header.contexts[i];
    if (context.used.load(std::memory_order_acquire) != kContextOpen) continue;
    for (uint32_t p = 1; p <= header.ports; ++p) shown[port_index(context.node, context.device, p)] = true;
  }
  std::vector<PortReport> reports;
  for (uint32_t i = 0; i < kMaxPorts; ++i) {
    if (shown[i]) reports.push_back({i, totals[i]});
  }
  return reports;
}

std::string_view port_state_name(uint8_t state) {
  static constexpr std::string_view kNames[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  return state < std::size(kNames) ? kNames[state] : "?";
}

std::string_view qp_state_name(uint8_t state) {
  static constexpr std::string_view kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "?";
}

std::string_view rule_state_name(RuleState state) {
  static constexpr std::string_view kNames[] = {"empty", "armed", "spent", "off"};
  const auto at = static_cast<size_t>(state);
  return at < std::size(kNames) ? kNames[at] : "?";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
      continue;
    }
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(c));
    out += escape;
  }
  return out + "\"";
}

std::string rule_json(const FaultTable& table, unsigned index) {
  const RuleSlot& slot = table.slots[index];
  const RuleCounters& c = slot.counters;
  const uint64_t first = c.first_fired_ns.load();
  char numbers[300];
  snprintf(numbers, sizeof numbers,
           ",\"line\":%u,\"state\":\"%s\",\"matched\":%" PRIu64 ",\"fired\":%" PRIu64
           ",\"overridden\":%" PRIu64 ",\"first_fired_us\":%" PRId64 "}\n",
           slot.rule.line, rule_state_name(c.state.load()).data(), c.matched.load(), c.fired.load(),
           c.overridden.load(),
           first == 0 ? int64_t{-1} : static_cast<int64_t>(first - table.start_ns.load()) / 1000);
  return "{\"type\":\"rule\",\"rule\":" + std::to_string(index) + ",\"name\":" + json_string(slot.rule.name) +
         ",\"text\":" + json_string(describe(slot.rule)) + numbers;
}

std::string rule_text(const FaultTable& table, unsigned index) {
  const RuleSlot& slot = table.slots[index];
  const RuleCounters& c = slot.counters;
  char line[200];
  snprintf(line, sizeof line, "rule %u %s, matched %" PRIu64 ", fired %" PRIu64 "%s: ", index,
           rule_state_name(c.state.load()).data(), c.matched.load(), c.fired.load(),
           c.fired.load() == 0 ? " (never)" : "");
  return line + describe(slot.rule) + "\n";
}

std::string counters_json(FabricHeader& header, std::string_view fabric, std::string_view reason,
                          bool with_trace) {
  const FaultTable& faults = header.faults;
  std::string out = "{\"type\":\"snapshot\",\"fabric\":" + json_string(fabric) +
                    ",\"reason\":" + json_string(reason) + ",\"pid\":" + std::to_string(getpid()) +
                    ",\"time_us\":" + std::to_string((monotonic_ns() - header.created_ns) / 1000) + "}\n";
  for (const PortReport& report : report_ports(header)) out += port_line(header, report);
  const unsigned used = faults.used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    if (faults.slots[i].counters.state.load(std::memory_order_acquire) != RuleState::kEmpty)
      out += rule_json(faults, i);
  }
  if (!with_trace) return out;
  for (const MessageRecord& record : read_all(header.trace))
    out += trace_json(record, header.created_ns) + "\n";
  return out;
}

std::string counters_text(FabricHeader& header, std::string_view fabric) {
  std::string out = "fabric " + std::string(fabric) + "\n";
  char line[400];
  snprintf(line, sizeof line, "%-22s %-8s %10s %12s %16s %10s %12s %16s %8s %8s %8s\n", "port", "state",
           "tx msgs", "tx packets", "tx bytes", "rx msgs", "rx packets", "rx bytes", "retries", "rnr",
           "errors");
  out += line;
  for (const PortReport& report : report_ports(header)) {
    const PortTotals& t = report.totals;
    const std::string place = "node " + std::to_string(port_node(report.index)) + " softhca" +
                              std::to_string(port_device(report.index)) + ":" +
                              std::to_string(port_number(report.index));
    snprintf(line, sizeof line,
             "%-22s %-8s %10" PRIu64 " %12" PRIu64 " %16" PRIu64 " %10" PRIu64 " %12" PRIu64 " %16" PRIu64
             " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 "\n",
             place.c_str(), port_state_name(header.ports_table[report.index].state.load()).data(),
             t.tx_messages, t.tx_packets, t.tx_bytes, t.rx_messages, t.rx_packets, t.rx_bytes, t.retries,
             t.rnr_retries, t.errors);
    out += line;
  }
  const FaultTable& faults = header.faults;
  const unsigned used = faults.used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    if (faults.slots[i].counters.state.load(std::memory_order_acquire) != RuleState::kEmpty)
      out += rule_text(faults, i);
  }
  return out;
}

bool dump_counters(FabricHeader& header, std::string_view fabric, const char* path, std::string_view reason,
                   bool with_trace) {
  const std::string text = counters_json(header, fabric, reason, with_trace);
  const int fd = open_output(path, false);
  if (fd < 0) return false;
  const ssize_t written = write(fd, text.data(), text.size());
  const int why = written < 0 ? errno : ENOSPC;
  close(fd);
  errno = why;
  return written == static_cast<ssize_t>(text.size());
}

}  // namespace bfo::softhca
