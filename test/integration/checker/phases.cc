// SPDX-License-Identifier: BSD-3-Clause
//
// The list of phases, in the order in which a run goes through them.
#include "test/integration/checker/phases.h"

namespace bfo::checker {

std::span<const Phase> phases() {
  static constexpr Phase kPhases[] = {
      {"ladder", phase_ladder, "blocking ping-pong of every threshold size, all send modes"},
      {"exchange", phase_exchange, "neighbours send to each other at the same time"},
      {"storm", phase_storm, "all to all, many outstanding, all modes, specific and wildcard receives"},
      {"unexpected", phase_unexpected, "all messages sent before any receive is posted"},
      {"flood", phase_flood, "more small messages than 16 bits can count"},
      {"wildcard", phase_wildcard, "MPI_ANY_SOURCE and MPI_ANY_TAG in all combinations"},
      {"large", phase_large, "several of the largest messages in both directions at once"},
      {"persistent", phase_persistent, "persistent requests in all modes"},
      {"inactive", phase_inactive, "the rules for inactive persistent requests"},
      {"probe", phase_probe, "MPI_Probe, MPI_Iprobe"},
      {"mprobe", phase_mprobe, "MPI_Mprobe, MPI_Improbe, MPI_Imrecv, messages held for long"},
      {"cancel", phase_cancel, "cancelled receives, also in a race with the message"},
      {"truncate", phase_truncate, "messages longer than the receive"},
      {"datatypes", phase_datatypes, "non-contiguous datatypes, gaps untouched"},
      {"comms", phase_comms, "communicators duplicated and freed while messages travel"},
      {"self", phase_self, "messages to oneself"},
      {"intercomm", phase_intercomm, "intercommunicators"},
      {"collectives", phase_collectives, "reductions, broadcasts, all-to-all"},
      {"pause", phase_pause, "a rank that does not call MPI for a while"},
      {"threads", phase_threads, "several threads per rank (with --threads)"},
  };
  return kPhases;
}

}  // namespace bfo::checker
