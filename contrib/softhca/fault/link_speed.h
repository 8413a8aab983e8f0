// SPDX-License-Identifier: BSD-3-Clause
//
// The speed of a link as a text and as one number: lanes, the speed of a lane, and the bandwidth that is left
// of both. The action `speed` of a rule gives it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bfo::softhca {

/// IBV_EVENT_DEVICE_SPEED_CHANGE of rdma-core 62. It is about the device and names no port.
inline constexpr uint32_t kDeviceSpeedChange = 20;

/// Code of the fastest lane that the eight bits of ibv_port_attr::active_speed have (NDR).
inline constexpr uint32_t kMostSpeedOf8Bits = 128;

struct LinkSpeed {
  uint8_t width = 2;   ///< code of ibv_port_attr::active_width: 1, 2, 4, 8, 16 for 1, 4, 8, 12, 2 lanes
  uint32_t lane = 32;  ///< code of the speed of a lane: 1 SDR .. 128 NDR, 256 XDR, or any other number
  uint32_t effective = 1000;  ///< of the whole link, in 100 Mbit/s; 0: the device cannot tell
};

/// Greatest code of a lane and greatest bandwidth in 100 Mbit/s.
inline constexpr uint32_t kMostLaneCode = 0xffffff;
inline constexpr uint32_t kMostEffective = 10'000'000;

/// Reads "4xEDR", "1x512" (a code that has no name), "100G" or "2500M" (the lanes follow from it), and
/// "4xHDR@150G" (less, or more, than the lanes have). False for anything else.
bool read_link_speed(std::string_view text, LinkSpeed& speed);
std::string write_link_speed(const LinkSpeed& speed);
/// What the words are, for an error message.
inline constexpr std::string_view kLinkSpeedWords =
    "a bandwidth such as 100G or 2500M, or lanes such as 4xEDR (1, 2, 4, 8 or 12 of SDR, DDR, QDR, FDR10, "
    "FDR, EDR, HDR, NDR, XDR or the number of a code), each also with @ and the bandwidth that is left of "
    "them: 4xHDR@150G";

uint64_t pack(const LinkSpeed& speed);
LinkSpeed unpack_link_speed(uint64_t packed);

}  // namespace bfo::softhca
