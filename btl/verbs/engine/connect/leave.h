// SPDX-License-Identifier: BSD-3-Clause
//
// leave.h: this process goes away in order. Its own work has ended, but a peer may still wait for the
// acknowledgment of a message or of a marker behind one, and only a queue pair acknowledges. So leaving has
// two sides:
//
//     leaving                             peer
//        BYE(n, messages received) ---->      what those were is delivered; nothing more is needed from here
//                 <---- BYE(heard)            its half of the epoch is drained, without a word of failure
//
// BYE is repeated until the peer's own BYE has come, which is as good as an answer, and the queue pairs stay
// so long. Whoever calls has a bound of time: a peer may have died, or compute. By then its port holds the
// BYE, which it reads before the error of a queue pair that is gone.
#pragma once

#include <cstdint>

namespace bfo::engine {

struct Endpoint;

/// From now on no epoch begins, and what ends this one is no failure. Under the lock.
void leave_begin(Endpoint& endpoint);
/// True while the peer has not answered. Under the lock.
bool leave_pending(const Endpoint& endpoint);
/// A turn of an endpoint that leaves: says BYE when it is time. Progress function only.
void leave_step(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
