// SPDX-License-Identifier: BSD-3-Clause
//
// mail.h: the datagrams of the connection manager between an endpoint and its peer.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/endpoint.h"
#include "btl/verbs/engine/packet.h"

namespace bfo::engine {

/// Sends one, without waiting; it may be lost.
void mail_send(Endpoint& endpoint, PacketType type, uint32_t epoch);
/// The peer's address as it says itself now: its LID may have changed since the modex.
void mail_learn_address(Endpoint& endpoint, const Packet& packet);

}  // namespace bfo::engine
