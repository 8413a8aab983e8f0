// SPDX-License-Identifier: BSD-3-Clause
//
// own_address.cc: see own_address.h.
#include "btl/verbs/engine/address/own_address.h"

#include <cstring>

#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

GidType type_of(const PortAddress& address) {
  return static_cast<GidType>(address.gid_type);
}

/// Nobody has answered the last packets, or the way cannot be made.
bool unanswered(const Outbox& outbox) {
  const Address* const address = outbox.address;
  return address != nullptr && (address->unheard >= AddressCache::kPathUnheard ||
                                (address->handle == nullptr && address->failures != 0));
}

}  // namespace

bool set_own_address(const Port& port, const PortAddress& to, QpSettings* settings, PortAddress* own) {
  if (port.config().read_gids == nullptr) return true;
  const GidEntry* const entry = own_gid_for(port.gids(), to.gid, type_of(to));
  if (entry == nullptr) return false;
  settings->gid_index = static_cast<uint8_t>(entry->index);
  own->gid = entry->gid;
  own->gid_type = static_cast<uint8_t>(entry->type) & 0xf;
  return true;
}

void try_next_address(Endpoint& endpoint) {
  const Port& port = *endpoint.port;
  const Host& host = port.host();
  PortAddress& known = endpoint.peer.address;
  if (port.config().read_gids == nullptr || host.peer_gids == nullptr || port.gids().count == 0) return;
  if (reaches(port.gids(), known.gid, type_of(known)) && !unanswered(endpoint.effort->outbox)) return;
  PublishedGid theirs[kMaxGids];
  uint8_t ranked[kMaxGids];
  const size_t count = rank_theirs(port.gids(), theirs, host.peer_gids(host.ctx, endpoint, theirs), ranked);
  if (count == 0) return;
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const PublishedGid& gid = theirs[ranked[i]];
    if (gid.type == type_of(known) && memcmp(gid.gid.raw, known.gid.raw, sizeof known.gid.raw) == 0)
      next = (i + 1) % count;
  }
  const PublishedGid& gid = theirs[ranked[next]];
  known.gid = gid.gid;
  known.gid_type = static_cast<uint8_t>(gid.type) & 0xf;
  endpoint.effort->outbox.address = nullptr;
}

}  // namespace bfo::engine
