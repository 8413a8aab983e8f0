// SPDX-License-Identifier: BSD-3-Clause
//
// The room of the fabric: its file is sparse, and much larger than the memory it takes. A real device takes
// what an object needs when the object is made, and so does this one.
#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "contrib/softhca/fabric/fabric.h"
#include "contrib/softhca/fabric/registry.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kSaidNs = 10'000'000'000;
constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string mib(uint64_t bytes) {
  return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB";
}

}  // namespace

bool Fabric::reserve(const void* from, uint64_t bytes) {
  const auto offset = static_cast<off_t>(static_cast<const char*>(from) - reinterpret_cast<char*>(header_));
  int rc = 0;
  do {
    rc = fallocate(fd_, 0, offset, static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  // A file system that cannot reserve has to do without.
  if (rc != 0 && (errno == ENOSPC || errno == EDQUOT || errno == ENOMEM)) {
    if (told_no_room_ != nullptr) told_no_room_(no_room(bytes));
    return false;
  }
  if (slot_ != kNone) self().room.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

bool Fabric::reserve_fixed() {
  const auto* base = reinterpret_cast<const char*>(header_);
  constexpr size_t kTables = offsetof(FabricHeader, devices_table);
  constexpr size_t kMore = offsetof(FabricHeader, late_writes);
  return reserve(base, offsetof(FabricHeader, processes)) &&
         reserve(base + kTables, offsetof(FabricHeader, contexts) - kTables) &&
         reserve(base + kMore, sizeof(FabricHeader) - kMore);
}

std::string Fabric::no_room(uint64_t bytes) {
  const uint64_t now = monotonic_ns();
  uint64_t said = header_->no_room_ns.load();
  const bool just_said = said != 0 && now - said < kSaidNs;
  if (!observer_ && (just_said || !header_->no_room_ns.compare_exchange_strong(said, now))) return {};
  uint64_t processes = 0;
  uint64_t most = bytes;
  for (uint32_t slot = 0; slot < header_->processes_used.load(); ++slot) {
    if (header_->processes[slot].state.load() != ProcessState::kLive) continue;
    ++processes;
    most = std::max(most, header_->processes[slot].room.load() + bytes);
  }
  const char* ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const uint64_t here = ranks == nullptr ? 1 : std::strtoul(ranks, nullptr, 10);
  processes = std::max(processes, here);
  struct statvfs space {};
  fstatvfs(fd_, &space);
  std::string ignored;
  return registry_directory(ignored) + " is full: its file system has " +
         mib(space.f_blocks * space.f_frsize) + ", and " + std::to_string(processes) +
         " processes need at least " + mib(most * processes) + " for their fabric, " + mib(most) +
         " each; make it larger (mount -o remount,size=, docker run --shm-size), set SOFTHCA_DIR to a "
         "directory "
         "with more room, or run fewer processes";
}

}  // namespace bfo::softhca
