// SPDX-License-Identifier: BSD-3-Clause
//
// resource.h: what is done when a rail cannot be made because something is missing: a queue pair, registered
// memory, an address handle. A missing object is counted and tried again with back-off, because it may have
// been missing for a moment only. After a bound of time and of tries the rail is given up: what waits for it
// comes back as never sent and takes another rail, and a sentence names the object, the error, the limit and
// the remedy. Tries go on, so that a rail joins when there is room again.
//
// Queue pairs go first to peers without any rail: when one cannot be had for such a peer, here or there, a
// second rail of another peer gives its own back, which is no loss, and no second rail begins for a while.
//
// Only the initiator of a rail gives it back. Processes of other jobs and of the own one share a device.
// Where this process has no second rail on the port that it may give back, it says REFUSE over some of the
// rails that are up: each peer that hears it gives a second rail back, that one if it can. With errno 0 it
// only says that queue pairs are short.
//
//     this side cannot make it   ----> REFUSE(object, errno) ---->  the peer counts it as its own failure
//
// so both sides come to the same decision, and neither takes the other for busy.
#pragma once

#include "btl/verbs/engine/rail/shortage.h"

namespace bfo::engine {

struct Packet;

/// A rail is given up when so many tries have failed, in at least Config::connect_timeout_ns.
inline constexpr uint32_t kResourceTries = 4;
/// After a queue pair could not be made, rails to peers that have another one wait for so long.
inline constexpr uint64_t kShortNs = 10'000'000'000;
/// So much later, and half the time limit, the peer of a process that misses something decides.
inline constexpr uint64_t kReportFirstNs = 100'000'000;

// Progress function only, never under the port's lock.

/// This side could not make `object` for `endpoint`: counts it and tells the peer. `error` is an errno.
void resource_failed(Endpoint& endpoint, Object object, int error);
/// The peer says that it cannot.
void resource_refused(Endpoint& endpoint, const Packet& packet, uint64_t now);
/// REFUSE came over a rail that is up: the peer's device is short of something that second rails have.
void resource_short(Endpoint& endpoint, const Packet& packet, uint64_t now);
/// True while queue pairs are short and the peer has another rail, so that this one does without.
bool resource_waits(const Endpoint& endpoint, uint64_t now);
/// An attempt that waits for its peer's part drops its queue pairs when resource_waits(), or when the peer,
/// which has another rail, does not answer while they are short. True when it did.
bool resource_give_back(Endpoint& endpoint, uint64_t now);
/// Nothing is missing any more: the rail is up.
void resource_made(Endpoint& endpoint);
/// True when enough was tried.
bool resource_exhausted(const Endpoint& endpoint, uint64_t now);
/// True unless the attempt that is under way has found what was missing.
bool resource_stops(const Endpoint& endpoint);

}  // namespace bfo::engine
