// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/finish.h"

namespace player {
namespace {

using Requests = std::vector<MPI_Request>;
using Ends = std::vector<Ended>;

void wait_one(Requests* requests, Ends* ends, size_t i) {
  const int code = MPI_Wait(&(*requests)[i], &(*ends)[i].status);
  (*ends)[i].error = error_class(code);
}

void test_each(Requests* requests, Ends* ends) {
  std::vector<int> done(requests->size(), 0);
  for (size_t left = requests->size(); left > 0;) {
    for (size_t i = 0; i < requests->size(); ++i) {
      if (done[i]) continue;
      (*ends)[i].error = error_class(MPI_Test(&(*requests)[i], &done[i], &(*ends)[i].status));
      if ((*ends)[i].error != MPI_SUCCESS) done[i] = 1;
      left -= done[i] ? 1 : 0;
    }
  }
}

// What a call for all requests says of each: MPI_ERR_PENDING is neither done nor failed.
void take_all(Requests* requests, Ends* ends, int code, const std::vector<MPI_Status>& statuses) {
  const bool apart = error_class(code) == MPI_ERR_IN_STATUS;
  for (size_t i = 0; i < requests->size(); ++i) {
    (*ends)[i] = {apart ? error_class(statuses[i].MPI_ERROR) : error_class(code), statuses[i]};
    if (apart && (*ends)[i].error == MPI_ERR_PENDING) wait_one(requests, ends, i);
  }
}

void all_at_once(Requests* requests, Ends* ends, bool test) {
  std::vector<MPI_Status> statuses(requests->size());
  const int n = static_cast<int>(requests->size());
  int done = 0;
  int code = MPI_SUCCESS;
  while (done == 0) {
    code = test ? MPI_Testall(n, requests->data(), &done, statuses.data())
                : MPI_Waitall(n, requests->data(), statuses.data());
    if (!test || code != MPI_SUCCESS) done = 1;
  }
  take_all(requests, ends, code, statuses);
}

// Requests of `open` that were there `before` and are gone without having been told of.
void note_unseen(const Requests& before, const Requests& open, Requests* requests, Ends* ends) {
  for (size_t i = 0; i < open.size(); ++i) {
    if (before[i] == MPI_REQUEST_NULL || open[i] != MPI_REQUEST_NULL) continue;
    (*ends)[i].unseen = true;
    (*requests)[i] = MPI_REQUEST_NULL;
  }
}

void one_of_all(Requests* requests, Ends* ends, bool test) {
  // A copy that keeps no request which has failed: MPI leaves such a handle in place.
  Requests open = *requests;
  for (;;) {
    int index = MPI_UNDEFINED;
    int flag = 1;
    MPI_Status status = {};
    const int n = static_cast<int>(open.size());
    Requests before = open;
    const int code = test ? MPI_Testany(n, open.data(), &index, &flag, &status)
                          : MPI_Waitany(n, open.data(), &index, &status);
    if (!flag) continue;
    if (index == MPI_UNDEFINED) return;
    const auto i = static_cast<size_t>(index);
    // MPI_Testany of Open MPI 4.1 tells of a failed persistent request in the status only.
    (*ends)[i] = {error_class(code != MPI_SUCCESS ? code : status.MPI_ERROR), status};
    (*requests)[i] = open[i];
    before[i] = MPI_REQUEST_NULL;
    note_unseen(before, open, requests, ends);
    if (code != MPI_SUCCESS) open[i] = MPI_REQUEST_NULL;
  }
}

void some_of_all(Requests* requests, Ends* ends, bool test) {
  Requests open = *requests;
  std::vector<int> indices(open.size());
  std::vector<MPI_Status> statuses(open.size());
  for (;;) {
    int count = 0;
    const int n = static_cast<int>(open.size());
    Requests before = open;
    const int code = test ? MPI_Testsome(n, open.data(), &count, indices.data(), statuses.data())
                          : MPI_Waitsome(n, open.data(), &count, indices.data(), statuses.data());
    if (count == MPI_UNDEFINED) return;
    for (int k = 0; k < count; ++k) {
      const auto i = static_cast<size_t>(indices[static_cast<size_t>(k)]);
      const MPI_Status& status = statuses[static_cast<size_t>(k)];
      const bool apart = error_class(code) == MPI_ERR_IN_STATUS;
      (*ends)[i] = {apart ? error_class(status.MPI_ERROR) : error_class(code), status};
      (*requests)[i] = open[i];
      before[i] = MPI_REQUEST_NULL;
      if ((*ends)[i].error != MPI_SUCCESS) open[i] = MPI_REQUEST_NULL;
    }
    note_unseen(before, open, requests, ends);
  }
}

}  // namespace

int error_class(int code) {
  int kind = code;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  return kind;
}

std::vector<Ended> finish(std::vector<MPI_Request>* requests, const std::string& how) {
  Ends ends(requests->size());
  if (requests->empty()) return ends;
  const size_t n = requests->size();
  if (how == "waitall" || how == "testall")
    all_at_once(requests, &ends, how == "testall");
  else if (how == "waitany" || how == "testany")
    one_of_all(requests, &ends, how == "testany");
  else if (how == "waitsome" || how == "testsome")
    some_of_all(requests, &ends, how == "testsome");
  else if (how == "test")
    test_each(requests, &ends);
  else
    for (size_t i = 0; i < n; ++i) wait_one(requests, &ends, how == "reverse" ? n - 1 - i : i);
  return ends;
}

}  // namespace player
