// SPDX-License-Identifier: BSD-3-Clause
//
// waits.h: where Open MPI 4 waits for other processes by way of the runtime and makes no progress meanwhile:
// MPI_Comm_disconnect, MPI_Comm_connect, MPI_Comm_accept and MPI_Comm_spawn. A message that was sent before
// and is lost with its rail would not be sent again, and who waits for it would not come (H20).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

class Waits {
 public:
  // From now on there is progress while they wait. They are the runtime's function pointers, of which nobody
  // else keeps a copy.
  void take();
  // As it was.
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
