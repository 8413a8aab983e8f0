// SPDX-License-Identifier: BSD-3-Clause
//
// deaths.cc: see deaths.h.
#include "pml/bfo/glue/deaths.h"

#include <climits>
#include <vector>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {
namespace {

// So long the process with the higher name waits. Longer than the other one needs to give up as well.
constexpr uint64_t kDeferNs = 5'000'000'000;

xfer::TagRange range(const Tags& tags) {
  return {tags.lowest, tags.highest};
}

// Does this process decide that `peer` is gone?
bool decides(const ompi_proc_t& peer, uint64_t lost_for_ns) {
  const bool lower = opal_compare_proc(OPAL_PROC_MY_NAME, peer.super.proc_name) < 0;
  return lower || lost_for_ns >= kDeferNs;
}

// Is a peer that was lost like this a process that failed, in the words of MPI?
bool is_process_failure(Outcome outcome) {
  return survives_deaths() && outcome != Outcome::kNoMemory;
}

}  // namespace

void settle_deaths(Module& module) {
  if (module.leaving()) return;
  std::vector<ompi_proc_t*> given_up;
  module.engine().compare_losses([](const PeerHandle& peer) { return is_dead(*peer.proc); },
                                 [&given_up](const PeerHandle& peer, uint64_t ns) {
                                   if (!peer.refused && decides(*peer.proc, ns))
                                     given_up.push_back(peer.proc);
                                 });
  for (ompi_proc_t* const proc : given_up) declare_dead(*proc);
}

int lost_error(Outcome outcome, ompi_communicator_t& comm, int tag, bool refused) {
  if (!is_process_failure(outcome)) return MPI_ERR_OTHER;
  if (range(kFailureTags).has(tag)) return proc_failed_error();
  if (is_revoked(comm) || (refused && !is_collective(tag))) return revoked_error();
  return proc_failed_error();
}

const char* lost_error_name(Outcome outcome) {
  return is_process_failure(outcome) ? "MPI_ERR_PROC_FAILED" : "MPI_ERR_OTHER";
}

int pml_revoke_comm(ompi_communicator_t* comm, bool collective) {
  // Collective operations of an intercommunicator also use one of its own group, which libmpi leaves to the
  // PML.
  if (OMPI_COMM_IS_INTER(comm) && comm->c_local_comm != nullptr)
    pml_revoke_comm(comm->c_local_comm, collective);
  Module& module = *mca_pml_bfo_component.module;
  module.note_death();  // that is what libmpi revokes collective operations for
  mark_revoked(*comm, collective);
  Comm* const c = static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm));
  if (c == nullptr) return OMPI_SUCCESS;
  xfer::Refusal refusal;
  refusal.tags = collective && !is_revoked(*comm) ? range(kCollectiveTags) : xfer::TagRange{INT_MIN, INT_MAX};
  refusal.still = range(kFailureTags);
  module.engine().comm_revoke(c, refusal);
  return OMPI_SUCCESS;
}

}  // namespace bfo::glue
