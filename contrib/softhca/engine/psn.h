// SPDX-License-Identifier: BSD-3-Clause
//
// Packet sequence numbers: 24 bits, compared modulo 2^24.
#pragma once

#include <cstdint>

namespace bfo::softhca {

constexpr uint32_t psn_add(uint32_t psn, uint32_t packets) {
  return (psn + packets) & 0xffffff;
}

/// a - b as a signed distance in [-2^23, 2^23).
constexpr int32_t psn_distance(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

/// PSNs a message of `length` bytes uses at path MTU `mtu`; at least one.
constexpr uint32_t packets_of(uint64_t length, uint32_t mtu) {
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu - 1) / mtu);
}

}  // namespace bfo::softhca
