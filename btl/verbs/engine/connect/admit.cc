// SPDX-License-Identifier: BSD-3-Clause
//
// admit.cc: see admit.h.
#include "btl/verbs/engine/connect/admit.h"

namespace bfo::engine {

Drop admit(Port& port, const char* data, size_t length, Packet* packet, Endpoint** endpoint) {
  const Drop at_sight = judge(data, length, port.config().own_name, port.nonce(), port.key(), packet);
  if (at_sight != Drop::kNone) return at_sight;
  const auto type = static_cast<PacketType>(packet->type);
  // PINGs are for the heartbeat.
  if (!packet_type_known(*packet) || type == PacketType::kPing) return Drop::kType;
  Endpoint* sender = port.find_peer(packet->source);
  if (sender == nullptr) sender = port.host().find_peer(port.host().ctx, packet->source);
  if (sender == nullptr || sender->peer.nonce != packet->source_nonce) return Drop::kStranger;
  // A peer that has left may say so again: it has not heard our answer.
  const bool again = type == PacketType::kBye && sender->peer.left && sender->phase != Phase::kUnusable;
  if (!again && (sender->peer.left || sender->phase == Phase::kGone || sender->phase == Phase::kUnusable))
    return Drop::kLeft;
  if (!port.make_resources(*sender)) return Drop::kMemory;
  // The heartbeat of the peer counts for itself.
  ReplayWindow& window = type == PacketType::kPong ? sender->packets().pongs_taken : sender->packets().taken;
  if (!window.take(packet->sequence)) return Drop::kReplayed;
  *endpoint = sender;
  return Drop::kNone;
}

}  // namespace bfo::engine
