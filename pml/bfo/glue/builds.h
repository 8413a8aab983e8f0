// SPDX-License-Identifier: BSD-3-Clause
//
// builds.h: of which build the other parts of a job are: the BTLs of this process, and the PMLs of its peers.
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"

namespace bfo::glue {

/// What the BTL component `name` exports as its contract, of whatever version; nullptr: nothing.
const bfo_failover_btl_t* contract_of(const char* name);
/// True when it is of this PML's version.
bool speaks(const bfo_failover_btl_t& contract);
/// The contract of the BTL (common/failover_btl.h), or nullptr when it has none that this PML speaks.
const bfo_failover_btl_t* find_failover(const mca_btl_base_module_t* btl);

/// False after one sentence: the BTL has a contract, of a version that this PML does not speak. Its rails
/// would not be protected.
bool contract_fits(const mca_btl_base_module_t* btl);

/// Publishes which messages this process speaks. OPAL_SUCCESS, or an OPAL error after one sentence.
int publish_versions();

/// False after one sentence for each host: `proc` and this process do not understand each other's messages.
/// Reads what the peer has published, which may take a message to its host.
bool understands(const opal_proc_t* proc);

}  // namespace bfo::glue
