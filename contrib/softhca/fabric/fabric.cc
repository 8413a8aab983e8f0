// SPDX-License-Identifier: BSD-3-Clause
//
// The fabric: creating, joining and leaving the shared-memory file.
#include "contrib/softhca/fabric/fabric.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fault/link_speed.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fault/fault_file.h"
#include "contrib/softhca/fault/language.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHeaderBytes = (sizeof(FabricHeader) + kPage - 1) / kPage * kPage;
static_assert(kHeaderBytes < UINT32_MAX);
constexpr uint64_t kFileBytes = kHeaderBytes + kHeapBytes;
constexpr uint64_t kLeastFreeBytes = uint64_t{32} << 20;

void set_up_ports(FabricHeader& h, const FabricConfig& config) {
  for (uint32_t node = 0; node < kMaxNodes; ++node) {
    for (uint32_t device = 0; device < config.devices; ++device) {
      for (uint32_t port = 1; port <= config.ports; ++port) {
        uint32_t index = port_index(node, device, port);
        PortEntry& entry = h.ports_table[index];
        entry.state.store(kPortActive);
        const auto lid = static_cast<uint16_t>((index + 1) << h.lmc);
        entry.lid.store(lid);
        assign_lids(h, lid, index);
        entry.pkey[0].store(0xffff);
        // One subnet per rail, so that programs which match subnets pair the right ports.
        entry.gid_prefix.store(0xfec0'0000'0000'0000u + device * kMaxPortsPerDevice + port);
        uint64_t id = 0x0250'42ff'fe00'0000u | node << 12 | device << 4 | port;
        entry.gid_id.store(id);
        entry.gids.store(pack(gids_of(config.gids, node, device)));
        entry.rate.store(config.rate);
        entry.latency_ns.store(config.latency_ns);
        entry.speed.store(pack(LinkSpeed{}));
        entry.up_at_ns.store(kNever);
      }
    }
  }
}

/// Inode of the PID name space of this process; 0 when /proc does not tell. Through the /proc of another PID
/// name space the pids of this fabric name other processes, or none, and nobody can be woken.
uint64_t own_pid_space() {
  char pid[16] = {};
  struct stat info {};
  const bool own = readlink("/proc/self", pid, sizeof(pid) - 1) > 0 && pid == std::to_string(getpid());
  return own && stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool load_faults(FaultTable& table, const std::string& path, uint64_t now, std::string& error) {
  std::string text;
  if (!read_fault_file(path, text, error)) {
    error = "SOFTHCA_FAULTS: " + error;
    return false;
  }
  ParseResult result = parse_rules(text);
  if (!result.ok()) {
    error = format_problem(path, result.problems.front());
    return false;
  }
  return install(table, result.rules.data(), result.rules.size(), true, now, error);
}

std::string too_small(const std::string& directory) {
  return directory +
         " has less than 32 MiB free, too little for a software HCA fabric; make it larger (mount -o "
         "remount,size=, docker run --shm-size), or set SOFTHCA_DIR to a directory with more room";
}

/// Fills a fresh, zeroed header. False when the fault file cannot be used.
bool initialise(FabricHeader& h, const FabricConfig& config, std::string& error) {
  uint64_t now = monotonic_ns();
  h.magic = kFabricMagic;
  h.version = kLayoutVersion;
  h.header_bytes = static_cast<uint32_t>(kHeaderBytes);
  h.devices = config.devices;
  h.ports = config.ports;
  h.timescale = config.timescale;
  h.created_ns = now;
  h.ethernet = config.gids.all.kind[0] == GidKind::kIb ? 0 : 1;
  h.path_level = config.path_level;
  h.lmc = is_ethernet(h) ? 0 : config.lmc;
  h.pid_space = own_pid_space();
  h.next_topology_ns.store(kNever);
  h.heap.bump = kHeaderBytes;
  h.next_pd.store(1);
  set_up_ports(h, config);
  start(h.faults, now);
  return config.faults.empty() || load_faults(h.faults, config.faults, now, error);
}

}  // namespace

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void assign_lids(FabricHeader& h, uint16_t lid, uint32_t index) {
  const auto port = static_cast<uint16_t>(index == kNone ? 0 : index + 1);
  for (uint32_t path = 0; path < 1u << h.lmc; ++path) h.lid_to_port[lid + path].store(port);
}

void Fabric::update_hooks() {
  FabricHeader& h = *header_;
  uint32_t hooks = 0;
  if (armed(h.faults)) hooks |= kHookFaults;
  if (enabled(h.trace)) hooks |= kHookTrace;
  if (h.faults.timed_rules.load() != 0) hooks |= kHookTimed;
  for (uint32_t i = 0; i < kMaxPorts; ++i) {
    if (port_device(i) >= h.devices || port_number(i) > h.ports) continue;
    PortEntry& port = h.ports_table[i];
    if (port.rate.load(std::memory_order_relaxed) != 0 ||
        port.latency_ns.load(std::memory_order_relaxed) != 0)
      hooks |= kHookShaping;
    if (port.state.load(std::memory_order_relaxed) == kPortDown &&
        port.up_at_ns.load(std::memory_order_relaxed) != kNever)
      hooks |= kHookTimed;
  }
  for (LateWrite& held : h.late_writes) {
    if (held.used.load() != 0) hooks |= kHookTimed;
  }
  for (Resume& resume : h.resume) {
    if (resume.at_ns.load() != 0) hooks |= kHookTimed;
  }
  h.hooks.store(hooks);
}

/// A pid of another name space names another process here, or none.
bool Fabric::shares_pid_space(const std::string& name, std::string& error) {
  const uint64_t own = own_pid_space();
  if (own == 0) {
    error = "fabric '" + name +
            "' cannot be used without the /proc of this PID name space: mount it (mount -t proc proc /proc, "
            "or unshare --mount-proc)";
    return false;
  }
  if (header_->pid_space == own) return true;
  error = "fabric '" + name +
          "' belongs to processes of another PID name space (another container?); run all processes of a "
          "fabric in one";
  return false;
}

bool Fabric::map_file(std::string& error) {
  void* map = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (map == MAP_FAILED) {
    error = "cannot map fabric '" + name_ + "': " + std::strerror(errno);
    return false;
  }
  header_ = static_cast<FabricHeader*>(map);
  return true;
}

bool Fabric::has_others() {
  for (uint32_t i = 0; i < header_->processes_used.load(); ++i) {
    if (i != slot_ && header_->processes[i].state.load() == ProcessState::kLive && alive(i, true))
      return true;
  }
  return false;
}

std::unique_ptr<Fabric> Fabric::open(const std::string& name, const FabricConfig& config, uint32_t node,
                                     std::string& error) {
  if (!valid_fabric_name(name)) {
    error = "fabric name '" + name + "' is not valid: use letters, digits, '-', '_' and '.', at most 100";
    return nullptr;
  }
  std::string directory = registry_directory(error);
  if (directory.empty()) return nullptr;
  std::string path = directory + "/" + name;
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<Fabric> fabric(new Fabric());
    fabric->identify();
    fabric->fd_ = open_locked(path, true, error);
    if (fabric->fd_ < 0) return nullptr;
    struct stat info;
    struct statvfs space;
    if (fstat(fabric->fd_, &info) != 0 || fstatvfs(fabric->fd_, &space) != 0) return nullptr;
    bool fresh = info.st_size == 0;
    if (fresh && space.f_bavail * space.f_frsize < kLeastFreeBytes) {
      unlink(path.c_str());
      error = too_small(directory);
      return nullptr;
    }
    if (fresh && ftruncate(fabric->fd_, static_cast<off_t>(kFileBytes)) != 0) {
      unlink(path.c_str());
      error = "cannot create the fabric file " + path + ": " + std::strerror(errno);
      return nullptr;
    }
    if (!fresh && info.st_size != static_cast<off_t>(kFileBytes)) {
      error = path + " is not a fabric of this version of the software HCA; remove it";
      return nullptr;
    }
    if (!fabric->map_file(error)) return nullptr;
    FabricHeader& h = *fabric->header_;
    if (fresh) {
      const bool room = fabric->reserve_fixed();
      if (!room) error = too_small(directory);
      if (!room || !initialise(h, config, error)) {
        unlink(path.c_str());
        return nullptr;
      }
      h.ready.store(1);
    }
    if (fresh && !fabric->shares_pid_space(name, error)) {
      unlink(path.c_str());
      return nullptr;
    }
    // Not ready: its creator died before it was complete. No process: all that used it were killed.
    bool usable = h.ready.load() == 1 && h.magic == kFabricMagic && h.version == kLayoutVersion;
    if (usable && !fabric->shares_pid_space(name, error)) {
      if (h.keep.load() != 0 || fabric->has_others()) return nullptr;
      usable = false;
    }
    if (usable && !fabric->attach_process(node, error)) return nullptr;
    if (usable && !fresh && h.keep.load() == 0 && !fabric->has_others()) usable = false;
    if (usable) {
      fabric->name_ = name;
      unlock_file(fabric->fd_);  // others join meanwhile
      if (!fresh) fabric->reap();
      fabric->update_hooks();
      return fabric;
    }
    unlink(path.c_str());
  }
  error = path + " cannot be used as a fabric; remove it";
  return nullptr;
}

