// SPDX-License-Identifier: BSD-3-Clause
//
// waits.h: progress while Open MPI 4 waits for the runtime in MPI_Comm_disconnect, MPI_Comm_connect,
// MPI_Comm_accept and MPI_Comm_spawn. Open MPI itself makes none there. A message that was sent before and
// lost with its rail would not be sent again, and its receiver would not take part in the call (H20).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

class Waits {
 public:
  /// Replaces the runtime's function pointers for these calls. Nothing else in Open MPI keeps a copy of them.
  void take();
  /// Restores them.
  void release();

#if OMPI_MAJOR_VERSION < 5
  int fence(opal_list_t* procs, int collect_data) const;
  int connect(opal_list_t* procs) const;
  int lookup(opal_list_t* data, opal_list_t* info) const {
    return was_.lookup(data, info);
  }

 private:
  opal_pmix_base_module_t was_ = {};
  bool taken_ = false;
#endif
};

}  // namespace bfo::glue
