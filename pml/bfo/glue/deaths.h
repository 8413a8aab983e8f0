// SPDX-License-Identifier: BSD-3-Clause
//
// deaths.h: processes that die while the job goes on (mpirun --with-ft ulfm, Open MPI 5.0 and later). The
// runtime tells libmpi, libmpi marks the process, and this PML ends the requests with it, whatever its rails
// look like; a peer that this PML gives up because no rail reaches it is told to the runtime. So a process is
// dead for all or alive for all. Without the option nothing here is called.
//
// Two processes that reach others but not each other would declare each other dead, and both would end. So
// the lower of the two names decides at once; the higher one waits for what is said about itself.
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/status.h"
#include "pml/bfo/glue/port_types.h"

namespace bfo::glue {

/// Makes the engine's view of who is gone and the runtime's the same. To be called now and then, when the
/// runtime has told of a death, and when libmpi wants a request to end. Sends messages; not from inside the
/// engine.
void settle_deaths(Module& module);

/// The class that a request of `comm` ends with whose peer was lost, or whose message nobody receives.
/// `refused`: the peer is there, and has said so.
int lost_error(Outcome outcome, ompi_communicator_t& comm, int tag, bool refused);

/// The name of that class, for texts about all requests with a peer that was lost.
const char* lost_error_name(Outcome outcome);

/// pml_revoke_comm: nobody receives the messages of `comm` any more (`collective`: those of collective
/// operations), but for those by which the living agree.
int pml_revoke_comm(ompi_communicator_t* comm, bool collective);

}  // namespace bfo::glue