std::unique_ptr<Fabric> Fabric::observe(const std::string& name, std::string& error) {
  std::unique_ptr<Fabric> fabric = observe_locked(name, error);
  if (fabric) unlock_file(fabric->fd_);
  return fabric;
}

std::unique_ptr<Fabric> Fabric::observe_locked(const std::string& name, std::string& error) {
  std::string directory = registry_directory(error);
  if (directory.empty()) return nullptr;
  std::unique_ptr<Fabric> fabric(new Fabric());
  fabric->identify();
  fabric->observer_ = true;
  fabric->name_ = name;
  fabric->fd_ = valid_fabric_name(name) ? open_locked(directory + "/" + name, false, error) : -1;
  struct stat info;
  if (fabric->fd_ < 0 || fstat(fabric->fd_, &info) != 0) {
    if (errno != EBUSY) error = "there is no fabric '" + name + "'; 'softhcactl list' shows those that exist";
    return nullptr;
  }
  bool fits = info.st_size == static_cast<off_t>(kFileBytes);
  if (fits && !fabric->map_file(error)) return nullptr;
  if (!fits || fabric->header_->magic != kFabricMagic || fabric->header_->version != kLayoutVersion ||
      fabric->header_->ready.load() != 1) {
    error = "fabric '" + name + "' was made by another version of the software HCA";
    return nullptr;
  }
  if (!fabric->shares_pid_space(name, error) || !fabric->attach_process(0, error)) return nullptr;
  return fabric;
}

