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

void Fabric::choose_fences() {
  expedited_ = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  if (!expedited_) forgo_membarrier();
}

/// The other processes see that long before this one has a completion queue to arm.
void Fabric::forgo_membarrier() {
  expedited_ = false;
  header_->full_fences.store(1);
}

void Fabric::heavy_fence() const {
  if (expedited_ && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) [[likely]]
    return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace bfo::softhca
