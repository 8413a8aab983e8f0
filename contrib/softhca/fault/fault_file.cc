// SPDX-License-Identifier: BSD-3-Clause
//
// Reading a fault file that may be anything.
#include "contrib/softhca/fault/fault_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "contrib/softhca/fault/language.h"

namespace bfo::softhca {
namespace {

/// A descriptor that is closed at the end of the scope.
struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace

bool read_fault_file(const std::string& path, std::string& text, std::string& error) {
  auto refuse = [&](const std::string& why) {
    error = "cannot read the fault file " + path + ": " + why;
    return false;
  };
  // Looked at first: opening a device may do something.
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return refuse(std::strerror(errno));
  auto other = [&] {
    return refuse(std::string("it is ") + kind_of(info.st_mode) + "; name a file of at most 1 MiB");
  };
  if (!S_ISREG(info.st_mode)) return other();
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.fd < 0 || fstat(file.fd, &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return other();
  text.resize(kMaxFaultText + 1);
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(file.fd, text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(std::strerror(errno));
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  text.resize(bytes);
  return bytes <= kMaxFaultText || refuse("it is longer than 1 MiB, the most that is read");
}

}  // namespace bfo::softhca