std::unique_ptr<Fabric> Fabric::anonymous(const FabricConfig& config, uint32_t node) {
  std::unique_ptr<Fabric> fabric(new Fabric());
  fabric->identify();
  fabric->fd_ = memfd_create("softhca-test", MFD_CLOEXEC);
  std::string error;
  if (fabric->fd_ < 0 || ftruncate(fabric->fd_, static_cast<off_t>(kFileBytes)) != 0) return nullptr;
  void* map = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fabric->fd_, 0);
  if (map == MAP_FAILED) return nullptr;
  fabric->header_ = static_cast<FabricHeader*>(map);
  fabric->header_->keep.store(1);
  if (!initialise(*fabric->header_, config, error)) return nullptr;
  fabric->header_->ready.store(1);
  if (!fabric->attach_process(node, error)) return nullptr;
  fabric->update_hooks();
  return fabric;
}

std::unique_ptr<Fabric> Fabric::share(const Fabric& other, uint32_t node) {
  std::unique_ptr<Fabric> fabric(new Fabric());
  fabric->identify();
  std::string error;
  fabric->header_ = other.header_;
  fabric->fd_ = other.fd_;
  fabric->owns_mapping_ = false;
  fabric->clock_ = other.clock_;
  fabric->clock_arg_ = other.clock_arg_;
  if (!fabric->attach_process(node, error)) return nullptr;
  return fabric;
}

Fabric::~Fabric() {
  for (auto& [key, fd] : wake_fds_) close(fd);
  if (disowned_) {
    // A forked child: the descriptor is its own copy, the process slot is its parent's.
    if (owns_mapping_ && fd_ >= 0) close(fd_);
    return;
  }
  // Only a process that had joined may have been the last one; one that failed to join still holds the lock
  // of the registry here.
  const bool joined = header_ != nullptr && slot_ != kNone;
  if (joined && !left_) detach_process();
  if (owns_mapping_ && header_ != nullptr) munmap(header_, kFileBytes);
  if (owns_mapping_ && fd_ >= 0) close(fd_);
  if (joined && owns_mapping_ && !observer_ && !name_.empty()) remove_if_unused(name_);
}

bool Fabric::leave() {
  if (disowned_ || header_ == nullptr || left_) return false;
  detach_process();
  return !name_.empty() && !observer_ && remove_if_unused(name_);
}

void Fabric::hide_from_valgrind() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strstr(preloaded, "/vgpreload_") == nullptr) return;
  mprotect(header_, kFileBytes, PROT_READ);
}

bool Fabric::remove_if_unused(const std::string& name) {
  std::string error;
  std::string directory = registry_directory(error);
  if (directory.empty() || !valid_fabric_name(name)) return false;
  std::unique_ptr<Fabric> fabric = observe_locked(name, error);
  if (!fabric || fabric->header_->keep.load() != 0 || fabric->has_others()) return false;
  return unlink((directory + "/" + name).c_str()) == 0;
}

}  // namespace bfo::softhca
