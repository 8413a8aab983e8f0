// SPDX-License-Identifier: BSD-3-Clause
//
// pairing.cc: which port of a process meets which port of its peer.
#include "btl/verbs/engine/pairing.h"

namespace bfo::engine {
namespace {

/// The port of `ports` in the fabric of `like` with this ordinal, or kNoPort.
size_t same_ordinal(const PortPlace* ports, size_t count, const PortPlace& like) {
  for (size_t i = 0; i < count; ++i) {
    if (ports[i].ordinal == like.ordinal && same_fabric(ports[i], like)) return i;
  }
  return kNoPort;
}

}  // namespace

bool same_fabric(const PortPlace& a, const PortPlace& b) {
  if (a.link_layer != b.link_layer) return false;
  return a.link_layer == IBV_LINK_LAYER_ETHERNET || a.gid.global.subnet_prefix == b.gid.global.subnet_prefix;
}

size_t meeting_port(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                    size_t their_count) {
  const PortPlace& self = ours[which];
  if (const size_t equal = same_ordinal(theirs, their_count, self); equal != kNoPort) return equal;
  size_t before = 0;  // ports of ours before this one without an equal
  for (size_t i = 0; i < which; ++i) {
    if (same_fabric(ours[i], self) && same_ordinal(theirs, their_count, ours[i]) == kNoPort) ++before;
  }
  for (size_t i = 0; i < their_count; ++i) {
    if (!same_fabric(theirs[i], self) || same_ordinal(ours, our_count, theirs[i]) != kNoPort) continue;
    if (before-- == 0) return i;
  }
  return kNoPort;
}

}  // namespace bfo::engine
