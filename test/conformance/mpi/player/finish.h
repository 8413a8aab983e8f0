// SPDX-License-Identifier: BSD-3-Clause
// The ways of MPI to complete a set of requests.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace player {

/// How a request ended: an error class, and its status.
struct Ended {
  int error = MPI_SUCCESS;
  MPI_Status status = {};
};

/// Completes all requests in the way `how`: wait, reverse, waitall, waitany, waitsome, test, testall,
/// testany, testsome. Entry i of the result belongs to request i; requests that were MPI_REQUEST_NULL have no
/// meaningful entry.
std::vector<Ended> finish(std::vector<MPI_Request>* requests, const std::string& how);

/// The class of an error code.
int error_class(int code);

}  // namespace player
