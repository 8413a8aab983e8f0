// SPDX-License-Identifier: BSD-3-Clause
//
// Reading and writing numbers without a locale and without undefined conversions.
#include "contrib/softhca/fault/numbers.h"

#include <array>
#include <charconv>
#include <cmath>

namespace bfo::softhca {
namespace {

constexpr uint64_t kMaxTimeNs = uint64_t{1} << 62;

struct Unit {
  std::string_view text;
  uint64_t factor;
};
constexpr std::array<Unit, 3> kTimeUnits{{{"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
constexpr std::array<Unit, 3> kSizeUnits{{{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}}};

}  // namespace

std::optional<uint64_t> read_number(std::string_view text) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  }
  if (text.empty()) return {};
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::optional<uint64_t> read_size(std::string_view text) {
  uint64_t factor = 1;
  for (const Unit& unit : kSizeUnits) {
    if (text.empty() || (text.back() & ~0x20) != unit.text[0]) continue;
    if (text.starts_with("0x")) break;
    factor = unit.factor;
    text.remove_suffix(1);
    break;
  }
  const auto number = read_number(text);
  if (!number || *number > ~uint64_t{0} / factor) return {};
  return *number * factor;
}

std::optional<uint64_t> read_time_ns(std::string_view text) {
  for (const Unit& unit : kTimeUnits) {
    if (!text.ends_with(unit.text)) continue;
    const auto number = read_number(text.substr(0, text.size() - unit.text.size()));
    if (!number) continue;
    if (*number >= kMaxTimeNs / unit.factor) return {};
    return *number * unit.factor;
  }
  return {};
}

std::optional<uint64_t> read_fraction(std::string_view text) {
  double scale = 1;
  if (text.ends_with('%')) {
    scale = 0.01;
    text.remove_suffix(1);
  }
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return {};
  double value = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (code != std::errc{} || end != text.data() + text.size()) return {};
  value *= scale;
  if (!(value >= 0 && value <= 1)) return {};
  if (value == 1) return ~uint64_t{0};
  return static_cast<uint64_t>(std::ldexp(value, 64));
}

std::string write_time(uint64_t ns) {
  for (auto unit = kTimeUnits.rbegin(); unit != kTimeUnits.rend(); ++unit) {
    if (ns % unit->factor == 0) return std::to_string(ns / unit->factor) + std::string(unit->text);
  }
  return std::to_string(ns / 1000) + "us";
}

std::string write_size(uint64_t bytes) {
  for (auto unit = kSizeUnits.rbegin(); unit != kSizeUnits.rend(); ++unit) {
    if (bytes != 0 && bytes % unit->factor == 0)
      return std::to_string(bytes / unit->factor) + std::string(unit->text);
  }
  return std::to_string(bytes);
}

std::string write_fraction(uint64_t fraction) {
  if (fraction == ~uint64_t{0}) return "1";
  char text[64];
  const double value = std::ldexp(static_cast<double>(fraction), -64);
  const auto [end, code] = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  return code == std::errc{} ? std::string(text, end) : "0";
}

}  // namespace bfo::softhca
