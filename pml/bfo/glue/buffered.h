// SPDX-License-Identifier: BSD-3-Clause
//
// buffered.h: room in the user's buffer for MPI_Bsend.
#pragma once

#include <atomic>

#include "pml/bfo/glue/request.h"

namespace bfo::glue {

// Buffered sends that hold a part of the user's buffer, and how one more gets its part. Any thread.
class Buffered {
 public:
  // Copies the payload into the user's buffer. When there is no room, messages that have been received may
  // still hold theirs, because the news is in a rail's queue or on its way: makes progress and tries again,
  // as long as any message holds room, until `wait_ms` have passed without one giving it back. Returns
  // OMPI_SUCCESS or the error of libmpi (MPI_ERR_BUFFER).
  int take(SendRequest& req, int wait_ms);
  // The message has arrived: gives the room back.
  void give(SendRequest& req);

 private:
  std::atomic<int32_t> held_{0};
};

}  // namespace bfo::glue
