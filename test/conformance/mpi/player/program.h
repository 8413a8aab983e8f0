// SPDX-License-Identifier: BSD-3-Clause
// Programs as text: what generator.py writes and every rank reads.
#pragma once

#include "test/conformance/mpi/player/side.h"

#include <string>
#include <vector>

namespace player {

/// One message, or one receive that is cancelled. Processes are numbered over all jobs: parents, then spawned
/// ones.
struct Message {
  int id;
  std::string comm;  ///< world dup split inter merged spawned freed
  int source;
  int target;
  int tag;
  std::string send;  ///< send isend ssend issend rsend irsend bsend ibsend and *_init; sendrecv replace; none
  std::string receive;  ///< recv irecv recv_init probe iprobe mprobe imrecv improbe; sendrecv replace; cancel
  std::string wild;     ///< none source tag both
  SideSpec out;
  SideSpec in;
  bool free_types;  ///< as soon as the message is posted
};

/// Messages that are under way together, `waves` times; `finish[p]` is how process p completes its requests.
struct Batch {
  int id;
  int waves;
  bool ready_barrier;  ///< all receives are posted before anything is sent
  bool end_barrier;    ///< nothing of a later batch arrives before this one is over
  std::vector<std::string> finish;
  std::vector<Message> messages;
};

struct Program {
  std::string name;
  uint64_t seed;
  std::vector<Batch> batches;
};

/// Reads `path`; ends the process with one sentence when it cannot.
std::vector<Program> read_programs(const std::string& path);

}  // namespace player
