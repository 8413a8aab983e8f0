// SPDX-License-Identifier: BSD-3-Clause
//
// contract.h: what a failover BTL reports (common/failover_btl.h), in the engine's types. The component and
// the simulator of the whole stack use the same functions.
#pragma once

#include <cerrno>

#include "common/failover_btl.h"
#include "common/status.h"
#include "pml/bfo/xfer/counters.h"

namespace bfo::xfer {

inline RailState state_of(bfo_rail_state_t state) {
  switch (state) {
    case BFO_RAIL_IDLE:
      return RailState::kIdle;
    case BFO_RAIL_CONNECTING:
      return RailState::kConnecting;
    case BFO_RAIL_UP:
      return RailState::kUp;
    case BFO_RAIL_SUSPECT:
      return RailState::kSuspect;
    case BFO_RAIL_DOWN:
      return RailState::kClosed;
    case BFO_RAIL_UNUSABLE:
      break;
  }
  return RailState::kUnusable;
}

inline RailEvent event_of(const bfo_rail_event_t& ev) {
  RailEvent out;
  out.name = {ev.info.name.conn, ev.info.name.epoch};
  out.cause = ev.cause;
  out.code = ev.code;
  out.evidence_ns = ev.evidence_ns;
  out.text = ev.text;
  out.left = ev.cause == BFO_CAUSE_SHUTDOWN;
  out.late = ev.cause == BFO_CAUSE_HANDSHAKE && (ev.code == ENETDOWN || ev.code == EINPROGRESS);
  // The peer says it of its half, too.
  out.given_back = ev.cause == BFO_CAUSE_GIVEN_BACK ||
                   (ev.cause == BFO_CAUSE_PEER_DOWN && ev.code == BFO_CAUSE_GIVEN_BACK);
  return out;
}

/// How a fragment ended, from its status (BFO_RC_*).
inline Fate fate_of(int status) {
  if (status == BFO_RC_DELIVERED) [[likely]]
    return Fate::kDelivered;
  return status == BFO_RC_NEVER_SENT ? Fate::kNeverSent : Fate::kUnknown;
}

}  // namespace bfo::xfer
