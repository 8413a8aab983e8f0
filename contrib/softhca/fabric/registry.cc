// SPDX-License-Identifier: BSD-3-Clause
//
// The registry: the 0700 directory of one user under /dev/shm in which every fabric is a 0600 file.
#include "contrib/softhca/fabric/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace bfo::softhca {

std::string registry_directory(std::string& error) {
  std::string path = "/dev/shm/softhca-" + std::to_string(geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    error =
        "cannot create " + path + ": " + std::strerror(errno) + "; the software HCA keeps its fabrics there";
    return {};
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 077) != 0) {
    error = path + " is not a directory of mode 0700 owned by this user; remove it";
    return {};
  }
  return path;
}

bool valid_fabric_name(const std::string& name) {
  if (name.empty() || name.size() > 100 || name[0] == '.') return false;
  for (char c : name) {
    bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                c == '_' || c == '.';
    if (!fine) return false;
  }
  return true;
}

std::string fresh_fabric_name() {
  uint64_t words[2] = {};
  if (getrandom(words, sizeof(words), 0) != sizeof(words)) {
    words[0] = static_cast<uint64_t>(getpid());
    words[1] = reinterpret_cast<uintptr_t>(&words);
  }
  char text[40];
  std::snprintf(text, sizeof(text), "f-%016llx%016llx", static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return text;
}

std::vector<std::string> list_fabrics() {
  std::vector<std::string> names;
  std::string error;
  std::string path = registry_directory(error);
  DIR* directory = path.empty() ? nullptr : opendir(path.c_str());
  if (directory == nullptr) return names;
  while (dirent* entry = readdir(directory)) {
    if (valid_fabric_name(entry->d_name)) names.emplace_back(entry->d_name);
  }
  closedir(directory);
  return names;
}

int open_locked(const std::string& path, bool create, std::string& error) {
  constexpr int kTriesMs = 20'000;
  for (int waited_ms = 0; waited_ms < kTriesMs; ++waited_ms) {
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
    if (fd < 0) {
      int why = errno;
      error = "cannot open the fabric file " + path + ": " + std::strerror(why);
      errno = why;
      return -1;
    }
    // The file may be removed, and another one made, while we wait for its lock.
    struct stat mine, named;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &mine) == 0 && lstat(path.c_str(), &named) == 0 &&
        mine.st_ino == named.st_ino) {
      return fd;
    }
    close(fd);
    usleep(1000);
  }
  error = "the fabric file " + path + " stays locked by another process for 20 s; end that process";
  errno = EBUSY;
  return -1;
}

void unlock_file(int fd) {
  flock(fd, LOCK_UN);
}

}  // namespace bfo::softhca
