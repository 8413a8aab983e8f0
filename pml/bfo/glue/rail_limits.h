// SPDX-License-Identifier: BSD-3-Clause
//
// rail_limits.h: what a rail over a BTL module carries at most, by that module and the parameters.
#pragma once

#include "common/compat/ompi_includes.h"
#include "pml/bfo/glue/btl_port.h"
#include "pml/bfo/glue/params.h"

namespace bfo::glue {

inline const char* component_name(const mca_btl_base_module_t* btl) {
  return btl->btl_component->btl_version.mca_component_name;
}

/// `rdma`: it may have READs and writes, if the module has them.
xfer::RailLimits limits_of(const mca_btl_base_module_t* btl, const Params& params, bool rdma);

}  // namespace bfo::glue
