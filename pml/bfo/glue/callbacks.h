// SPDX-License-Identifier: BSD-3-Clause
//
// callbacks.h: what the rails call: messages, errors, rail events, and the regular turn of progress.
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"

namespace bfo::glue {

/// Receive callback of every tag, for BTLs that do not speak common/failover_btl.h, and cannot tell over
/// which of their connections a message came; its data is the Module. The others call the sink. It may also
/// print what pml_bfo_verbose asks for.
mca_btl_base_module_recv_cb_fn_t btl_message_callback();

/// Error callback of BTLs that do not speak common/failover_btl.h; the others report their rails through the
/// sink, and here the loss of what others than the PML have sent.
void on_btl_error(mca_btl_base_module_t* btl, int32_t flags, opal_proc_t* proc, char* info);

/// The sink a failover BTL is bound to; its ctx is the Module.
const bfo_failover_sink_t* failover_sink();

/// Progress of the engine: retries and park times. Returns how much was done.
int engine_progress();

}  // namespace bfo::glue
