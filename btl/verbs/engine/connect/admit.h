// SPDX-License-Identifier: BSD-3-Clause
//
// admit.h: which datagrams the connection manager takes (trust.h), and from whom.
#pragma once

#include <cstddef>

#include "btl/verbs/engine/datagram/trust.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

/// Judges `length` bytes at `data` as a packet to the queue pair of the connection manager of `port`: fills
/// in `packet` and `endpoint`, the sender's.
Drop admit(Port& port, const char* data, size_t length, Packet* packet, Endpoint** endpoint);

}  // namespace bfo::engine
