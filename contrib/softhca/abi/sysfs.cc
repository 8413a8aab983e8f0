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
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "contrib/softhca/abi/process.h"
#include "contrib/softhca/abi/verbs_api.h"
#include "contrib/softhca/engine/links.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fabric/report.h"

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

/// Of the port with that index. False: there is no such file now.
using Counter = bool (*)(Fabric& fabric, uint32_t port, uint64_t* value);

/// In words of four bytes; only while ports have rates, since nobody else needs to know what is on its way.
bool received_words(Fabric& fabric, uint32_t port, uint64_t* value) {
  *value = received_bytes(fabric, port) / 4;
  return *value != 0;
}

template <uint64_t PortTotals::*Member>
bool total(Fabric& fabric, uint32_t port, uint64_t* value) {
  *value = port_totals(fabric.header(), port).*Member;
  return true;
}

template <std::atomic<uint64_t> PortEntry::*Member>
bool count(Fabric& fabric, uint32_t port, uint64_t* value) {
  *value = (fabric.header().ports_table[port].*Member).load(std::memory_order_relaxed);
  return true;
}

/// The files below ports/N of a device.
constexpr struct {
  const char* name;
  Counter read;
} kCounters[] = {
    {"counters/port_rcv_data", received_words},
    {"counters/port_xmit_packets", total<&PortTotals::tx_packets>},
    {"counters/port_rcv_packets", total<&PortTotals::rx_packets>},
    {"hw_counters/local_ack_timeout_err", count<&PortEntry::ack_timeouts>},
    {"hw_counters/packet_seq_err", count<&PortEntry::sequence_naks>},
    {"hw_counters/implied_nak_seq_err", count<&PortEntry::early_responses>},
    {"hw_counters/out_of_sequence", count<&PortEntry::early_requests>},
};

/// The index of the port and the rest of the name. False: the file is not one of a port of this fabric.
bool find_port(Fabric& fabric, const char* directory, const char* file, uint32_t* port, const char** name) {
  const std::string folder = std::string(sysfs_path()) + "/class/infiniband/softhca";
  unsigned device = 0;
  unsigned number = 0;
  int end = 0;
  if (folder.compare(0, std::string::npos, directory, std::min(folder.size(), std::strlen(directory))) != 0 ||
      std::sscanf(directory + folder.size(), "%u%n", &device, &end) != 1 ||
      directory[folder.size() + static_cast<size_t>(end)] != 0)
    return false;
  end = 0;
  if (std::sscanf(file, "ports/%u/%n", &number, &end) != 1 || end == 0) return false;
  const FabricHeader& h = fabric.header();
  if (device >= h.devices || number == 0 || number > h.ports) return false;
  *port = port_index(fabric.node(), device, static_cast<uint8_t>(number));
  *name = file + end;
  return true;
}

bool read_counter(const char* directory, const char* file, uint64_t* value) {
  Process& process = Process::instance();
  if (!process.is_open()) return false;
  Fabric& fabric = process.fabric();
  uint32_t port = 0;
  const char* name = nullptr;
  if (!find_port(fabric, directory, file, &port, &name)) return false;
  for (const auto& counter : kCounters)
    if (std::strcmp(counter.name, name) == 0) return counter.read(fabric, port, value);
  return false;
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
  if (uint64_t value = 0; bfo::softhca::read_counter(directory, file, &value)) {
    const int length = std::snprintf(buffer, size, "%llu", static_cast<unsigned long long>(value));
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
