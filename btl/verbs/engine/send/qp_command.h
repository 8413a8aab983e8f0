// SPDX-License-Identifier: BSD-3-Clause
//
// qp_command.h: the control verbs on the queue pairs of an endpoint, run by the lanes of its port. Destroying
// takes seconds on some systems, and a cable that is pulled makes every endpoint of the port do it; on RoCE
// the way to RTR resolves the neighbour first, about a second when that does not answer. A healthy port waits
// for none of that. An endpoint has at most one command under way, which owns the queue pairs; it takes no
// step that needs them meanwhile. An endpoint that is removed, or gives up what its command prepares, leaves
// the command to itself: it destroys what it has made.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/cause.h"
#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

class Port;
struct Endpoint;
struct Packet;

inline constexpr uint32_t kProbeDepth = 2;  ///< work requests on the probe queue pair

/// What queue pairs are made and connected with, as it was when that was asked for.
struct QpPlan {
  const VerbsApi* api = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  QpSettings data;
  QpSettings probe;
  uint32_t data_psn = 0;
  uint32_t probe_psn = 0;
  PortAddress own;
  bool unaddressed = false;  ///< the port does not have the address it is to be connected with
  /// the peer's
  PortAddress peer;
  uint8_t path = 0;  ///< number of the path to it (qp.h)
  uint32_t peer_data_qpn = 0;
  uint32_t peer_data_psn = 0;
  uint32_t peer_probe_qpn = 0;
  uint32_t peer_probe_psn = 0;
};

/// What follows when queue pairs are made or connected, or `missing` could not be made, with errno `error`;
/// when they are in ERR, or the device refuses that; and when the device has answered to destroy_qp:
/// false if it is to be asked again, then the queue pairs stay.
using QpReady = void(Endpoint& endpoint, Object missing, int error);
using QpStopped = void(Endpoint& endpoint);
using QpFenced = bool(Endpoint& endpoint, bool fenced);

/// A command, and the queue pairs it works on.
struct QpCommand : Command {
  enum class Verb : uint8_t {
    kMake,      ///< both are created, and go to INIT
    kConnect,   ///< both to RTS, towards the peer's
    kMakeBoth,  ///< one after the other
    kStop,      ///< both to ERR
    kFence,     ///< the data queue pair is destroyed: nothing can land any more
    kDestroy,   ///< what is left goes to ERR, and is destroyed
  };
  Verb verb = Verb::kDestroy;
  Port* port = nullptr;
  Endpoint* endpoint = nullptr;  ///< nullptr: it is gone
  QpReady* ready = nullptr;      ///< kMake, kConnect, kMakeBoth
  QpStopped* stopped = nullptr;  ///< kStop
  QpFenced* fenced = nullptr;    ///< kFence
  bool again = false;            ///< kFence: the device has refused it before
  Qp data;
  Qp probe;
  ibv_cq* send_cq = nullptr;
  uint32_t reserved = 0;  ///< completion queue entries
  QpPlan plan;
  Object missing = Object::kNone;  ///< what could not be made
  int error = 0;                   ///< errno of that
  bool clean = true;               ///< the device refused nothing
  bool unwanted = false;           ///< what it makes is to be destroyed
  bool ask = false;                ///< why work was flushed, before kStop changes what there is to see
  Finding finding;
  bool on_heap = false;
};

// Progress function only.

/// Makes the queue pairs, on the reserved completion queue, and connects them to those of `request`, if there
/// is one.
void qp_make(Endpoint& endpoint, const Packet* request, QpReady* ready);
/// Connects them to those of `reply`.
void qp_connect(Endpoint& endpoint, const Packet& reply, QpReady* ready);
/// Moves the queue pairs to ERR, and asks first why work was flushed if all evidence is that.
void qp_stop(Endpoint& endpoint, QpStopped* stopped);
/// Destroys the data queue pair, which proves that nothing can land any more. Its completions count until
/// then. The probe queue pair follows, and nobody waits for it.
void qp_fence(Endpoint& endpoint, QpFenced* fenced);
/// Destroys both, nothing of which counts any more; also those that are being made or connected. The endpoint
/// may connect again when the command has ended.
void qp_destroy(Endpoint& endpoint);
/// The endpoint goes away: its queue pairs are destroyed, now or when the command under way has ended.
void qp_forget(Endpoint& endpoint);

}  // namespace bfo::engine
