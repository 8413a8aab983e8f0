// SPDX-License-Identifier: BSD-3-Clause
//
// trust.h: which datagrams are believed. Each port has a random 128-bit key, which its modex record tells:
// the ranks of the job know it, and those of jobs that connect to it, nobody else. A packet is summed with
// the key of the port it goes to, so that port can judge it before it looks for the sender. Every packet has
// a sequence number, never used again by its sender in one life: what was taken once is not taken again.
//
// A packet that fails is dropped, counted by reason, and has no other effect: in particular nothing is sent
// back, and no address is learned from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

/// Why a datagram was dropped.
enum class Drop : uint8_t {
  kNone,
  kShape,     ///< not as long as a packet, or another magic number, version or size
  kForeign,   ///< names another process or another life of this one
  kSum,       ///< not summed with this port's key
  kType,      ///< no such packet, or none for this queue pair
  kStranger,  ///< of a process that is not known here, or of another life of it
  kLeft,      ///< of a process that has left, or about a rail that will not come back
  kReplayed,  ///< taken before, or too old to tell
  kMemory,    ///< no memory for what the answer needs: it comes again
  kStale,     ///< nothing to be done about it in this phase and epoch: a late or doubled packet, mostly
  kCount
};
inline constexpr size_t kDrops = static_cast<size_t>(Drop::kCount);
/// Name of `reason` in counters and texts. Static string.
const char* drop_name(Drop reason);

/// Packets dropped, by reason. Written by one thread.
using DropCounts = std::array<uint64_t, kDrops>;

/// The sequence numbers taken from one sender: the newest, and which of the 63 before it. A datagram network
/// may deliver out of order, but not by more than that while the handshake waits for answers.
class ReplayWindow {
 public:
  /// True when `number` was not taken before; it is from now on. 0 is no number.
  bool take(uint64_t number);

 private:
  uint64_t newest_ = 0;
  uint64_t taken_ = 0;  ///< bit i: newest_ - i
};

/// The sequence numbers of an endpoint's packets, its own and its peer's.
struct PacketNumbers {
  uint64_t sent = 0;         ///< the last one
  ReplayWindow taken;        ///< numbers of the peer's connection manager
  ReplayWindow pongs_taken;  ///< numbers of its heartbeat
};

/// Judges `length` bytes at `data`, as far as no peer is needed for that: the packet is whole, for the
/// process `own_name` with `nonce`, and summed with `key`.
Drop judge(const char* data, size_t length, uint64_t own_name, uint64_t nonce, const SipKey& key,
           Packet* packet);

}  // namespace bfo::engine
