// SPDX-License-Identifier: BSD-3-Clause
//
// port_query.h: reading a port's attributes and address from its device. The verbs are system calls, and a
// device whose firmware is busy or resets answers late, so a control thread makes them.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/port_rate.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// The usable addresses of a port now; with `fixed` >= 0 of that entry alone. Any thread.
using GidReader = GidTable (*)(ibv_context* context, uint8_t port, const ibv_port_attr& attr, int fixed);

/// What a device says of one of its ports.
struct PortReading {
  int error = 0;  ///< errno of the query; 0: what follows is valid
  ibv_port_attr attr{};
  PortRate rate;        ///< of an active port
  bool listed = false;  ///< its addresses were read
  GidTable gids;        ///< the addresses, if `listed`
  uint8_t gid_index = 0;
  ibv_gid gid{};       ///< zero: it has none there
  int pkey_index = 0;  ///< -1: the port has lost its partition
  uint16_t pkey = 0;   ///< the entry there; 0: the port is not active, or it cannot be read
};

/// What to read.
struct PortQuestion {
  const VerbsApi* api = nullptr;
  ibv_context* context = nullptr;
  uint8_t number = 1;
  uint8_t gid_index = 0;          ///< as it is used now
  GidReader read_gids = nullptr;  ///< nullptr: `gid_index` alone; asked while the port is active
  int fixed_gid = -1;             ///< for it
  uint16_t pkey_index = 0;        ///< as it is used now
  uint16_t pkey = 0;              ///< whose index is wanted while the port is active; 0: `pkey_index`
};

/// The index of the partition key `wished` in a table of `entries`; a full membership before a limited one.
/// -1: it is not there. Calls verbs.
int index_of_pkey(const VerbsApi& api, ibv_context* context, uint8_t port, int entries, unsigned wished);

/// Reads the port. Calls verbs.
PortReading read_port(const PortQuestion& question);

/// The same as a command.
struct PortQuery : Command {
  PortQuestion question;
  PortReading reading;
  int32_t type = 0;      ///< the event behind it, enum ibv_event_type
  uint64_t when_ns = 0;  ///< when the event was read
  bool came_up = false;  ///< one of the events says that the port is active
};

/// The events since the last reading that ask for another one.
struct PortNews {
  bool any = false;
  bool came_up = false;
  int32_t type = 0;
  uint64_t when_ns = 0;
};

}  // namespace bfo::engine
