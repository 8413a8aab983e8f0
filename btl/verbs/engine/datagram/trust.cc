// SPDX-License-Identifier: BSD-3-Clause
//
// trust.cc: see trust.h.
#include "btl/verbs/engine/datagram/trust.h"

namespace bfo::engine {

const char* drop_name(Drop reason) {
  switch (reason) {
    case Drop::kNone:
      return "none";
    case Drop::kShape:
      return "shape";
    case Drop::kForeign:
      return "foreign";
    case Drop::kSum:
      return "sum";
    case Drop::kType:
      return "type";
    case Drop::kStranger:
      return "stranger";
    case Drop::kLeft:
      return "left";
    case Drop::kReplayed:
      return "replayed";
    case Drop::kMemory:
      return "memory";
    case Drop::kStale:
      return "stale";
    case Drop::kCount:
      break;
  }
  return "?";
}

bool ReplayWindow::take(uint64_t number) {
  constexpr uint64_t kWidth = 64;
  if (number == 0) return false;
  if (number > newest_) {
    const uint64_t step = number - newest_;
    taken_ = (step < kWidth ? taken_ << step : 0) | 1;
    newest_ = number;
    return true;
  }
  const uint64_t age = newest_ - number;
  if (age >= kWidth || (taken_ >> age & 1) != 0) return false;
  taken_ |= uint64_t{1} << age;
  return true;
}

Drop judge(const char* data, size_t length, uint64_t own_name, uint64_t nonce, const SipKey& key,
           Packet* packet) {
  if (!packet_read(data, length, packet)) return Drop::kShape;
  if (packet->target != own_name || packet->target_nonce != nonce) return Drop::kForeign;
  return packet_genuine(*packet, key) ? Drop::kNone : Drop::kSum;
}

}  // namespace bfo::engine
