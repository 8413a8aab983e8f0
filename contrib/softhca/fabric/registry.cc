// SPDX-License-Identifier: BSD-3-Clause
//
// The registry: the 0700 directory of one user under /dev/shm in which every fabric is a 0600 file.
#include "contrib/softhca/fabric/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bfo::softhca {

namespace {

constexpr const char* kOffer = "; or set SOFTHCA_DIR to a directory of your own";

/// "user NAME (uid N)".
std::string owner_of(const struct stat& info) {
  const passwd* user = getpwuid(info.st_uid);
  const std::string number = "uid " + std::to_string(info.st_uid);
  return user != nullptr ? std::string("user ") + user->pw_name + " (" + number + ")" : number;
}

/// Makes the directory when it is missing. False and a sentence when it is not one that only this user can
/// use.
bool is_private_directory(const std::string& path, std::string& error) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    error = "cannot create " + path + ": " + std::strerror(errno) +
            "; the software HCA keeps its fabrics there" + kOffer;
    return false;
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    error = "cannot look at " + path + ": " + std::strerror(errno) + kOffer;
  } else if (info.st_uid != geteuid()) {
    error = path + " belongs to " + owner_of(info) + ", not to this user: have it removed" + kOffer;
  } else if (!S_ISDIR(info.st_mode)) {
    error = path + " is not a directory: remove it" + kOffer;
  } else if ((info.st_mode & 077) != 0) {
    error = path + " is open to other users: chmod 700 it" + kOffer;
  } else {
    return true;
  }
  return false;
}

}  // namespace

std::string registry_directory(std::string& error) {
  const char* chosen = std::getenv("SOFTHCA_DIR");
  if (chosen != nullptr && *chosen != 0) {
    if (*chosen != '/') {
      error = std::string("SOFTHCA_DIR=") + chosen + " is not an absolute path";
      return {};
    }
    return is_private_directory(chosen, error) ? chosen : std::string();
  }
  const std::string usual = "/dev/shm/softhca-" + std::to_string(geteuid());
  if (is_private_directory(usual, error)) return usual;
  // Not first: processes of one job may have this variable or not, and all must find the same fabric.
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string ignored;
  if (runtime == nullptr || *runtime != '/') return {};
  const std::string spare = std::string(runtime) + "/softhca";
  return is_private_directory(spare, ignored) ? spare : std::string();
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
  constexpr int kBoundMs = 20'000;
  // Hundreds of processes of a job come at the same time: looking each millisecond, they would keep the one
  // that has the lock from the processors.
  constexpr int kMostPauseMs = 32;
  int pause_ms = 1;
  for (int waited_ms = 0; waited_ms < kBoundMs;
       waited_ms += pause_ms, pause_ms = std::min(2 * pause_ms, kMostPauseMs)) {
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
    usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  error = "the fabric file " + path + " stays locked by another process for 20 s; end that process";
  errno = EBUSY;
  return -1;
}

void unlock_file(int fd) {
  flock(fd, LOCK_UN);
}

}  // namespace bfo::softhca
