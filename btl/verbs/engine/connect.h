// SPDX-License-Identifier: BSD-3-Clause
//
// connect.h: the connection manager. Fixed roles: the process with the lower name initiates, so two sides can
// never open at once.
//
//     responder                      initiator
//        KNOCK(last closed epoch) ---->            only when the responder wants the connection first
//                 <---- REQ(n, queue pairs)        its own epochs < n are closed before it is sent
//        fences its epochs < n
//        REP(n, queue pairs) ---->
//                 <---- zero-byte write (probe)    nothing else is posted before it succeeds
//                 <---- RTU(n)                     or the first message
//     BYE(n): the sender is going away in order; nobody reconnects to it
//
// Every packet names both processes and carries both port nonces (the receiver's one is known from the modex
// only), so a packet of another job, another life of the same process name or a forger is dropped and
// counted. Lost packets are repeated with back-off; all are idempotent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/port.h"

namespace bfo::engine {

enum class PacketType : uint8_t { kKnock = 1, kRequest = 2, kReply = 3, kReady = 4, kBye = 5 };

/// A datagram of the connection manager, host byte order: the magic number of a peer with the other byte
/// order does not match, and it is dropped.
struct Packet {
  uint32_t magic;
  uint8_t version;
  uint8_t type;     // PacketType
  uint16_t size;    // of the whole packet
  uint64_t source;  // process names
  uint64_t target;
  uint64_t source_nonce;
  uint64_t target_nonce;
  uint32_t epoch;  // KNOCK: the last closed one
  uint32_t data_qpn;
  uint32_t data_psn;
  uint32_t probe_qpn;
  uint32_t probe_psn;
  uint32_t landing_rkey;
  uint64_t landing_address;  // BYE: SENDs of the epoch that the sender of this packet has received
  uint32_t ud_qpn;
  uint32_t receive_bytes;
  uint16_t lid;
  uint8_t link_layer;
  uint8_t mtu;
  uint8_t max_read;
  uint8_t reserved[3];
  uint8_t gid[16];
  uint64_t sum;  // of all bytes before it
};
static_assert(sizeof(Packet) == 112);
inline constexpr uint32_t kPacketMagic = 0x76666231;  // "1bfv"
inline constexpr uint8_t kPacketVersion = 1;

/// Fills in magic, version, size and sum.
void packet_seal(Packet* packet);
/// True when the `length` bytes at `data` are a whole, undamaged packet of this version; copies it out (the
/// source may be unaligned).
bool packet_parse(const char* data, size_t length, Packet* packet);

/// Asks for the connection; the next poll starts it. Under the lock.
void connect_want(Endpoint& endpoint);
/// Timers of an endpoint that is connecting or closed. Progress function only, as all of the following.
void connect_step(Endpoint& endpoint, uint64_t now);
/// A datagram came in.
void connect_packet(Port& port, const char* data, size_t length);
/// The probe before traffic came back.
void connect_probe_done(Endpoint& endpoint, int status);
/// Responder: READY or the first message came. No-op when up already.
void connect_established(Endpoint& endpoint);
/// Says BYE, once, without waiting.
void connect_bye(Endpoint& endpoint);
/// Drops an attempt that did not come up: nothing was posted on it by anybody above.
void connect_abandon(Endpoint& endpoint, uint64_t now);
/// Gives parked fragments of a rail that never came up back as never sent and reports the rail down and
/// closed.
void connect_failed(Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code, uint64_t now);

}  // namespace bfo::engine
