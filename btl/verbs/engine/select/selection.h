// SPDX-License-Identifier: BSD-3-Clause
//
// selection.h: which ports of a host become rails. A pure function over plain descriptions of the ports; the
// glue fills them in from libibverbs and hwloc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/gid.h"
#include "btl/verbs/engine/select/pairing.h"

namespace bfo::engine {

/// What a device can: reliable connections and datagrams (InfiniBand and RoCE), iWARP, or neither (EFA,
/// usNIC).
enum class Transport : uint8_t { kInfiniband, kIwarp, kOther };
Transport transport_of(const ibv_device& device);

inline constexpr uint32_t kNear = 10;  ///< distance of what is local, as in the firmware's tables

/// What selection knows of a port.
struct PortFacts {
  char device[64] = {};
  uint8_t number = 1;
  Transport transport = Transport::kInfiniband;
  uint8_t link_layer = 0;  ///< enum of ibv_port_attr
  bool readable = true;    ///< the device could be opened and the port's attributes be read
  int error = 0;           ///< errno, if not
  bool active = true;
  bool had_link = true;       ///< see engine::had_link()
  uint32_t rate = 0;          ///< Mbit/s; 0: not known, because it is down
  uint32_t distance = kNear;  ///< from the processors this process is bound to
  GidEntry gid;               ///< the best one; index -1: none
  GidTable gids;              ///< Ethernet: all that are usable; none but `gid` when it is empty
  uint16_t lid = 0;
  uint16_t subnet_manager = 0;  ///< its LID
  int pkey_index = 0;           ///< -1: the wished partition is not in the port's table
  uint16_t pkey = 0;            ///< partition, as this port is a member of it
};

/// The user's wishes.
struct SelectionRules {
  const char* include = "";  ///< comma-delimited DEVICE or DEVICE:PORT; empty: no wish
  const char* exclude = "";
  bool failover = false;  ///< the PML survives the loss of a rail
  bool alone = false;     ///< without these ports the job has no way to other hosts
  bool ignore_locality = false;
  unsigned most = 0;  ///< ports at most; 0: no bound
};

/// What becomes of a port, and why.
enum class PortVerdict : uint8_t {
  kUsed,
  kExcluded,     ///< by include or exclude
  kIwarp,        ///< no datagrams
  kNoRc,         ///< no reliable connections
  kUnreadable,   ///< the device does not answer
  kNotMade,      ///< chosen, but what it needs could not be made
  kInactive,     ///< and does not become a rail later
  kNoneActive,   ///< likewise, because no port is active and other BTLs carry the job
  kNoAddress,    ///< no usable GID, or the wished one is not there
  kNoPartition,  ///< not a member of the wished one
  kFar,          ///< nearer ports of its fabric are enough
  kTooMany,      ///< more than SelectionRules::most
};

/// What a port that is not active shows of its past.
struct LinkTraces {
  uint8_t state = 0;  ///< enum ibv_port_state
  uint8_t phys_state =
      0;  ///< PortPhysicalState of PortInfo: 1 sleep, 2 polling, 3 disabled, 5 up, others between
  uint16_t lid = 0;
  GidKind address = GidKind::kNull;  ///< Ethernet: of its best GID
  bool counted = false;              ///< it has counted packets, or the loss of a link
};
/// True when the port lost its link, or is just getting one; false for a cage that never had a cable, as far
/// as one can tell: no transceiver answers, no subnet manager has given it a LID, nobody an IP address, and
/// its counters are 0. A port that lost its link before the node started looks like that, too.
bool had_link(const LinkTraces& traces);

/// Decides on `count` ports in the order of the devices. Slower ports are rails with less weight. A port that
/// is named in `include` is used whatever its distance. With failover ports that are down are used, too, when
/// they had a link or are named; but where no port is active at all only named ones are, or else all those
/// when there is no other way.
void select_ports(const PortFacts* ports, size_t count, const SelectionRules& rules, PortVerdict* verdicts);

/// True for a port that works and is not used because others are enough.
bool left_out(const PortFacts& port, PortVerdict verdict);
/// True when a port is left out whose rate is another one than that of the fastest port in use: then a user
/// may wonder.
bool speeds_are_mixed(const PortFacts* ports, size_t count, const PortVerdict* verdicts);

/// The verdict as the end of a sentence about a port. Static string.
const char* verdict_text(PortVerdict verdict);

/// Where each port stands among those that the process was allowed to use, active or not (pairing.h).
void place_ports(const PortFacts* ports, size_t count, const PortVerdict* verdicts, PortPlace* places);

/// True when two used InfiniBand ports share the default subnet prefix although they are for certain in
/// different fabrics (equal LIDs, or different subnet managers): such fabrics cannot be told apart.
/// `first` and `second` get their indices.
bool prefixes_mislead(const PortFacts* ports, size_t count, const PortVerdict* verdicts, size_t* first,
                      size_t* second);

}  // namespace bfo::engine
