// SPDX-License-Identifier: BSD-3-Clause
// The ways of MPI to complete a set of requests.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace player {

/// How a request ended: an error class, and its status. `unseen`: Open MPI has freed it and never said how it
/// ended. When one request of MPI_Waitany or MPI_Testany has failed, 4.1 frees all of the array that have
/// failed by then, and tells of one.
struct Ended {
  int error = MPI_SUCCESS;
  MPI_Status status = {};
  bool unseen = false;
};

/// Completes all requests in the way `how`: wait, reverse, waitall, waitany, waitsome, test, testall,
/// testany, testsome. Entry i of the result belongs to request i; requests that were MPI_REQUEST_NULL have no
/// meaningful entry.
std::vector<Ended> finish(std::vector<MPI_Request>* requests, const std::string& how);

/// The class of an error code.
int error_class(int code);

}  // namespace player
