// SPDX-License-Identifier: BSD-3-Clause
//
// shared_file.cc: see shared_file.h.
#include "common/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace bfo {

bool SharedFile::map(const char* folder, const char* name, size_t size) {
  char path[1024];
  const int n =
      folder == nullptr || *folder == '\0' ? -1 : snprintf(path, sizeof path, "%s/%s", folder, name);
  if (n < 0 || static_cast<size_t>(n) >= sizeof path) return false;
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd < 0) return false;
  struct stat info {};
  void* memory = MAP_FAILED;
  // The room is taken before the memory is touched: a full file system is an error here and not a signal
  // later.
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
      fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0)
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return false;
  close();
  memory_ = memory;
  size_ = size;
  return true;
}

bool SharedFile::own(size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  close();
  memory_ = memory;
  size_ = size;
  return true;
}

void SharedFile::close() {
  if (memory_ != nullptr) munmap(std::exchange(memory_, nullptr), size_);
}

}  // namespace bfo
