// SPDX-License-Identifier: BSD-3-Clause
//
// The lab at work. The observer's descriptor stays open until the process ends: closing it would drop the
// record locks by which the drop-in library in the same process proves that it lives.
#include "test/conformance/lab.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/trace.h"

namespace bfo::conformance {

Lab& Lab::get() {
  static Lab* lab = new Lab();
  return *lab;
}

bool Lab::other_devices() {
  return std::getenv(kDevicesVariable) != nullptr;
}

softhca::Fabric& Lab::fabric() {
  if (other_devices())
    throw std::logic_error("needs the emulator: faults are injected, or what it did is looked at");
  if (fabric_) return *fabric_;
  std::string error;
  const char* name = std::getenv("SOFTHCA_FABRIC");
  fabric_ = softhca::Fabric::observe(name != nullptr ? name : "", error);
  if (!fabric_) {
    fprintf(stderr, "the software HCA is not in use: %s\n", error.c_str());
    std::abort();
  }
  return *fabric_;
}

softhca::FabricHeader& Lab::header() {
  return fabric().header();
}

void Lab::inject(std::string_view rules) {
  const softhca::ParseResult parsed = softhca::parse_rules(rules);
  for (const softhca::Problem& problem : parsed.problems) {
    ADD_FAILURE() << softhca::format_problem("rules", problem);
  }
  std::string error;
  EXPECT_TRUE(softhca::install(header().faults, parsed.rules.data(), parsed.rules.size(), false,
                               softhca::monotonic_ns(), error))
      << error;
  fabric().update_hooks();
  softhca::topology_tick(fabric(), softhca::monotonic_ns());  // as softhcactl does: what is due is done
}

void Lab::clear_rules() {
  if (other_devices()) return;
  softhca::clear(header().faults, softhca::monotonic_ns());
  fabric().update_hooks();
}

uint64_t Lab::fired(std::string_view rule) {
  const int index = softhca::find_rule(header().faults, rule);
  return index < 0 ? 0 : header().faults.slots[index].counters.fired.load();
}

void Lab::restart_trace() {
  if (other_devices()) return;
  softhca::restart(header().trace, true);
  fabric().update_hooks();
}

std::vector<MessageRecord> Lab::trace(const std::function<bool(const MessageRecord&)>& wanted) {
  std::vector<MessageRecord> records;
  for (const MessageRecord& record : softhca::read_all(header().trace)) {
    if (wanted(record)) records.push_back(record);
  }
  return records;
}

std::string Lab::trace_text() {
  if (other_devices()) return "";
  std::string text;
  for (const MessageRecord& record : softhca::read_all(header().trace)) {
    text += softhca::trace_text(record, header().created_ns) + "\n";
  }
  return text;
}

}  // namespace bfo::conformance
