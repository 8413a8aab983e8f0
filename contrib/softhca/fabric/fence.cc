// SPDX-License-Identifier: BSD-3-Clause
//
// Asymmetric fences between the processes of a fabric: membarrier(2) makes every processor that runs one of
// their threads execute a fence, so that the side that is always in a hurry needs none.
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {
namespace {

bool membarrier(int command) {
  return syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

/// In a process with several threads it waits until all processors have changed context, some milliseconds;
/// a second time it does nothing. Kernels before 4.16 and some containers have no such call.
void Fabric::register_for_fences() {
  expedited_ = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

/// The other processes see that long before this one has a completion queue to arm.
void Fabric::forgo_membarrier() {
  expedited_ = false;
  header_->full_fences.store(1);
}

/// It can fail after a registration: no memory for the set of processors, or a filter of system calls that
/// the program has installed since.
bool Fabric::heavy_fence() {
  if (!expedited()) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return true;
  }
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) [[likely]]
    return true;
  forgo_membarrier();
  return false;
}

}  // namespace bfo::softhca
