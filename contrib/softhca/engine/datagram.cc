// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams to a multicast group and to the subnet administrator.
#include "contrib/softhca/engine/datagram.h"

#include <algorithm>
#include <cstring>

#include "contrib/softhca/engine/attempt.h"
#include "contrib/softhca/engine/hooks.h"
#include "contrib/softhca/engine/links.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/responder.h"
#include "contrib/softhca/engine/subnet.h"
#include "contrib/softhca/engine/wire.h"

namespace bfo::softhca {

void arrive_multicast(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  wqe.stage = WqeStage::kAnswered;
  wqe.complete_at = 0;
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!port_is_up(fabric, qp.port_index)) return;
  if (!local_segments(fabric, qp, wqe, local, count)) {
    answer_is(wqe, WqeStage::kRefused, kAnswerLocalFault);
    return;
  }
  for (McastGroup& group : h.mcast) {
    if (group.used.load(std::memory_order_acquire) == 0 || group.lid != wqe.dlid) continue;
    if (wqe.has_grh != 0 && std::memcmp(group.gid, wqe.dgid, sizeof(group.gid)) != 0) continue;
    uint32_t members = std::min(group.count, kMaxMcastMembers);
    for (uint32_t i = 0; i < members; ++i) {
      QpEntry* member = find_qp(fabric, group.qpn[i]);
      if (member == nullptr || !port_is_up(fabric, member->port_index)) continue;
      if (!in_one_segment(h.ports_table[qp.port_index], h.ports_table[member->port_index])) continue;
      respond(fabric, qp, wqe, group.qpn[i], member->port_index, local, count, kWhole, deferred);
    }
  }
}

void arrive_administrator(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  constexpr uint32_t kMost = 512;
  wqe.stage = WqeStage::kAnswered;
  wqe.complete_at = 0;
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!local_segments(fabric, qp, wqe, local, count)) {
    answer_is(wqe, WqeStage::kRefused, kAnswerLocalFault);
    return;
  }
  bool taken = false;
  if (port_is_up(fabric, qp.port_index) && wqe.length <= kMost) {
    uint8_t request[kMost];
    uint32_t length = 0;
    for (uint32_t i = 0; i < count; ++i) {
      std::memcpy(request + length, reinterpret_cast<const void*>(local[i].addr), local[i].length);
      length += local[i].length;
    }
    taken = administrate(fabric, qp, wqe, request, length, deferred);
  }
  if ((fabric.header().hooks.load(std::memory_order_relaxed) & kHookTrace) == 0) return;
  const MessageRecord record = record_of(fabric, qp, wqe, qp.port_index, qp.port_index, Direction::kRx);
  trace(fabric, record, taken ? Verdict::kDelivered : Verdict::kDroppedNoPeer, 0xff);
}

}  // namespace bfo::softhca
