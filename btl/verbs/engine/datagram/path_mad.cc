// SPDX-License-Identifier: BSD-3-Clause
//
// path_mad.cc: see path_mad.h.
#include "btl/verbs/engine/datagram/path_mad.h"

#include <cstring>

namespace bfo::engine {
namespace {

// Offsets in a MAD of subnet administration, in bytes.
constexpr size_t kBaseVersion = 0;
constexpr size_t kClass = 1;
constexpr size_t kClassVersion = 2;
constexpr size_t kMethod = 3;
constexpr size_t kStatus = 4;
constexpr size_t kTransaction = 8;
constexpr size_t kAttribute = 16;
constexpr size_t kComponentMask = 48;
constexpr size_t kRecord = 56;
// Offsets in a PathRecord.
constexpr size_t kDlid = kRecord + 40;
constexpr size_t kSlid = kRecord + 42;
constexpr size_t kPkey = kRecord + 50;
constexpr size_t kServiceLevel = kRecord + 52;  // 12 bits of QoS class, 4 bits of service level

constexpr uint8_t kVersion1 = 1;
constexpr uint8_t kSubnetAdministration = 3;
constexpr uint8_t kAdministrationVersion = 2;
constexpr uint8_t kGet = 0x01;
constexpr uint8_t kGetResponse = 0x81;
constexpr uint16_t kPathRecord = 0x35;
// Components of a PathRecord that the request names.
constexpr uint64_t kWithDlid = uint64_t{1} << 4;
constexpr uint64_t kWithSlid = uint64_t{1} << 5;
constexpr uint64_t kWithPkey = uint64_t{1} << 13;

/// Big-endian, as everything in a MAD.
void put(uint8_t* at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<uint8_t>(value >> 8 * (bytes - 1 - i));
}
uint64_t get(const uint8_t* at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

}  // namespace

void path_mad_ask(const PathQuestion& question, uint8_t (&mad)[kMadBytes]) {
  memset(mad, 0, sizeof mad);
  mad[kBaseVersion] = kVersion1;
  mad[kClass] = kSubnetAdministration;
  mad[kClassVersion] = kAdministrationVersion;
  mad[kMethod] = kGet;
  put(mad + kTransaction, question.transaction, 8);
  put(mad + kAttribute, kPathRecord, 2);
  put(mad + kComponentMask, kWithDlid | kWithSlid | (question.pkey != 0 ? kWithPkey : 0), 8);
  put(mad + kDlid, question.destination, 2);
  put(mad + kSlid, question.source, 2);
  put(mad + kPkey, question.pkey, 2);
}

Drop path_mad_read(const uint8_t* mad, size_t length, PathAnswer* answer) {
  if (length != kMadBytes) return Drop::kShape;
  if (mad[kBaseVersion] != kVersion1 || mad[kClass] != kSubnetAdministration ||
      mad[kClassVersion] != kAdministrationVersion || mad[kMethod] != kGetResponse ||
      get(mad + kAttribute, 2) != kPathRecord) {
    return Drop::kShape;
  }
  answer->transaction = get(mad + kTransaction, 8);
  answer->status = static_cast<uint16_t>(get(mad + kStatus, 2));
  answer->destination = static_cast<uint16_t>(get(mad + kDlid, 2));
  answer->source = static_cast<uint16_t>(get(mad + kSlid, 2));
  answer->service_level = static_cast<uint8_t>(get(mad + kServiceLevel, 2) & 0xf);
  return Drop::kNone;
}

}  // namespace bfo::engine
