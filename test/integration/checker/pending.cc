// SPDX-License-Identifier: BSD-3-Clause
//
// Pending requests: all nine completion calls get their share.
#include "test/integration/checker/pending.h"

namespace bfo::checker {

void Pending::done(size_t index, const MPI_Status& status) {
  --left_;
  worker_.expect(requests_[index] == MPI_REQUEST_NULL, "a completed request is not MPI_REQUEST_NULL");
  worker_.shared.dog.beat();
  on_done_(tags_[index], status);
}

void Pending::compact() {
  size_t to = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[to] = requests_[i];
    tags_[to++] = tags_[i];
  }
  requests_.resize(to);
  tags_.resize(to);
}

void Pending::step(bool block) {
  if (!left_) return;
  const int n = static_cast<int>(requests_.size());
  statuses_.resize(requests_.size());
  indices_.resize(requests_.size());
  int flag = 0;
  int count = 0;
  int index = MPI_UNDEFINED;
  MPI_Status status;
  const uint64_t style = worker_.rng.below(block ? 9 : 5);
  switch (style) {
    case 0:
      worker_.check(MPI_Testsome(n, requests_.data(), &count, indices_.data(), statuses_.data()),
                    "MPI_Testsome");
      for (int i = 0; i < count; ++i)
        done(static_cast<size_t>(indices_[static_cast<size_t>(i)]), statuses_[static_cast<size_t>(i)]);
      break;
    case 1:
      worker_.check(MPI_Testany(n, requests_.data(), &index, &flag, &status), "MPI_Testany");
      if (flag && index != MPI_UNDEFINED) done(static_cast<size_t>(index), status);
      break;
    case 2:
      worker_.check(MPI_Testall(n, requests_.data(), &flag, statuses_.data()), "MPI_Testall");
      for (int i = 0; flag && i < n; ++i) done(static_cast<size_t>(i), statuses_[static_cast<size_t>(i)]);
      break;
    case 3:
    case 4: {
      const size_t i = worker_.rng.below(requests_.size());
      if (style == 4) {
        worker_.check(MPI_Request_get_status(requests_[i], &flag, &status), "MPI_Request_get_status");
        if (!flag) break;
      }
      worker_.check(MPI_Test(&requests_[i], &flag, &status), "MPI_Test");
      worker_.expect(style != 4 || flag, "MPI_Test disagrees with MPI_Request_get_status");
      if (flag) done(i, status);
      break;
    }
    case 5:
      worker_.check(MPI_Waitsome(n, requests_.data(), &count, indices_.data(), statuses_.data()),
                    "MPI_Waitsome");
      worker_.expect(count > 0, "MPI_Waitsome completed nothing");
      for (int i = 0; i < count; ++i)
        done(static_cast<size_t>(indices_[static_cast<size_t>(i)]), statuses_[static_cast<size_t>(i)]);
      break;
    case 6:
      worker_.check(MPI_Waitany(n, requests_.data(), &index, &status), "MPI_Waitany");
      if (index == MPI_UNDEFINED) worker_.give_up("MPI_Waitany: MPI_UNDEFINED with active requests");
      done(static_cast<size_t>(index), status);
      break;
    case 7: {
      const size_t i = worker_.rng.below(requests_.size());
      worker_.check(MPI_Wait(&requests_[i], &status), "MPI_Wait");
      done(i, status);
      break;
    }
    default:
      worker_.check(MPI_Waitall(n, requests_.data(), statuses_.data()), "MPI_Waitall");
      for (int i = 0; i < n; ++i) done(static_cast<size_t>(i), statuses_[static_cast<size_t>(i)]);
      break;
  }
  compact();
}

}  // namespace bfo::checker
