// SPDX-License-Identifier: BSD-3-Clause
//
// locality.cc: how far a device is from the processors this process is bound to.
#include "btl/verbs/glue/discover.h"

#include <algorithm>

namespace bfo::verbs {
namespace {

constexpr uint32_t kFar = 20;  // where the firmware's table of distances is missing

/// A set of processors or memory nodes, freed with its scope.
class Bitmap {
 public:
  Bitmap() : set_(hwloc_bitmap_alloc()) {}
  ~Bitmap() { hwloc_bitmap_free(set_); }
  Bitmap(const Bitmap&) = delete;
  Bitmap& operator=(const Bitmap&) = delete;
  hwloc_bitmap_t get() const { return set_; }

 private:
  hwloc_bitmap_t set_;
};

/// The processors next to the device, as the kernel lists them ("0-7,16-23").
bool processors_near(const ibv_device& device, hwloc_bitmap_t set) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/device/local_cpulist", device.ibdev_path);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return false;
  char text[4096] = "";
  const bool read = fgets(text, sizeof text, file) != nullptr;
  fclose(file);
  if (!read) return false;
  text[strcspn(text, "\n")] = '\0';
  return *text != '\0' && hwloc_bitmap_list_sscanf(set, text) == 0 && !hwloc_bitmap_iszero(set);
}

/// The smallest distance between a memory node of one set and one of the other.
uint32_t between(hwloc_topology_t topology, hwloc_const_bitmap_t ours, hwloc_const_bitmap_t theirs) {
  hwloc_distances_s* table = nullptr;
  unsigned tables = 1;
  constexpr unsigned long kKind = HWLOC_DISTANCES_KIND_MEANS_LATENCY;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &tables, &table, kKind, 0) != 0 ||
      tables == 0) {
    return kFar;
  }
  uint64_t best = UINT32_MAX;
  for (unsigned from = 0; from < table->nbobjs; ++from) {
    if (!hwloc_bitmap_isset(ours, table->objs[from]->os_index)) continue;
    for (unsigned to = 0; to < table->nbobjs; ++to) {
      if (!hwloc_bitmap_isset(theirs, table->objs[to]->os_index)) continue;
      best = std::min<uint64_t>(best, table->values[from * table->nbobjs + to]);
    }
  }
  hwloc_distances_release(topology, table);
  return best == UINT32_MAX ? kFar : std::max(static_cast<uint32_t>(best), engine::kNear + 1);
}

}  // namespace

uint32_t distance_of(const ibv_device& device) {
  if (opal_hwloc_base_get_topology() != OPAL_SUCCESS || opal_hwloc_topology == nullptr) return engine::kNear;
  const Bitmap ours;
  const Bitmap near;
  if (ours.get() == nullptr || near.get() == nullptr || !processors_near(device, near.get()) ||
      hwloc_get_cpubind(opal_hwloc_topology, ours.get(), HWLOC_CPUBIND_PROCESS) != 0 ||
      hwloc_bitmap_intersects(ours.get(), near.get())) {
    return engine::kNear;
  }
  const Bitmap our_nodes;
  const Bitmap near_nodes;
  if (our_nodes.get() == nullptr || near_nodes.get() == nullptr) return kFar;
  hwloc_cpuset_to_nodeset(opal_hwloc_topology, ours.get(), our_nodes.get());
  hwloc_cpuset_to_nodeset(opal_hwloc_topology, near.get(), near_nodes.get());
  return between(opal_hwloc_topology, our_nodes.get(), near_nodes.get());
}

}  // namespace bfo::verbs
