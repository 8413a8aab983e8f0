// SPDX-License-Identifier: BSD-3-Clause
//
// device.cc: what is said about buffers of a device.
#include "pml/bfo/glue/device.h"

#include "pml/bfo/glue/help.h"

namespace bfo::glue {

int refuse_device_buffer() {
  show_help("device-buffer", accelerator_name());
  return MPI_ERR_BUFFER;
}

void device_unreadable(size_t bytes) {
  show_help("device-unreadable", accelerator_name(), static_cast<unsigned long>(bytes));
  ompi_mpi_abort(&ompi_mpi_comm_world.comm, MPI_ERR_OTHER);
  ::abort();
}

}  // namespace bfo::glue
