// SPDX-License-Identifier: BSD-3-Clause
//
// discover.h: what this host has: devices, ports, their addresses and their distance from this process, in
// the plain form that selection (engine/select/selection.h) decides on.
#pragma once

#include <vector>

#include "btl/verbs/engine/select/selection.h"
#include "btl/verbs/glue/component.h"

namespace bfo::verbs {

/// All of them, in the order of ibv_get_device_list().
struct Discovery {
  int devices = 0;
  std::vector<DeviceSlot*> opened;
  std::vector<engine::PortFacts> facts;
  std::vector<DeviceSlot*> owners;  ///< of the ports in `facts`, nullptr: not opened
  std::vector<engine::PortVerdict> verdicts;
  std::vector<engine::PortPlace> places;
};

/// Opens the devices of `list` that can carry rails and describes their ports. Start of the process only.
void discover(const engine::VerbsApi& api, ibv_device** list, int count, const Params& params,
              Discovery* found);
/// Decides which ports become rails, and prints why others do not.
void select(const Component& component, Discovery* found);

/// The GID table entries of a port, those of Ethernet with their subnets.
std::vector<engine::GidEntry> read_gids(ibv_context* context, uint8_t port, const ibv_port_attr& attr);
/// The addresses that an Ethernet port may use now: engine::usable_gids().
engine::GidTable read_usable_gids(ibv_context* context, uint8_t port, const ibv_port_attr& attr, int fixed);
/// How far `device` is from the processors this process is bound to, on the firmware's scale (10 is local).
/// kNear when it is not known.
uint32_t distance_of(const ibv_device& device);

}  // namespace bfo::verbs
