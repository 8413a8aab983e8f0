// SPDX-License-Identifier: BSD-3-Clause
//
// claim.cc: see claim.h. The file is empty until it is claimed, and has two bytes when it is said.
#include "pml/bfo/glue/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

namespace bfo::glue {
namespace {

// -1: it cannot be told.
off_t size_of(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? file.st_size : -1;
}

}  // namespace

Claim::~Claim() {
  if (fd_ >= 0) ::close(fd_);
}

void Claim::open(const char* folder, const char* name) {
  char path[PATH_MAX];
  const int n = folder == nullptr ? -1 : snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (n < 0 || static_cast<size_t>(n) >= sizeof(path)) return;
  fd_ = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

bool Claim::take(bool otherwise) {
  if (fd_ < 0 || flock(fd_, LOCK_EX) != 0) return otherwise;
  const off_t size = size_of(fd_);
  // A process that dies in here gives the lock back, and has claimed nothing.
  const bool mine = size == 0 && pwrite(fd_, "c", 1, 0) == 1;
  flock(fd_, LOCK_UN);
  return mine || (size <= 0 && otherwise);
}

void Claim::said() {
  if (fd_ < 0) return;
  [[maybe_unused]] const ssize_t written = pwrite(fd_, "s", 1, 1);
}

void Claim::wait(int most_ms) const {
  for (int ms = 0; ms < most_ms && fd_ >= 0 && size_of(fd_) == 1; ++ms) usleep(1000);
}

}  // namespace bfo::glue
