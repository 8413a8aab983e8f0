// SPDX-License-Identifier: BSD-3-Clause
//
// pvars.h: MPI_T performance variables of the component.
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

/// Registers queue lengths per communicator and the failover totals of the process. Called once from
/// component register; a variable that cannot be registered is left out.
void register_pvars(const mca_base_component_t* component);

}  // namespace bfo::glue
