// SPDX-License-Identifier: BSD-3-Clause
//
// claim.h: of what all processes of a host could say, one says it: whoever comes first. A process that
// computes, or died, keeps nobody silent. No Open MPI here.
#pragma once

namespace bfo::glue {

class Claim {
 public:
  ~Claim();
  Claim() = default;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  /// While no process of the job can end yet: one that ends removes the file, which the others then still
  /// have open. `folder`: shared by the processes of the job on this host; nullptr without one.
  void open(const char* folder, const char* name);
  /// True for one of them. Where there is no file nobody knows of the others: then it is `otherwise`.
  bool take(bool otherwise);
  /// After take() was true: what was to say is said.
  void said();
  /// After take() was false: waits until it is said, `most_ms` milliseconds at most.
  void wait(int most_ms) const;

 private:
  int fd_ = -1;
};

}  // namespace bfo::glue
