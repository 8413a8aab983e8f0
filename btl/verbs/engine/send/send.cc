// SPDX-License-Identifier: BSD-3-Clause
//
// send.cc: see send.h.
#include "btl/verbs/engine/send/send.h"

#include <cerrno>

#include "common/check.h"
#include "btl/verbs/engine/send/rdma.h"

namespace bfo::engine {

int ring_post_failed(Endpoint& endpoint, int rc) {
  // The device refused a work request it has room for: the queue pair is unusable. Acted upon by the next
  // poll, never inside the caller's call.
  close_order_locked(endpoint, endpoint.epoch, BFO_CAUSE_POST_FAILED, rc, 0, endpoint.port->env().now_ns());
  return rc;
}

namespace {

int post_frag(Endpoint& endpoint, Frag* frag) {
  if (frag->kind == Kind::kPut || frag->kind == Kind::kGet) return ring_post_rdma(endpoint, frag);
  return ring_post_send(endpoint.ring(), frag, frag->data, frag->length, frag->lkey, frag->kind, frag->tag,
                        frag->signaled);
}

}  // namespace

Accepted send(Endpoint& endpoint, Frag* frag) {
  Port& port = *endpoint.port;
  const Guard guard(port.lock());
  if (endpoint.usable && endpoint.queued.empty() && ring_has_room(endpoint.ring())) [[likely]] {
    if (post_frag(endpoint, frag) != 0) return Accepted::kRefused;
    ++port.accounting().accepted[static_cast<size_t>(frag->kind)];
    return Accepted::kPosted;
  }
  const bool queue =
      endpoint.usable || rail_state(endpoint) == BFO_RAIL_IDLE || rail_state(endpoint) == BFO_RAIL_CONNECTING;
  if (!queue || endpoint.ending().asked) return Accepted::kRefused;
  // Also over a port that is down: the next poll hands it back with the loss of the rail. A refusal would say
  // "later", and whoever sends would wait for this port, not take another one.
  if (!endpoint.usable) cm_connect(endpoint);
  ++port.accounting().accepted[static_cast<size_t>(frag->kind)];
  endpoint.queued.push(frag);
  return Accepted::kQueued;
}

void ring_retire(Endpoint& endpoint, uint64_t seq) {
  Port& port = *endpoint.port;
  SendRing& ring = endpoint.ring();
  bool queued = false;
  for (;;) {
    Frag* frag;
    {
      const Guard guard(port.lock());
      queued = !endpoint.queued.empty();
      if (ring.tail > seq || ring.tail == ring.head) break;
      SendSlot& slot = ring.slots[ring.tail & ring.mask];
      frag = slot.frag;
      slot.frag = nullptr;
      if (slot.send_no != 0) ring.sends_acked = slot.send_no;
      ++ring.tail;
      ++port.accounting().delivered[static_cast<size_t>(slot.kind)];
    }
    if (frag != nullptr) port.host().frag_done(port.host().ctx, endpoint, frag, BFO_RC_DELIVERED);
  }
  if (queued) post_queued(endpoint);
}

void post_queued(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Guard guard(port.lock());
  while (endpoint.usable && !endpoint.ending().asked && !endpoint.queued.empty() &&
         ring_has_room(endpoint.ring())) {
    // A refused post leaves the fragment queued: the drain that follows gives it back as never sent.
    if (post_frag(endpoint, endpoint.queued.front()) != 0) break;
    endpoint.queued.pop();
  }
}

/// A signaled zero-byte write to the probe target of the peer's port.
static void post_marker(Endpoint& endpoint) {
  const SendRing& ring = endpoint.ring();
  if (ring.head - ring.tail > ring.mask)
    return;  // not even a control slot is free: then a signaled one is near anyway
  Frag marker;
  marker.kind = Kind::kControl;
  marker.remote_address = endpoint.probe_target().address;
  marker.rkey = endpoint.probe_target().rkey;
  marker.data = const_cast<char*>(endpoint.port->probe_target());
  marker.lkey = 0;
  if (ring_post_rdma(endpoint, &marker) == 0) ++endpoint.port->accounting().accepted[BFO_KIND_CONTROL];
}

void ring_mark(Endpoint& endpoint) {
  if (endpoint.usable && !endpoint.ending().asked) ring_mark_last(endpoint);
}

void ring_mark_last(Endpoint& endpoint) {
  const SendRing& ring = endpoint.ring();
  if (ring.head == ring.tail || ring.head == ring.signaled_end) return;
  if (endpoint.queued.empty()) post_marker(endpoint);
}

void ring_test(Endpoint& endpoint) {
  if (endpoint.ring().head != endpoint.ring().tail) return ring_mark(endpoint);
  if (endpoint.usable && !endpoint.ending().asked) post_marker(endpoint);
}

Work work(Endpoint& endpoint) {
  const SendRing& ring = endpoint.ring();
  const Work out{endpoint.ended_before + ring.head + endpoint.queued.size(),
                 endpoint.ended_before + ring.tail};
  ring_mark(endpoint);
  return out;
}

namespace {

/// The store of the last closed epoch stays as it is until the next one closes, in case the peer reports a
/// gap.
int next_store(const Endpoint& endpoint) {
  const ClosedEpoch* const closed = endpoint.last_closed();
  return closed != nullptr && closed->store == 0 ? 1 : 0;
}

size_t ring_bytes(const Config& config) {
  return size_t{config.send_depth} * config.slot_bytes;
}

}  // namespace

size_t ring_needs(const Endpoint& endpoint) {
  const Epochs* const epochs = endpoint.epochs();
  const bool there = epochs != nullptr && epochs->stores[next_store(endpoint)].memory != nullptr;
  return there ? 0 : ring_bytes(endpoint.port->config());
}

bool ring_reserve(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Config& config = port.config();
  if (!endpoint.make_epochs()) {
    errno = ENOMEM;
    return false;
  }
  RingStore& store = endpoint.epochs()->stores[next_store(endpoint)];
  if (store.slots.size() == 0 && !store.slots.reset(config.send_depth)) {
    errno = ENOMEM;
    return false;
  }
  if (store.memory != nullptr) return true;
  const Region region = port.stock().take(ring_bytes(config));
  store.memory = region.address;
  store.lkey = region.lkey;
  return region.address != nullptr;
}

bool ring_open(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Config& config = port.config();
  if (!ring_reserve(endpoint)) return false;
  endpoint.epochs()->store = next_store(endpoint);
  RingStore& store = endpoint.epochs()->stores[endpoint.epochs()->store];
  ring_forget(endpoint);
  SendRing& ring = endpoint.ring();
  ring.port = &port;
  ring.endpoint = &endpoint;
  ring.qp = endpoint.qps().data.ib();
  ring.slots = store.slots.data();
  ring.memory = store.memory;
  ring.lkey = store.lkey;
  ring.mask = config.send_depth - 1;
  ring.limit = config.send_depth - 2;
  ring.slot_bytes = config.slot_bytes;
  ring.max_inline = endpoint.qps().data.max_inline();
  BFO_DCHECK((config.send_depth & ring.mask) == 0);
  return true;
}

}  // namespace bfo::engine
