// SPDX-License-Identifier: BSD-3-Clause
//
// packet_text.h: the datagrams of the connection manager in words, and why one was dropped, for whoever asks
// to be told of each (Host::packet, Host::dropped).
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/datagram/trust.h"

namespace bfo::engine {

/// Something that was dropped. All texts are static strings.
struct DropNote {
  const char* what;      ///< "a datagram"
  const char* why;       ///< "replayed: it was taken before"
  const Packet* packet;  ///< what can be read of it; nullptr: nothing, or it was no datagram
  uint64_t times = 1;    ///< it happened so often since the last note
};

/// "make a queue pair". Static string.
const char* object_verb(Object object);
/// "ENOMEM"; nullptr for a value without a name here. Static string.
const char* errno_name(int error);
/// "REQ", "unknown". Static string.
const char* packet_name(uint8_t type);
/// "REQ of epoch 2, queue pairs 0x4043 and 0x4044, need: messages wait". `packet` may be any; the text is cut
/// where there is no room.
void describe_packet(char* out, size_t size, const Packet& packet);
/// Name and meaning of `reason`: "replayed: it was taken before, or is too old to tell". Static string.
const char* drop_text(Drop reason);

}  // namespace bfo::engine
