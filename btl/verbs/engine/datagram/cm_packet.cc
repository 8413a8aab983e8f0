// SPDX-License-Identifier: BSD-3-Clause
//
// cm_packet.cc: see cm_packet.h.
#include "btl/verbs/engine/datagram/cm_packet.h"

#include <cstring>

namespace bfo::engine {
namespace {

uint64_t sum_of(const Packet& packet, const SipKey& key) {
  static_assert(offsetof(Packet, sum) + sizeof packet.sum == sizeof packet, "all of it is summed");
  return siphash(key, &packet, offsetof(Packet, sum));
}

}  // namespace

void packet_seal(Packet* packet, const SipKey& key) {
  packet->magic = kPacketMagic;
  packet->version = kPacketVersion;
  packet->size = sizeof *packet;
  packet->sum = sum_of(*packet, key);
}

bool packet_read(const char* data, size_t length, Packet* packet) {
  if (length != sizeof *packet) return false;
  memcpy(packet, data, sizeof *packet);
  return packet->magic == kPacketMagic && packet->version == kPacketVersion && packet->size == sizeof *packet;
}

bool packet_genuine(const Packet& packet, const SipKey& key) {
  return packet.sum == sum_of(packet, key);
}

bool packet_type_known(const Packet& packet) {
  return packet.type >= static_cast<uint8_t>(PacketType::kSolicit) &&
         packet.type <= static_cast<uint8_t>(PacketType::kAnswer);
}

}  // namespace bfo::engine
