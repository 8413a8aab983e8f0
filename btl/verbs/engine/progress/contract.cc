// SPDX-License-Identifier: BSD-3-Clause
//
// contract.cc: see contract.h.
#include "btl/verbs/engine/progress/contract.h"

#include <algorithm>

#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/connect/leave.h"

namespace bfo::engine {
namespace {

bool names(const Endpoint& rail, const bfo_rail_name_t& name) {
  return name.conn == connection_id(rail.port->nonce(), rail.peer.nonce);
}

/// The end of `epoch` is reported, also if it never was up here.
void ask_end(Endpoint& rail, uint32_t epoch) {
  if (!rail.make_resources()) return rail.owe_end(epoch);
  uint32_t& asked = rail.notices().fence_asked;
  asked = std::max(asked, epoch);
}

}  // namespace

void rail_attach(Endpoint& rail, void* user, bfo_rail_info_t* now) {
  const Guard guard(rail.port->lock());
  rail.user.store(user, std::memory_order_release);
  if (now != nullptr) rail_info(rail, now);
}

void rail_connect(Endpoint& rail) {
  const Guard guard(rail.port->lock());
  cm_connect(rail);
}

void rail_fence(Endpoint& rail, uint32_t epoch) {
  const Guard guard(rail.port->lock());
  const ClosedEpoch* const last = rail.last_closed();
  const bool closed = last != nullptr && last->name.epoch >= epoch;
  if (closed) {
    rail.notices().repeat_closed = true;
  } else {
    if (epoch != 0) ask_end(rail, epoch);
    if (rail.epoch <= epoch)
      close_order_locked(rail, epoch, BFO_CAUSE_FENCE, 0, 0, rail.port->env().now_ns());
  }
  rail.port->need_service();
}

void rail_peer_down(Endpoint& rail, const bfo_rail_name_t& name, int32_t cause) {
  const Guard guard(rail.port->lock());
  if (!names(rail, name)) return;
  close_order_locked(rail, name.epoch, BFO_CAUSE_PEER_DOWN, cause, 0, rail.port->env().now_ns());
}

void rail_peer_closed(Endpoint& rail, const bfo_rail_name_t& name, uint64_t delivered) {
  const Guard guard(rail.port->lock());
  if (names(rail, name)) note_peer_closed(rail, name, delivered);
}

bool rail_leave(Endpoint& rail) {
  const Guard guard(rail.port->lock());
  leave_begin(rail);
  return leave_pending(rail);
}

Work rail_work(Endpoint& rail) {
  const Guard guard(rail.port->lock());
  return work(rail);
}

uint64_t port_outstanding(Port& port) {
  const Guard guard(port.lock());
  uint64_t total = 0;
  for (Endpoint* rail = port.endpoints(); rail != nullptr; rail = rail->next) {
    total += outstanding(*rail);
    ring_mark(*rail);
  }
  return total;
}

int rails_to(Port* const* ports, int count, uint64_t peer_name, Endpoint** out, int room) {
  int found = 0;
  for (int i = 0; i < count && found < room; ++i) {
    Endpoint* rail = ports[i]->find_peer(peer_name);
    if (rail != nullptr) out[found++] = rail;
  }
  return found;
}

bool other_rail_up(Port* const* ports, int count, const Endpoint& rail) {
  for (int i = 0; i < count; ++i) {
    if (ports[i] == rail.port) continue;
    const Endpoint* other = ports[i]->find_peer(rail.peer.name);
    if (other != nullptr && other->phase == Phase::kUp && !other->ending().asked) return true;
  }
  return false;
}

void connect_others(Port* const* ports, int count, const Endpoint& rail, bool initially_down) {
  for (int i = 0; i < count; ++i) {
    if (ports[i] == rail.port || (initially_down && !ports[i]->initially_down())) continue;
    Endpoint* other = ports[i]->find_peer(rail.peer.name);
    if (other != nullptr && other->phase == Phase::kIdle) rail_connect(*other);
  }
}

}  // namespace bfo::engine
