// SPDX-License-Identifier: BSD-3-Clause
//
// packet.cc: see packet.h.
#include "btl/verbs/engine/packet.h"

#include <cstring>

namespace bfo::engine {
namespace {

uint64_t sum_of(const Packet& packet) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&packet);
  uint64_t sum = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < offsetof(Packet, sum); ++i) sum = (sum ^ bytes[i]) * 0x100000001b3ull;
  return sum;
}

}  // namespace

void packet_seal(Packet* packet) {
  packet->magic = kPacketMagic;
  packet->version = kPacketVersion;
  packet->size = sizeof *packet;
  packet->sum = sum_of(*packet);
}

bool packet_parse(const char* data, size_t length, Packet* packet) {
  if (length < sizeof *packet) return false;
  memcpy(packet, data, sizeof *packet);
  if (packet->magic != kPacketMagic || packet->version != kPacketVersion) return false;
  if (packet->size != sizeof *packet || packet->size != length) return false;
  if (packet->sum != sum_of(*packet)) return false;
  return packet->type >= static_cast<uint8_t>(PacketType::kKnock) &&
         packet->type <= static_cast<uint8_t>(PacketType::kAnswer);
}

}  // namespace bfo::engine
