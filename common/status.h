// SPDX-License-Identifier: BSD-3-Clause
//
// status.h: the words for "what became of it" shared by core, xfer and the ports below them.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

namespace bfo {

/// Immediate answer to posting one fragment.
enum class Post : uint8_t {
  kAccepted,    ///< taken; exactly one on_done() follows, possibly before the call returns
  kCompleted,   ///< taken and already delivered; no on_done() follows
  kNoResource,  ///< not taken: no slot, credit or descriptor now; try another rail, then wait
  kUnreachable  ///< not taken: this rail is down
};
constexpr bool taken(Post p) {
  return p == Post::kAccepted || p == Post::kCompleted;
}

/// Final fate of a posted fragment; each one ends exactly once (P3). Anything that was given to the
/// hardware without a success completion has an unknown fate: "flushed" is not "never sent" (H22).
enum class Fate : uint8_t { kDelivered, kUnknown, kNeverSent };

/// How an MPI request ended.
enum class Outcome : uint8_t {
  kOk,
  kTruncated,    ///< receive buffer smaller than the message; the part that fits is there
  kPeerLost,     ///< every path to the peer is gone for longer than the park time, or the peer's process died
  kMessageLost,  ///< the peer's device acknowledged a message and lost it (H4 c)
  kNoMemory      ///< this side, or the peer, has no memory for a message that must be kept
};

/// State of one rail of one peer, as the PML sees it.
enum class RailState : uint8_t {
  kIdle,        ///< never connected; the first send starts the handshake
  kConnecting,  ///< sends are queued below; used only while no rail is up (H18)
  kUp,
  kSuspect,  ///< usable, but silent under traffic: others are preferred, nothing is decided (H15)
  kDown,     ///< epoch dead, its fragments are coming back, not yet fenced
  kClosed,   ///< epoch fenced (or proven unfenceable); may come back with a newer epoch
  kUnusable  ///< device lost: will not come back in this job
};

/// Answer to fence(): see BFO_FENCED and BFO_UNFENCEABLE in failover_btl.h.
enum class FenceResult : uint8_t { kFenced, kUnfenceable };

constexpr const char* to_string(Outcome o) {
  switch (o) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kTruncated:
      return "truncated";
    case Outcome::kPeerLost:
      return "peer lost";
    case Outcome::kMessageLost:
      return "message lost";
    case Outcome::kNoMemory:
      return "no memory";
  }
  return "?";
}
constexpr const char* to_string(RailState s) {
  switch (s) {
    case RailState::kIdle:
      return "idle";
    case RailState::kConnecting:
      return "connecting";
    case RailState::kUp:
      return "up";
    case RailState::kSuspect:
      return "suspect";
    case RailState::kDown:
      return "down";
    case RailState::kClosed:
      return "closed";
    case RailState::kUnusable:
      return "unusable";
  }
  return "?";
}

}  // namespace bfo
