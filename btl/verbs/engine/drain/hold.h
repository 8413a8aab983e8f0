// SPDX-License-Identifier: BSD-3-Clause
//
// hold.h: the first part of the drain of a rail that is given back (resource.h). Such a rail works, and what
// was posted on it ends as on any other: its queue pairs go to ERR when all of it has come back. The side
// that gives back also waits until the other half is closed. So no work of the peer meets a queue pair that
// is gone, however late the peer hears of it: that would look like a path that is dead.
//
//     gives back                            peer
//        rail_down, takes no more work
//        RAILDOWN(n), by the PML ---->         the same
//        later REFUSE(n + 1) ---->             the same, if it has not heard that
//        completes what comes                  waits for its own work; queue pairs to ERR, and so on
//                 <---- EPOCHCLOSED(n)         rail_closed
//        queue pairs to ERR, and so on
#pragma once

#include <cstdint>

namespace bfo::engine {

struct Endpoint;

/// It ends after so long in any case: the peer may compute, or wait for a processor. Second rails wait as
/// long.
inline constexpr uint64_t kHeldMostNs = 10'000'000'000;

/// The queue pairs stay as they are for a while. Progress function only.
void hold_begin(Endpoint& endpoint, uint64_t now);
/// True when it is over: all work has ended, or nothing can be waited for any more. Progress function only.
bool hold_ends(Endpoint& endpoint, uint64_t now);
/// True meanwhile.
bool is_held(const Endpoint& endpoint);

}  // namespace bfo::engine
