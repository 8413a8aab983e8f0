// SPDX-License-Identifier: BSD-3-Clause
//
// suspect.h: a rail is made suspect, for silence (watchdog.cc) or for another reason. It is the second choice
// from then on, and tested; the watchdog takes it back when the test has come back, or goes on as after
// silence.
#pragma once

#include <cstdint>

namespace bfo::engine {

struct Endpoint;

// Progress function only, never under the port's lock.

/// Makes a rail that is up suspect because of `why`, a short text for people. Nothing happens without a
/// watchdog or a layer above that has other rails: nobody would take it back.
void suspect(Endpoint& endpoint, const char* why, uint64_t now);

/// Tells of a rail that has just become suspect, tests its path, and asks its peer (verdict.h).
void report_suspect(Endpoint& endpoint, const char* why, uint64_t now);
/// Tests the path by a zero-byte write on the probe queue pair, unless that takes none.
void send_path_probe(Endpoint& endpoint);

}  // namespace bfo::engine
