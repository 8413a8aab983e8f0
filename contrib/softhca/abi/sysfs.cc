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

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "contrib/softhca/abi/process.h"
#include "contrib/softhca/abi/verbs_api.h"
#include "contrib/softhca/engine/wire.h"
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

/// The one file that there is: what a port has received, in words of four bytes; only while ports have rates,
/// since nobody else needs to know what is on its way. False: it is another file.
bool received_words(const char* directory, const char* file, uint64_t* words) {
  Process& process = Process::instance();
  const std::string folder = std::string(sysfs_path()) + "/class/infiniband/softhca";
  unsigned device = 0;
  unsigned port = 0;
  int end = 0;
  if (folder.compare(0, std::string::npos, directory, std::min(folder.size(), std::strlen(directory))) != 0 ||
      std::sscanf(directory + folder.size(), "%u%n", &device, &end) != 1 ||
      directory[folder.size() + static_cast<size_t>(end)] != 0)
    return false;
  end = 0;
  if (std::sscanf(file, "ports/%u/counters/port_rcv_data%n", &port, &end) != 1 || end == 0 || file[end] != 0)
    return false;
  if (!process.is_open()) return false;
  Fabric& fabric = process.fabric();
  const FabricHeader& h = fabric.header();
  if (device >= h.devices || port == 0 || port > h.ports) return false;
  *words = received_bytes(fabric, port_index(fabric.node(), device, static_cast<uint8_t>(port))) / 4;
  return *words != 0;
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
  if (uint64_t words = 0; bfo::softhca::received_words(directory, file, &words)) {
    const int length = std::snprintf(buffer, size, "%llu", static_cast<unsigned long long>(words));
    return static_cast<size_t>(length) < size ? length : static_cast<int>(size) - 1;
  }
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
