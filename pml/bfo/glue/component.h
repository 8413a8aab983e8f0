// SPDX-License-Identifier: BSD-3-Clause
//
// component.h: the one global of the PML: the component object Open MPI finds by name.
#pragma once

#include "common/claims.h"
#include "common/compat/ompi_includes.h"
#include "pml/bfo/glue/params.h"

namespace bfo::glue {

class Module;

struct Component {
  mca_pml_base_component_t super;  ///< must be first: Open MPI sees only this
  Params params;
  Claims claims;   ///< what one process of a host says for all
  int output;      ///< opal_output stream of pml_bfo_verbose; -1 = not open
  bool bml_open;   ///< this component holds a reference to the BML framework
  bool devices;    ///< Open MPI found an accelerator: buffers may be in its memory
  Module* module;  ///< exists between component init and finalize of the selected PML
};

}  // namespace bfo::glue

extern "C" {
OMPI_DECLSPEC extern bfo::glue::Component mca_pml_bfo_component;
}
