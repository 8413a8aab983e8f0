// SPDX-License-Identifier: BSD-3-Clause
//
// The limits at work. Creating and ending objects is rare; a lock makes the last place go to exactly one.
#include "contrib/softhca/fabric/limits.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kPlenty = 1u << 20;
constexpr uint32_t kDefaults[kObjectKinds] = {kMaxQps - kFirstQp, kMaxCqs, kMaxMrs - 1,
                                              kMaxSrqs,           kPlenty, kPlenty};
constexpr uint64_t kPage = 4096;

constexpr unsigned at(ObjectKind kind) {
  return static_cast<unsigned>(kind);
}

std::atomic<uint32_t>& own_count(Fabric& fabric, uint32_t device, ObjectKind kind) {
  return fabric.self().objects[device][at(kind)];
}

}  // namespace

uint32_t object_limit(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind) {
  const uint32_t set = fabric.header().devices_table[node * kMaxDevices + device].limit[at(kind)].load();
  return set == 0 ? kDefaults[at(kind)] : set - 1;
}

uint32_t object_count(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind) {
  FabricHeader& h = fabric.header();
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < h.processes_used.load(); ++slot) {
    ProcessEntry& entry = h.processes[slot];
    if (entry.node == node && fabric.alive(slot)) count += entry.objects[device][at(kind)].load();
  }
  return count;
}

bool take_object(Fabric& fabric, uint32_t device, ObjectKind kind) {
  FabricHeader& h = fabric.header();
  std::atomic<uint32_t>& own = own_count(fabric, device, kind);
  if (h.devices_table[fabric.node() * kMaxDevices + device].limit[at(kind)].load() == 0) [[likely]] {
    own.fetch_add(1);  // the tables hold what they hold
    return true;
  }
  Guard guard(h.limit_lock, fabric.tag(), fabric);
  if (object_count(fabric, fabric.node(), device, kind) >=
      object_limit(fabric, fabric.node(), device, kind)) {
    return false;
  }
  own.fetch_add(1);
  return true;
}

void give_object(Fabric& fabric, uint32_t device, ObjectKind kind) {
  own_count(fabric, device, kind).fetch_sub(1);
}

uint64_t memlock_limit(Fabric& fabric, uint32_t node) {
  const uint64_t set = fabric.header().memlock[node].load();
  return set == 0 ? kNever : set - 1;
}

bool pin(Fabric& fabric, uint64_t addr, uint64_t length, uint64_t& bytes) {
  const uint64_t first = addr & ~(kPage - 1);
  bytes = length == 0 ? 0 : ((addr + length - first) + kPage - 1) & ~(kPage - 1);
  const uint64_t limit = memlock_limit(fabric, fabric.node());
  std::atomic<uint64_t>& pinned = fabric.self().pinned;
  uint64_t before = pinned.load();
  do {
    if (limit != kNever && (before > limit || bytes > limit - before)) return false;
  } while (!pinned.compare_exchange_weak(before, before + bytes));
  return true;
}

void unpin(Fabric& fabric, uint64_t bytes) {
  fabric.self().pinned.fetch_sub(bytes);
}

}  // namespace bfo::softhca
