// SPDX-License-Identifier: BSD-3-Clause
//
// The sysfs stand-in: a folder next to the library with the class folders programs look for (Open MPI's
// openib BTL gives up when class/infiniband is missing).
#include "contrib/softhca/abi/sysfs.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "contrib/softhca/abi/verbs_api.h"
#include "contrib/softhca/fabric/registry.h"

namespace bfo::softhca {

namespace {

bool has_classes(const std::string& root) {
  mkdir(root.c_str(), 0755);
  mkdir((root + "/class").c_str(), 0755);
  std::string classes = root + "/class/infiniband";
  return mkdir(classes.c_str(), 0755) == 0 || errno == EEXIST;
}

/// Next to the library when that folder can be made, else in the registry.
std::string find_root() {
  Dl_info info;
  char real[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&sysfs_path), &info) != 0 && realpath(info.dli_fname, real) != nullptr) {
    std::string root(real);
    root.resize(root.rfind('/'));
    root += "/sysfs";
    if (has_classes(root)) return root;
  }
  std::string error;
  std::string root = registry_directory(error) + "/.sysfs";
  return has_classes(root) ? root : "/sys";
}

}  // namespace

const char* sysfs_path() {
  static const std::string* root = new std::string(find_root());
  return root->c_str();
}

}  // namespace bfo::softhca

SOFTHCA_EXPORT const char* ibv_get_sysfs_path() {
  return bfo::softhca::sysfs_path();
}

SOFTHCA_EXPORT int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, size_t size) {
  char path[PATH_MAX];
  if (size == 0 || std::strlen(directory) + std::strlen(file) + 2 > sizeof(path)) return -1;
  std::strcpy(path, directory);
  std::strcat(path, "/");
  std::strcat(path, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t bytes = read(fd, buffer, size);
  close(fd);
  if (bytes <= 0) return -1;
  if (buffer[bytes - 1] == '\n') {
    buffer[--bytes] = 0;
  } else if (static_cast<size_t>(bytes) < size) {
    buffer[bytes] = 0;
  }
  return static_cast<int>(bytes);
}
