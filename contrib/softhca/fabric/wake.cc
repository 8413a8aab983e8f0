// SPDX-License-Identifier: BSD-3-Clause
//
// Waking another process: completion channels and asynchronous event queues are pipes of their owner, and
// other processes of the same user open them through /proc/PID/fd. That needs the same permission as
// process_vm_writev and no file names, and works under valgrind, which lacks the pidfd calls.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {
namespace {
constexpr size_t kMaxCached = 256;

bool is_that_pipe(const struct stat& info, WakeName name) {
  return S_ISFIFO(info.st_mode) && static_cast<uint32_t>(info.st_ino) == name >> 32;
}

}  // namespace

/// The inode belongs to this pipe as long as any process has it open, and what is cached stays open until it
/// is forgotten, or too much is cached.
WakeName Fabric::wake_name(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return 0;
  const WakeName name = uint64_t{static_cast<uint32_t>(info.st_ino)} << 32 | static_cast<uint32_t>(fd);
  std::lock_guard<std::mutex> guard(wake_mutex_);
  wake_fd(pid_, name);
  return name;
}

void Fabric::forget_wake(WakeName name) {
  std::lock_guard<std::mutex> guard(wake_mutex_);
  const auto found = wake_fds_.find(name);
  if (found == wake_fds_.end()) return;
  close(found->second);
  wake_fds_.erase(found);
}

int Fabric::wake_fd(int pid, WakeName name) {
  const auto found = wake_fds_.find(name);
  if (found != wake_fds_.end()) return found->second;
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, static_cast<int>(name & 0xffffffff));
  // Looked at before it is opened, because opening a device may do something, and after, because its owner
  // may have closed it in between.
  struct stat info {};
  if (stat(path, &info) != 0 || !is_that_pipe(info, name)) return -1;
  // Open for reading too: its owner may close it or die at any time, and that must not raise SIGPIPE here.
  int own = ::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (own < 0) return -1;
  if (fstat(own, &info) != 0 || !is_that_pipe(info, name)) {
    close(own);
    return -1;
  }
  if (wake_fds_.size() >= kMaxCached) {
    for (auto& [old, descriptor] : wake_fds_) close(descriptor);
    wake_fds_.clear();
  }
  wake_fds_.emplace(name, own);
  return own;
}

void Fabric::wake(uint32_t slot, WakeName name) {
  if (name == 0) return;
  ProcessEntry& entry = header_->processes[slot];
  std::lock_guard<std::mutex> guard(wake_mutex_);
  if (!wake_fds_.contains(name) && !alive(slot, true)) return;
  const int own = wake_fd(entry.pid.load(), name);
  if (own < 0) return;
  char token = 1;
  // A full pipe (65536 events that were not read) is readable anyway.
  if (write(own, &token, 1) < 0) {
    return;
  }
}

}  // namespace bfo::softhca
