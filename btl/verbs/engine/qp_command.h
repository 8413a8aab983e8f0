// SPDX-License-Identifier: BSD-3-Clause
//
// qp_command.h: the control verbs on the queue pairs of an endpoint, run by the lanes of its port. Destroying
// takes seconds on some systems, and a cable that is pulled makes every endpoint of the port do it; a healthy
// port waits for none of that. An endpoint has at most one command under way, which owns the queue pairs; it
// takes no step that needs them meanwhile. An endpoint that is removed leaves its command to itself.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/cause.h"
#include "btl/verbs/engine/control.h"
#include "btl/verbs/engine/qp.h"

namespace bfo::engine {

class Port;
struct Endpoint;

/// A command, and the queue pairs it works on.
struct QpCommand : Command {
  enum class Verb : uint8_t {
    kStop,     // both to ERR
    kFence,    // the data queue pair is destroyed: nothing can land any more
    kDestroy,  // what is left goes to ERR, and is destroyed
  };
  Verb verb = Verb::kDestroy;
  Port* port = nullptr;
  Endpoint* endpoint = nullptr;  // nullptr: it is gone
  Qp data;
  Qp probe;
  ibv_cq* send_cq = nullptr;
  uint32_t reserved = 0;  // completion queue entries
  bool clean = true;      // the device refused nothing
  bool ask = false;       // why work was flushed, before kStop changes what there is to see
  Finding finding;
  bool on_heap = false;
};

// Progress function only.

/// Moves the queue pairs to ERR, and asks first why work was flushed if all evidence is that; drain_stopped()
/// follows.
void qp_stop(Endpoint& endpoint);
/// Destroys the data queue pair, which proves that nothing can land any more; drain_destroyed() follows. Its
/// completions count until then. The probe queue pair follows, and nobody waits for it.
void qp_fence(Endpoint& endpoint);
/// Destroys both, nothing of which counts any more. The endpoint may connect again when the command has
/// ended.
void qp_destroy(Endpoint& endpoint);
/// The endpoint goes away: its queue pairs are destroyed, now or when the command under way has ended.
void qp_forget(Endpoint& endpoint);

}  // namespace bfo::engine
