// SPDX-License-Identifier: BSD-3-Clause
//
// Pending requests: a set of MPI requests completed through a randomly chosen member of the Wait and Test
// family.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "test/integration/checker/worker.h"

namespace bfo::checker {

/// Requests with a user tag each. on_done(tag, status) is called once per completed request.
class Pending {
 public:
  using Done = std::function<void(size_t tag, const MPI_Status& status)>;
  Pending(Worker& worker, Done on_done) : worker_(worker), on_done_(std::move(on_done)) {}
  void add(MPI_Request request, size_t tag) {
    requests_.push_back(request);
    tags_.push_back(tag);
    ++left_;
  }
  size_t left() const { return left_; }
  /// Makes one completion call; blocks for at least one request when `block` is set.
  void step(bool block);
  void all() {
    while (left_) step(true);
  }

 private:
  void done(size_t index, const MPI_Status& status);
  void compact();
  Worker& worker_;
  Done on_done_;
  std::vector<MPI_Request> requests_;
  std::vector<size_t> tags_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  size_t left_ = 0;
};

}  // namespace bfo::checker
