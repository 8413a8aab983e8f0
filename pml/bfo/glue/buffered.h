// SPDX-License-Identifier: BSD-3-Clause
//
// buffered.h: space in the user's buffer for MPI_Bsend.
#pragma once

#include <atomic>

#include "pml/bfo/glue/request.h"

namespace bfo::glue {

/// Buffered sends that hold a part of the user's buffer, and how one more gets its part. Any thread.
class Buffered {
 public:
  /// Copies the payload into the user's buffer. When there is no space, messages that have been received may
  /// still occupy theirs, because their completions have not been read. Then it makes progress and tries
  /// again, until no message occupies space or `wait_ms` have passed without one releasing it. Returns
  /// OMPI_SUCCESS or the error of libmpi (MPI_ERR_BUFFER).
  int take(SendRequest& req, int wait_ms);
  /// The message has arrived: releases its space.
  void give(SendRequest& req);

 private:
  std::atomic<int32_t> held_{0};
};

}  // namespace bfo::glue
