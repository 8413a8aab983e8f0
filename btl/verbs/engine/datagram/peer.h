// SPDX-License-Identifier: BSD-3-Clause
//
// peer.h: the port of a peer. Of most ranks of a large job a port knows this and nothing more, so it is kept
// once, for the connection manager and for the heartbeat.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/base/table.h"

namespace bfo::engine {

struct HeartbeatTalk;

/// The port at the other end, as far as it is known. Name, nonce, key and the numbers in its address stay as
/// the modex told them, and are read by the event thread; where the port is may change (cm_learn_address).
struct PeerPort {
  uint64_t name = 0;   ///< job and rank of its process
  uint64_t nonce = 0;  ///< of the port
  SipKey key;          ///< the port believes what is summed with this
  PortAddress address;
  bool initially_down = false;  ///< it was not active when it was published, and has not been heard
  bool left = false;            ///< BYE came: never reconnect
  /// The newest epoch whose end is to be reported, of those that were asked about while there was no memory
  /// for connection resources; 0: none.
  uint32_t owed_epoch = 0;
};

/// A peer as the heartbeat knows it. An endpoint is one.
struct KnownPeer {
  PeerPort peer;
  HeartbeatTalk* talk = nullptr;  ///< under the heartbeat's lock
};

/// The name of a peer stands in its record.
struct PeerCell {
  KnownPeer* value;
  uint64_t key() const { return value->peer.name; }
  static PeerCell of(uint64_t, KnownPeer* peer) { return {peer}; }
};
using PeerTable = Table<KnownPeer, PeerCell>;

}  // namespace bfo::engine
