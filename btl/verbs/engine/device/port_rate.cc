// SPDX-License-Identifier: BSD-3-Clause
//
// port_rate.cc: see port_rate.h.
#include "btl/verbs/engine/device/port_rate.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace bfo::engine {
namespace {

/// Products of a rate and bytes or nanoseconds must fit into 64 bits.
constexpr uint64_t kMostMbit = 10'000'000;
/// Nothing slower carries RDMA today.
constexpr uint32_t kGuessedLane = 10'000;
constexpr uint8_t kMostOf8Bits = 128;

/// By the number of the code's bit: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR.
constexpr uint32_t kLanes[] = {2000, 4000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};

uint64_t lane_of(uint32_t code, bool* guessed) {
  if (code == 0) {
    *guessed = true;
    return kGuessedLane;
  }
  const auto bit = static_cast<size_t>(std::bit_width(code)) - 1;
  if (std::has_single_bit(code) && bit < std::size(kLanes)) return kLanes[bit];
  *guessed = true;
  if (bit < std::size(kLanes)) return kLanes[bit];
  return uint64_t{kLanes[std::size(kLanes) - 1]} << (bit - (std::size(kLanes) - 1));
}

uint32_t lanes_in(uint8_t width, bool* guessed) {
  constexpr struct {
    uint8_t code;
    uint8_t lanes;
  } kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  for (const auto& known : kWidths) {
    if (known.code == width) return known.lanes;
  }
  *guessed = true;
  return 1;
}

}  // namespace

PortRate rate_of_lanes(uint8_t width, uint32_t lane) {
  PortRate rate;
  rate.lane = lane;
  rate.width = width;
  const uint64_t mbit = lane_of(lane, &rate.guessed) * lanes_in(width, &rate.guessed);
  rate.mbit = static_cast<uint32_t>(std::min(mbit, kMostMbit));
  return rate;
}

PortRate read_rate(const VerbsApi& api, ibv_context* context, uint8_t port, const ibv_port_attr& attr) {
  // Eight bits end with NDR, and say that of faster lanes, too.
  const bool more = attr.active_speed >= kMostOf8Bits && api.active_speed_ex != nullptr;
  const uint32_t lane_ex = more ? api.active_speed_ex(context, port) : 0;
  PortRate rate = rate_of_lanes(attr.active_width, lane_ex != 0 ? lane_ex : attr.active_speed);
  uint64_t speed = 0;  // in 100 Mbit/s
  if (api.query_port_speed == nullptr || api.query_port_speed(context, port, &speed) != 0 || speed == 0)
    return rate;
  rate.mbit = static_cast<uint32_t>(std::min(speed, kMostMbit / 100) * 100);
  rate.guessed = false;
  return rate;
}

}  // namespace bfo::engine
