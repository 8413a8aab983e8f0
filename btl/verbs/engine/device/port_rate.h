// SPDX-License-Identifier: BSD-3-Clause
//
// port_rate.h: how fast a port is, of what its device says. It changes while a job runs: a cable trains anew
// with fewer or slower lanes, a bond of ports loses one.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// IBV_EVENT_DEVICE_SPEED_CHANGE of rdma-core 62, which older headers do not have. It names no port.
inline constexpr int kDeviceSpeedChange = 20;

struct PortRate {
  uint32_t mbit = 0;     ///< million bits per second, as Open MPI weighs its BTLs; 0: not known
  bool guessed = false;  ///< the device reports lanes without a known speed or number
  uint32_t lane = 0;     ///< the code of a lane's speed, as it was reported
  uint8_t width = 0;     ///< the code of the number of lanes
};

/// The rate of lanes with these codes (ibv_query_port(3)). Codes that nobody knows are guessed: a code of a
/// speed is a bit, and each twice as fast as the one below.
PortRate rate_of_lanes(uint8_t width, uint32_t lane);

/// The rate of an active port whose attributes are `attr`: the bandwidth that the device says the port has,
/// where it can (a bond of ports may have any), else that of its lanes. Calls verbs.
PortRate read_rate(const VerbsApi& api, ibv_context* context, uint8_t port, const ibv_port_attr& attr);

}  // namespace bfo::engine
