// SPDX-License-Identifier: BSD-3-Clause
//
// Memory regions: what a key names and who may use it for what.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

inline bool key_is_valid(Fabric& fabric, uint32_t key) {
  uint32_t slot = mr_slot(key);
  return slot != 0 && slot < fabric.header().mr_fresh &&
         fabric.header().mrs[slot].key.load(std::memory_order_acquire) == key;
}

/// Who uses a key: protection domain, owning process, and for type 2 windows the queue pair.
struct KeyUser {
  uint32_t pd;
  uint32_t process;
  uint32_t qpn;
};

/// Checks that `key` lets `user` touch [address, address + length) with all of `access` (ibv_access_flags;
/// 0 = local read) and returns the virtual address in the owner, or false. Zero lengths are the caller's.
bool translate(Fabric& fabric, uint32_t key, const KeyUser& user, uint64_t address, uint64_t length,
               uint32_t access, uint64_t& virtual_address);

/// Same for a scatter/gather list of `count` local keys; `out` receives virtual addresses.
bool translate_list(Fabric& fabric, const Sge* list, uint32_t count, const KeyUser& user, uint32_t access,
                    Sge* out);

}  // namespace bfo::softhca
