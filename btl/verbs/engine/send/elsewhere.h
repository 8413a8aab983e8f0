// SPDX-License-Identifier: BSD-3-Clause
//
// elsewhere.h: messages that are for a process, not for the rail that they were given to: which rail to it is
// asked, and when one is kept, or is for nobody. Decisions without effects: who asks says how a message is
// sent.
#pragma once

#include <cstdint>
#include <span>

#include "common/failover_btl.h"

namespace bfo::engine {

/// One rail to the process that a message is for.
struct RailThere {
  bfo_rail_state_t state;
  bool left;  ///< the process has said so over it: it is not connected again
};
using RailsThere = std::span<const RailThere>;

/// Place of no rail: none is left out.
inline constexpr int kNoRail = -1;

/// Asks the rails in that state, the first one first, but not the one at place `except`, until one takes the
/// message: `send` gets a place, and returns whether it did.
template <class Send>
constexpr bool send_over(RailsThere rails, bfo_rail_state_t state, int except, Send send) {
  for (int i = 0; i < static_cast<int>(rails.size()); ++i)
    if (i != except && rails[static_cast<size_t>(i)].state == state && send(i)) return true;
  return false;
}

/// No rail leads to the process any more: over each it has said that it leaves, or the rail cannot come up.
constexpr bool nobody_there(RailsThere rails) {
  for (const RailThere& rail : rails)
    if (!rail.left && rail.state != BFO_RAIL_UNUSABLE) return false;
  return true;
}

/// Whether a message that was kept is over: sent, or for nobody. A rail whose clock stands is better than
/// none. `is_dead`: the process is known to have died; asked only when there is a rail.
template <class IsDead, class Send>
constexpr bool settle_kept(RailsThere rails, IsDead is_dead, Send send) {
  return nobody_there(rails) || is_dead() || send_over(rails, BFO_RAIL_UP, kNoRail, send) ||
         send_over(rails, BFO_RAIL_SUSPECT, kNoRail, send);
}

/// For a message that is kept, rails that no message has used yet are connected, the one that was asked for
/// among them. The others are on their way, or come back by themselves.
constexpr bool connects_for_kept(bfo_rail_state_t state) {
  return state == BFO_RAIL_IDLE;
}

/// Where a message goes that was given to one of several rails.
enum class Goes : uint8_t {
  kOverAsked,
  kOverAnother,
  kWaits,  ///< it has to be kept
};

/// `asked`: state of the rail that the message was given to; `as_it_is`: it need not be copied to be sent.
struct GivenMessage {
  bfo_rail_state_t asked;
  bool as_it_is;
  bool behind;  ///< others for that process are kept already
};

/// Over the rail that was asked for if it is up, else over another one that is up, else over the one that was
/// asked for after all: it may take a message while it connects, or is suspect. None overtakes one that is
/// kept. `over_asked` and `over_another` return whether they have sent it.
template <class Asked, class Another>
constexpr Goes send_given(const GivenMessage& message, Asked over_asked, Another over_another) {
  const bool up = message.asked == BFO_RAIL_UP;
  if (message.behind) return Goes::kWaits;
  if (up && message.as_it_is && over_asked()) return Goes::kOverAsked;
  if (over_another()) return Goes::kOverAnother;
  if (!up && message.as_it_is && over_asked()) return Goes::kOverAsked;
  return Goes::kWaits;
}

}  // namespace bfo::engine
