// SPDX-License-Identifier: BSD-3-Clause
//
// connect_timeout.cc: see connect_timeout.h.
//
// H1..H23: contrib/doc/hazards.md
#include "btl/verbs/engine/connect/connect_timeout.h"

#include <algorithm>
#include <cerrno>

#include "common/clock.h"
#include "btl/verbs/engine/connect/attempt.h"
#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/watchdog/verdict.h"
#include "btl/verbs/engine/connect/resource.h"

namespace bfo::engine {
namespace {

/// Bound of a first connection by the clock on the wall, as a multiple of Config::connect_timeout_ns.
constexpr uint64_t kMostTimeouts = 16;

/// A pause of this process in which the peer could answer, and has not: it counts although nobody looked.
void count_silence(Endpoint& endpoint) {
  const bool asked = endpoint.phase == Phase::kSoliciting || endpoint.phase == Phase::kRequesting ||
                     endpoint.phase == Phase::kReplied;
  const Port& port = *endpoint.port;
  if (asked && endpoint.times().phase_since_ns <= port.run_time().looked_before_ns())
    endpoint.first_connection().unanswered_ns += port.run_time().away_ns();
}

/// True when what waits for a first connection has waited for longer than is usual. Time in which this
/// process had no processor does not count: its own turns of the handshake were late, and so were the peer's,
/// as far as one can tell. What waits may have been taken after the clock was read, by another thread or for
/// another endpoint's loss.
bool waits_too_long(const Endpoint& endpoint, uint64_t now) {
  const Port& port = *endpoint.port;
  const uint64_t bound = port.config().connect_timeout_ns;
  return time_since(endpoint.first_connection().wanted_ran_ns, port.run_time().ran_ns()) +
                 endpoint.first_connection().unanswered_ns >
             bound ||
         time_since(endpoint.first_connection().wanted_since_ns, now) > kMostTimeouts * bound;
}

/// Gives up a rail that has never been up; true. A peer that got our REPLY may use the epoch already, and
/// messages that its device has seen acknowledged may wait in our completion queue: such an epoch is drained
/// like any other.
bool give_up(Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code, uint64_t now) {
  if (endpoint.phase != Phase::kReplied) {
    if (is_attempt(endpoint.phase)) attempt_drop(endpoint, now);
    cm_failed(endpoint, cause, code, now);
    return true;
  }
  // It is reported up, too, if such a message comes.
  const Host& host = endpoint.port->host();
  endpoint.past = Past::kLost;
  host.rail_down(host.ctx, endpoint, make_event(endpoint, cause, code, 0, now));
  return_queued(endpoint);
  uint32_t& fence = endpoint.notices().fence_asked;
  fence = std::max(fence, endpoint.epoch);
  close_order(endpoint, endpoint.epoch, cause, code, 0);
  return true;
}

/// The handshake takes longer than is usual, and another rail works: what waits takes that one. No loss: the
/// handshake goes on, and not from its beginning, because a peer that polls seldom would never end it. Of a
/// responder that has replied the peer may use the epoch already.
void be_late(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  endpoint.past = Past::kLost;
  host.rail_down(host.ctx, endpoint, make_event(endpoint, BFO_CAUSE_HANDSHAKE, EINPROGRESS, 0, now));
  return_queued(endpoint);
}

/// Evidence that a rail that has never been up will not come up: nobody answers PINGs, or the peer answers
/// but no handshake of a whole peer_timeout led to a path that works.
bool path_dead(const Endpoint& endpoint, uint64_t now) {
  constexpr uint32_t kEnough = 4;
  const uint64_t bound = endpoint.port->config().peer_timeout_ns;
  if (endpoint.pings().state == Pinged::kSilent) return true;
  return bound != 0 && endpoint.phase == Phase::kClosed && endpoint.path_failures().failures >= kEnough &&
         now - endpoint.path_failures().failed_since_ns > bound;
}

bool other_rail_works(Endpoint& endpoint) {
  const Host& host = endpoint.port->host();
  return endpoint.port->failover() && host.other_rail_up(host.ctx, endpoint);
}

/// True when another rail to the peer works, or may still come up: it is tried.
bool other_rail_may_work(Endpoint& endpoint) {
  const Host& host = endpoint.port->host();
  if (other_rail_works(endpoint)) return true;
  if (!endpoint.port->failover() || host.rails == nullptr) return false;
  host.connect_other_rails(host.ctx, endpoint);
  Endpoint* rails[kMostRails];
  const int count = host.rails(host.ctx, endpoint.peer.name, rails, kMostRails);
  return std::any_of(rails, rails + count, [&endpoint](const Endpoint* rail) {
    return rail != &endpoint && rail->port != nullptr && rail->port->state() == PortState::kActive &&
           rail->past == Past::kNone && rail->connect_wanted;
  });
}

/// Something is missing for longer than a rail is waited for: says so once. What waits takes another rail,
/// which is no loss; where there is none, a rail that has never been up is given up. True when it was given
/// up.
bool give_up_missing(Endpoint& endpoint, uint64_t now) {
  if (!resource_exhausted(endpoint, now) || !resource_stops(endpoint)) return false;
  const Host& host = endpoint.port->host();
  Shortage& shortage = endpoint.shortage();
  const bool news = !shortage.reported;
  shortage.reported = true;
  if (news) {
    ++endpoint.port->resources().rails_missing;
    if (host.rail_missing != nullptr) host.rail_missing(host.ctx, endpoint);
  }
  // Of a rail that was up before, or was given up before, everybody knows that it is down.
  const bool known = endpoint.ever_up() || endpoint.lost_reported() || !news;
  if (endpoint.ever_up() || (known && endpoint.queued.empty())) return false;
  if (other_rail_may_work(endpoint)) {
    be_late(endpoint, now);
    return false;
  }
  return give_up(endpoint, BFO_CAUSE_RESOURCE, shortage.error, now);
}

}  // namespace

void give_up_for_memory(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  ResourceCounts& counts = endpoint.port->resources();
  ++counts.failures[static_cast<size_t>(Object::kBuffers)];
  ++counts.rails_missing;
  if (host.rail_missing != nullptr) host.rail_missing(host.ctx, endpoint);
  cm_failed(endpoint, BFO_CAUSE_RESOURCE, endpoint.shortage().error, now);
  endpoint.connect_wanted = false;
}

bool first_connection_ends(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  if (give_up_missing(endpoint, now)) return true;
  if (endpoint.ever_up() || endpoint.queued.empty()) return false;
  // Fragments wait for a rail that has never been up: not longer than a live port and a bounded time
  // justify. The device may also be lost before the first attempt began.
  if (port.state() != PortState::kActive) {
    if (port.never_active()) return give_up(endpoint, BFO_CAUSE_HANDSHAKE, ENETDOWN, now);
    return give_up(endpoint, BFO_CAUSE_ASYNC_EVENT, IBV_EVENT_PORT_ERR, now);
  }
  // The other end was down when its process started: nothing waits for it, the rail joins when it is heard.
  if (endpoint.peer.initially_down) return give_up(endpoint, BFO_CAUSE_HANDSHAKE, ENETDOWN, now);
  if (path_dead(endpoint, now)) return give_up(endpoint, BFO_CAUSE_HANDSHAKE, ETIMEDOUT, now);
  count_silence(endpoint);
  const bool too_long = waits_too_long(endpoint, now);
  if (too_long || endpoint.first_connection().waited_long) {
    // An unanswered handshake alone proves nothing: the peer may be computing outside MPI (H15). What waits
    // moves only where another rail works; otherwise the other rails are tried too, and this one goes on.
    if (other_rail_works(endpoint)) {
      be_late(endpoint, now);
      return false;
    }
    if (too_long) {
      const Host& host = port.host();
      waits_from(endpoint, now);
      endpoint.first_connection().waited_long = true;
      host.connect_other_rails(host.ctx, endpoint);
    }
  }
  return false;
}

}  // namespace bfo::engine
