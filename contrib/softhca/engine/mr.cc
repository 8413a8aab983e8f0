// SPDX-License-Identifier: BSD-3-Clause
//
// Memory regions: what a key names and who may use it for what.
#include "contrib/softhca/engine/mr.h"

#include "contrib/softhca/fabric/pages.h"

namespace bfo::softhca {

bool translate(Fabric& fabric, uint32_t key, const KeyUser& user, uint64_t address, uint64_t length,
               uint32_t access, uint64_t& virtual_address) {
  uint32_t slot = mr_slot(key);
  if (slot == 0 || slot >= fabric.header().mr_fresh) return false;
  const MrEntry& mr = fabric.header().mrs[slot];
  if (mr.key.load(std::memory_order_acquire) != key) return false;
  if (mr.pd != user.pd || mr.process != user.process) return false;
  if ((mr.access & access) != access) return false;
  uint64_t offset = address - mr.iova;
  if (offset > mr.length || length > mr.length - offset) return false;
  if (mr.flags != 0) [[unlikely]] {
    if ((mr.flags & MrFlags::kWindow2) != 0 && mr.qpn != user.qpn) return false;
    if ((mr.flags & (MrFlags::kWindow | MrFlags::kWindow2)) != 0 && !key_is_valid(fabric, mr.parent))
      return false;
  }
  virtual_address = mr.addr + offset;
  if (mr.pages != 0 && length != 0) [[unlikely]] {
    const int owner = fabric.header().processes[mr.process].pid.load(std::memory_order_relaxed);
    return same_pages(owner, mr.pages, mr.addr, virtual_address, length);
  }
  return true;
}

bool translate_list(Fabric& fabric, const Sge* list, uint32_t count, const KeyUser& user, uint32_t access,
                    Sge* out) {
  for (uint32_t i = 0; i < count; ++i) {
    out[i] = list[i];
    if (list[i].length == 0) continue;
    if (!translate(fabric, list[i].lkey, user, list[i].addr, list[i].length, access, out[i].addr))
      return false;
  }
  return true;
}

}  // namespace bfo::softhca
