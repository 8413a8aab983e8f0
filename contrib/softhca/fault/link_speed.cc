// SPDX-License-Identifier: BSD-3-Clause
//
// See link_speed.h.
#include "contrib/softhca/fault/link_speed.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "contrib/softhca/fault/numbers.h"

namespace bfo::softhca {
namespace {

/// Lanes in the order in which a bandwidth prefers them.
constexpr struct {
  uint8_t lanes;
  uint8_t code;
} kWidths[] = {{4, 2}, {1, 1}, {2, 16}, {8, 4}, {12, 8}};

/// Speed of a lane in 100 Mbit/s.
constexpr struct {
  std::string_view word;
  uint32_t code;
  uint32_t speed;
} kLanes[] = {{"SDR", 1, 25},   {"DDR", 2, 50},   {"QDR", 4, 100},    {"FDR10", 8, 100}, {"FDR", 16, 140},
              {"EDR", 32, 250}, {"HDR", 64, 500}, {"NDR", 128, 1000}, {"XDR", 256, 2000}};

uint32_t lanes_of(uint8_t width) {
  for (const auto& w : kWidths) {
    if (w.code == width) return w.lanes;
  }
  return 1;
}

/// 0: its lanes have no known speed.
uint32_t nominal(const LinkSpeed& speed) {
  for (const auto& lane : kLanes) {
    if (lane.code == speed.lane) return lane.speed * lanes_of(speed.width);
  }
  return 0;
}

/// "100G" or "2500M", in 100 Mbit/s.
std::optional<uint32_t> read_bandwidth(std::string_view text) {
  if (text.empty() || (text.back() != 'G' && text.back() != 'M')) return {};
  const bool giga = text.back() == 'G';
  text.remove_suffix(1);
  if (text.starts_with("0x")) return {};
  const auto number = read_number(text);
  if (!number || *number == 0 || *number > uint64_t{kMostEffective} * 100) return {};
  if (!giga && *number % 100 != 0) return {};
  const uint64_t units = giga ? *number * 10 : *number / 100;
  if (units > kMostEffective) return {};
  return static_cast<uint32_t>(units);
}

/// "4xEDR".
bool read_lanes(std::string_view text, LinkSpeed& speed) {
  const size_t at = text.find('x');
  if (at == std::string_view::npos) return false;
  const auto count = read_number(text.substr(0, at));
  const std::string_view word = text.substr(at + 1);
  const auto* width =
      std::find_if(std::begin(kWidths), std::end(kWidths), [&](const auto& w) { return w.lanes == count; });
  if (width == std::end(kWidths)) return false;
  speed.width = width->code;
  const auto* lane =
      std::find_if(std::begin(kLanes), std::end(kLanes), [&](const auto& l) { return l.word == word; });
  const auto code = lane != std::end(kLanes) ? std::optional<uint64_t>(lane->code) : read_number(word);
  if (!code || *code > kMostLaneCode) return false;
  speed.lane = static_cast<uint32_t>(*code);
  speed.effective = nominal(speed);
  return true;
}

/// The lanes whose speed is that bandwidth, or else the fastest that do not exceed it.
LinkSpeed lanes_for(uint32_t bandwidth) {
  LinkSpeed best{1, 1, 0};
  for (const auto& width : kWidths) {
    for (const auto& lane : kLanes) {
      const LinkSpeed speed{width.code, lane.code, 0};
      if (nominal(speed) <= bandwidth && nominal(speed) > nominal(best)) best = speed;
    }
  }
  best.effective = bandwidth;
  return best;
}

}  // namespace

bool read_link_speed(std::string_view text, LinkSpeed& speed) {
  const size_t at = text.find('@');
  const std::string_view left = text.substr(0, at);
  if (!read_lanes(left, speed)) {
    const auto bandwidth = read_bandwidth(left);
    if (!bandwidth) return false;
    speed = lanes_for(*bandwidth);
  }
  if (at == std::string_view::npos) return true;
  const auto effective = read_bandwidth(text.substr(at + 1));
  if (!effective) return false;
  speed.effective = *effective;
  return true;
}

std::string write_link_speed(const LinkSpeed& speed) {
  std::string text = std::to_string(lanes_of(speed.width)) + "x";
  const auto* lane =
      std::find_if(std::begin(kLanes), std::end(kLanes), [&](const auto& l) { return l.code == speed.lane; });
  text += lane != std::end(kLanes) ? std::string(lane->word) : std::to_string(speed.lane);
  if (speed.effective == nominal(speed)) return text;
  if (speed.effective % 10 == 0) return text + "@" + std::to_string(speed.effective / 10) + "G";
  return text + "@" + std::to_string(uint64_t{speed.effective} * 100) + "M";
}

uint64_t pack(const LinkSpeed& speed) {
  return uint64_t{speed.effective} << 32 | uint64_t{speed.lane} << 8 | speed.width;
}

LinkSpeed unpack_link_speed(uint64_t packed) {
  return LinkSpeed{static_cast<uint8_t>(packed), static_cast<uint32_t>(packed >> 8) & kMostLaneCode,
                   static_cast<uint32_t>(packed >> 32)};
}

}  // namespace bfo::softhca
