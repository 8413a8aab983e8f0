// SPDX-License-Identifier: BSD-3-Clause
//
// own_address.cc: see own_address.h.
#include "btl/verbs/engine/port/own_address.h"

namespace bfo::engine {
bool set_own_address(const OwnPort& port, const PortAddress& to, QpSettings* settings, PortAddress* own) {
  if (port.config().read_gids == nullptr) return true;
  const GidEntry* const entry = own_gid_for(port.gids(), to.gid, static_cast<GidType>(to.gid_type));
  if (entry == nullptr) return false;
  settings->gid_index = static_cast<uint8_t>(entry->index);
  own->gid = entry->gid;
  own->gid_type = static_cast<uint8_t>(entry->type) & 0xf;
  return true;
}

}  // namespace bfo::engine
