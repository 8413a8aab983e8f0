// SPDX-License-Identifier: BSD-3-Clause
//
// mail.h: the datagrams of the connection manager between an endpoint and its peer.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/endpoint.h"
#include "btl/verbs/engine/packet.h"

namespace bfo::engine {

// Progress function only.

/// Sends one, without waiting; it may be lost. While the address handle is being made the last one waits for
/// it.
void mail_send(Endpoint& endpoint, PacketType type, uint32_t epoch);
/// A packet will follow soon: asks for the address handle, if there is none.
void mail_prepare(Endpoint& endpoint);
/// Sends what waits for the address handle, if that is there and the packet still says what is true.
void mail_flush(Endpoint& endpoint);
/// True when a packet would leave at once.
bool mail_ready(const Endpoint& endpoint);
/// A packet of the peer came: its address can be worth another try.
void mail_heard(Endpoint& endpoint, uint64_t now);
/// Tells the peer what this side lacks.
void mail_refuse(Endpoint& endpoint);
/// What a QUESTION or ANSWER about a rail carries (verdict.h); see Packet.
struct TrialMail {
  uint64_t rail;
  uint32_t epoch;
  uint32_t number;
  uint8_t flags;
  uint64_t count;
};
/// Sends one over `carrier`, or loses it.
void mail_trial(Endpoint& carrier, PacketType type, const TrialMail& trial);
/// The peer's address as it says itself now in a handshake packet that was accepted: its LID may have changed
/// since the modex.
void mail_learn_address(Endpoint& endpoint, const Packet& packet);

}  // namespace bfo::engine
