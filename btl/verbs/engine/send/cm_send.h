// SPDX-License-Identifier: BSD-3-Clause
//
// cm_send.h: sends the datagrams of the connection manager from an endpoint to its peer.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/endpoint.h"
#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

// Progress function only.

/// Sends a datagram without waiting; true when the device has it, which may lose it. While the address handle
/// is being made, or all send buffers are in use, the last datagram waits.
bool cm_send(Endpoint& endpoint, PacketType type, uint32_t epoch);
/// Takes any path to the peer that has its address handle, when the present one has none. False: none has, or
/// nothing was ever sent.
bool cm_find_way(Endpoint& endpoint);
/// A packet will follow soon: asks for the address handle, if there is none.
void cm_prepare_send(Endpoint& endpoint);
/// Sends what waits, if it can leave now and the packet still says what is true. True when a PING can leave:
/// its sender counts it, and sends it.
bool cm_send_waiting(Endpoint& endpoint);
/// True when the address handle is there.
bool cm_can_send(const Endpoint& endpoint);
/// `packet` of the peer came: its address can be worth another try. What is sent to it next goes over the
/// path the packet took: of several that one works, at least one way.
void cm_note_heard(Endpoint& endpoint, const Packet& packet, uint64_t now);
/// Tells the peer what this side cannot make.
void cm_refuse(Endpoint& endpoint);
/// What a QUESTION or ANSWER about a rail carries (verdict.h); see Packet.
struct InquiryDatagram {
  uint64_t rail;
  uint32_t epoch;
  uint32_t number;
  uint8_t flags;
  uint64_t count;
  uint64_t arrived = 0;
};
/// Sends one over `carrier`, or loses it: over the path that the carrier's connection takes, because its
/// arrival says something about that path only.
void cm_send_inquiry(Endpoint& carrier, PacketType type, const InquiryDatagram& inquiry);
/// An ANSWER came over `carrier`: the path it took works both ways.
void cm_note_answer(const Endpoint& carrier, const Packet& packet, uint64_t now);
/// Has the address handle made that inquiries over `carrier`, which has come up, will need.
void cm_prepare_inquiries(Endpoint& carrier);
/// The peer's address as it says itself now in a handshake packet that was accepted: its LID may have changed
/// since the modex. Its queue pairs have the numbers of the modex.
void cm_learn_address(Endpoint& endpoint, const Packet& packet);

}  // namespace bfo::engine
