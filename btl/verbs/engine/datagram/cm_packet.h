// SPDX-License-Identifier: BSD-3-Clause
//
// cm_packet.h: the datagrams of the connection manager (cm.h), of the heartbeat (heartbeat.h) and of
// inquiries (verdict.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/siphash.h"

namespace bfo::engine {

enum class PacketType : uint8_t {
  kSolicit = 1,
  kRequest = 2,
  kReply = 3,
  kReady = 4,
  kBye = 5,
  kPing = 6,
  kPong = 7,
  kRefuse = 8,
  kQuestion = 9,
  kAnswer = 10
};

/// How much a rail that is not up is needed (SOLICIT, REQ).
enum class Need : uint8_t {
  kNone = 0,   ///< nobody speaks to the peer
  kTalks = 1,  ///< messages go to it or come from it over other rails
  kWaits = 2,  ///< messages wait for this one
};

/// What cannot be made (REFUSE).
enum class Object : uint8_t {
  kNone = 0,
  kCompletionQueue = 1,
  kQueuePair = 2,
  kQueuePairState = 3,  ///< modify_qp refused
  kAddressHandle = 4,
  kMemory = 5,   ///< registered memory
  kBuffers = 6,  ///< memory that need not be registered
};
inline constexpr size_t kObjects = 7;

/// What a datagram of an inquiry says besides its numbers (QUESTION, ANSWER).
enum InquiryFlag : uint8_t {
  kInquiryRequestEnd = 1,  ///< QUESTION: the inquiry is over; the peer, who decides, is asked to end the rail
  kInquiryAlive = 2,    ///< ANSWER: the epoch in question exists at the peer, and nothing has ended it there
  kInquiryOver = 4,     ///< ANSWER: it is closed there, or is being closed
  kInquiryCarrier = 8,  ///< ANSWER: the rail it comes over is up at the peer, and not suspect
};

/// A datagram of the connection manager, host byte order: the magic number of a peer with the other byte
/// order does not match, and it is dropped.
struct Packet {
  uint32_t magic;
  uint8_t version;
  uint8_t type;     ///< PacketType
  uint16_t size;    ///< of the whole packet
  uint64_t source;  ///< process names
  uint64_t target;
  uint64_t source_nonce;
  uint64_t target_nonce;
  uint32_t epoch;     ///< SOLICIT: the last closed one; PING and PONG: how many are unanswered; QUESTION and
                      ///< ANSWER: of the rail in question
  uint32_t data_qpn;  ///< REFUSE: Object
  uint32_t data_psn;  ///< REFUSE: errno
  uint32_t probe_qpn;
  uint32_t probe_psn;
  uint32_t probe_target_rkey;
  uint64_t probe_target_address;  ///< BYE: SENDs of the epoch that the sender of this packet has received;
                                  ///< ANSWER: bytes that came in at the port of the rail, 0: not known
  uint32_t cm_qpn;
  uint32_t receive_bytes;
  uint16_t lid;
  uint8_t link_layer;
  uint8_t mtu;
  uint8_t max_read;
  uint8_t flags;       ///< SOLICIT and REQ: Need; QUESTION and ANSWER: InquiryFlag; BYE: kByeHeard
  uint8_t lmc;         ///< of the sender's port
  uint8_t path;        ///< number of the path that this packet takes; PONG goes back over it
  uint8_t gid[16];     ///< of the sender's port, as it is used towards the receiver
  uint8_t to_gid[16];  ///< of the receiver's port; REP: the two that the queue pairs are connected with
  uint8_t gid_type;    ///< enum GidType, of both
  uint8_t reserved[7];
  uint64_t rail;    ///< QUESTION and ANSWER: connection_id() of the rail in question
  uint64_t count;   ///< ANSWER: what has moved over it so far; QUESTION: the last answer's
  uint32_t number;  ///< of the question; SOLICIT, REQ and REFUSE: bfo_rail_cause_t of the sender's last epoch
  uint32_t carrier;   ///< epoch of the rail it comes over
  uint64_t sequence;  ///< every packet of a port to one peer has a higher one (trust.h)
  uint64_t sum;       ///< SipHash-2-4 of all bytes before it, with the key of the port it goes to
};
static_assert(sizeof(Packet) == 168);
/// A BYE whose sender has got the peer's: it asks for no answer.
inline constexpr uint8_t kByeHeard = 1;
inline constexpr uint32_t kPacketMagic = 0x76666231;  // "1bfv"
inline constexpr uint8_t kPacketVersion = 4;

/// Fills in magic, version, size and sum. `key`: of the port it goes to.
void packet_seal(Packet* packet, const SipKey& key);
/// True when the `length` bytes at `data` have the form of a packet of this version; copies it out (the
/// source may be unaligned). Who sent it is not known yet.
bool packet_read(const char* data, size_t length, Packet* packet);
/// True when it was sealed with `key`, and nothing has changed since.
bool packet_genuine(const Packet& packet, const SipKey& key);
/// True when its type is a PacketType.
bool packet_type_known(const Packet& packet);

}  // namespace bfo::engine
