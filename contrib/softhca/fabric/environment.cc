// SPDX-License-Identifier: BSD-3-Clause
//
// Reading the variables, without a locale: a sign, a blank or anything behind a number makes it none.
#include "contrib/softhca/fabric/environment.h"

#include <charconv>
#include <cstdio>

#include "common/shown_text.h"
#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fabric/registry.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kMostRate = 1'000'000'000;
constexpr uint64_t kMostLatencyUs = 1'000'000'000;
constexpr double kLeastTimescale = 1e-6;
constexpr double kMostTimescale = 1e6;
constexpr uint64_t kMostSpin = 1'000'000'000;

template <class T>
bool all_of(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

/// The variables with the first mistake found in them.
class Reader {
 public:
  Reader(const Lookup& lookup, std::string& error) : lookup_(lookup), error_(error) {}

  /// Empty: it is not set.
  std::string_view text(const char* name) const {
    const char* value = lookup_(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }
  bool refuse(const char* name, const std::string& allowed) {
    error_ = std::string(name) + "=\"" + shown(text(name)) + "\" is not " + allowed +
             "; leave it out to get the default";
    return false;
  }
  /// Decimal digits.
  template <class T>
  bool whole(const char* name, uint64_t low, uint64_t high, T& value) {
    const std::string_view digits = text(name);
    if (digits.empty()) return true;
    uint64_t number = 0;
    if (digits[0] == '-' || !all_of(digits, number) || number < low || number > high)
      return refuse(name, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    value = static_cast<T>(number);
    return true;
  }
  /// Digits with or without a fraction and an exponent.
  bool decimal(const char* name, double low, double high, double& value) {
    const std::string_view digits = text(name);
    if (digits.empty()) return true;
    double number = 0;
    const bool plain = digits.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
    if (!plain || digits[0] == '-' || !all_of(digits, number) || !(number >= low) || number > high) {
      char range[96];
      std::snprintf(range, sizeof(range), "a number from %.10g to %.10g", low, high);
      return refuse(name, range);
    }
    value = number;
    return true;
  }

 private:
  const Lookup& lookup_;
  std::string& error_;
};

bool read_path_level(Reader& reader, uint32_t& level) {
  constexpr const char* kName = "SOFTHCA_PATH_SL";
  if (reader.text(kName) == "refuse") {
    level = kPathRefused;
    return true;
  }
  return reader.whole(kName, 0, 15, level) ||
         reader.refuse(kName, "a service level from 0 to 15, or \"refuse\"");
}

bool read_config(Reader& reader, FabricConfig& config, std::string& error) {
  double rate = 0, latency = 0;
  if (!reader.whole("SOFTHCA_RAILS", 1, kMaxDevices, config.devices) ||
      !reader.whole("SOFTHCA_PORTS", 1, kMaxPortsPerDevice, config.ports) ||
      !reader.decimal("SOFTHCA_RATE", 0, kMostRate, rate) ||
      !reader.decimal("SOFTHCA_LATENCY", 0, kMostLatencyUs, latency) ||
      !reader.decimal("SOFTHCA_TIMESCALE", kLeastTimescale, kMostTimescale, config.timescale) ||
      !reader.whole("SOFTHCA_LMC", 0, kMostLmc, config.lmc) || !read_path_level(reader, config.path_level)) {
    return false;
  }
  config.rate = static_cast<uint64_t>(rate * 1e6);
  config.latency_ns = static_cast<uint64_t>(latency * 1e3);
  config.faults = reader.text("SOFTHCA_FAULTS");
  const std::string gids(reader.text("SOFTHCA_GIDS"));
  return gids.empty() || read_gids(gids, config.gids, error);
}

/// The number that says it, or the rank in the job; hosts beyond the last one start again with the first.
bool read_node(Reader& reader, uint32_t& node) {
  const std::string_view nodes = reader.text("SOFTHCA_NODES");
  if (!nodes.empty() && nodes != "shared" && nodes != "per-rank")
    return reader.refuse("SOFTHCA_NODES", "per-rank or shared");
  uint32_t own = kNone;
  if (!reader.whole("SOFTHCA_NODE", 0, kMaxNodes - 1, own)) return false;
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (own == kNone && !reader.whole(rank, 0, kNone - 1, own)) return false;
  }
  node = own == kNone || nodes == "shared" ? 0 : own % kMaxNodes;
  return true;
}

}  // namespace

bool read_environment(const Lookup& lookup, Environment& environment, std::string& error) {
  Reader reader(lookup, error);
  const std::string_view name = reader.text("SOFTHCA_FABRIC");
  if (!name.empty()) environment.fabric = name;
  if (!valid_fabric_name(environment.fabric)) {
    return reader.refuse("SOFTHCA_FABRIC",
                         "a name of letters, digits, '-', '_' and '.', at most 100, the first not '.'");
  }
  return read_config(reader, environment.config, error) && read_node(reader, environment.node) &&
         reader.whole("SOFTHCA_SPIN", 1, kMostSpin, environment.spin) &&
         reader.whole("SOFTHCA_STRICT_PAGES", 0, 1, environment.strict_pages);
}

}  // namespace bfo::softhca
