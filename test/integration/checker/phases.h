// SPDX-License-Identifier: BSD-3-Clause
//
// The phases of the checker: each exercises one part of MPI point-to-point and leaves nothing outstanding.
#pragma once

#include <mpi.h>

#include <span>

#include "test/integration/checker/worker.h"

namespace bfo::checker {

/// Collective over `parent`; errors are returned on it (MPI_ERRORS_RETURN).
using PhaseRun = void (*)(Worker& worker, MPI_Comm parent);

struct Phase {
  const char* name;
  PhaseRun run;
  const char* what;
};
std::span<const Phase> phases();

void phase_ladder(Worker&, MPI_Comm);
void phase_exchange(Worker&, MPI_Comm);
void phase_storm(Worker&, MPI_Comm);
void phase_unexpected(Worker&, MPI_Comm);
void phase_flood(Worker&, MPI_Comm);
void phase_wildcard(Worker&, MPI_Comm);
void phase_large(Worker&, MPI_Comm);
void phase_persistent(Worker&, MPI_Comm);
void phase_inactive(Worker&, MPI_Comm);
void phase_probe(Worker&, MPI_Comm);
void phase_mprobe(Worker&, MPI_Comm);
void phase_cancel(Worker&, MPI_Comm);
void phase_truncate(Worker&, MPI_Comm);
void phase_datatypes(Worker&, MPI_Comm);
void phase_comms(Worker&, MPI_Comm);
void phase_self(Worker&, MPI_Comm);
void phase_intercomm(Worker&, MPI_Comm);
void phase_collectives(Worker&, MPI_Comm);
void phase_pause(Worker&, MPI_Comm);
void phase_threads(Worker&, MPI_Comm);

/// A duplicate of `parent` with errors returned, freed at the end of the scope.
class OwnComm {
 public:
  OwnComm(Worker& worker, MPI_Comm parent) : worker_(worker) {
    worker.check(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~OwnComm() { worker_.check(MPI_Comm_free(&comm_), "MPI_Comm_free"); }
  OwnComm(const OwnComm&) = delete;
  OwnComm& operator=(const OwnComm&) = delete;
  MPI_Comm get() const { return comm_; }

 private:
  Worker& worker_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// How a storm round is played; the same on all ranks.
struct Round {
  enum class Order { kReceivesFirst, kReceivesFirstBarrier, kSendsFirst };
  enum class Wild { kNone, kSource, kTag, kBoth };
  Order order = Order::kReceivesFirst;
  Wild wild = Wild::kNone;
  uint64_t cap_bytes = 0;
  uint32_t per_stream = 0;  ///< most messages per stream
  int tags = 6;
  int first_tag = 0;
  uint64_t seed = 0;
};
/// One round of traffic from every peer to every peer of the lane.
void storm_round(Worker& worker, Lane& lane, const Round& round);
/// A random round drawn from the agreed numbers.
Round draw_round(Worker& worker);

}  // namespace bfo::checker
