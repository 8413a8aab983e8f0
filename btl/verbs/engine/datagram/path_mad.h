// SPDX-License-Identifier: BSD-3-Clause
//
// path_mad.h: the two management datagrams (MADs) with which the path between two LIDs is asked of the
// subnet administrator: SubnAdmGet and SubnAdmGetResp of the attribute PathRecord (InfiniBand Architecture
// Specification vol. 1, 13.4 and 15.2). Layout and checks only: no queue pair, no clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/datagram/trust.h"

namespace bfo::engine {

inline constexpr uint32_t kMadBytes = 256;
inline constexpr uint32_t kGsiQpn = 1;             // the general services interface of a port
inline constexpr uint32_t kGsiQkey = 0x8001'0000;  // its Q_Key, on every port

/// What is asked.
struct PathQuestion {
  uint64_t transaction = 0;
  uint16_t source = 0;       ///< LID
  uint16_t destination = 0;  ///< LID
  uint16_t pkey = 0;         ///< of a certain partition; 0: of any
};

/// What a datagram says about a path.
struct PathAnswer {
  uint64_t transaction = 0;
  uint16_t status = 0;  ///< of the MAD: 0, or why there is no record
  uint16_t source = 0;
  uint16_t destination = 0;
  uint8_t service_level = 0;
};

/// The administrator has no time: it is asked again.
constexpr bool mad_busy(uint16_t status) {
  return (status & 1) != 0;
}

/// Writes the request of `question`.
void path_mad_ask(const PathQuestion& question, uint8_t (&mad)[kMadBytes]);
/// Reads an answer, a private copy of `length` bytes. Drop::kNone: `*answer` is what it says; the path in it
/// counts only when its status is 0. Drop::kShape: it is no answer to such a request.
Drop path_mad_read(const uint8_t* mad, size_t length, PathAnswer* answer);

}  // namespace bfo::engine
