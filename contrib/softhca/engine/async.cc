// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events: affiliated ones go to the context that owns the object, unaffiliated ones to every
// context that has the device open.
#include "contrib/softhca/engine/async.h"

#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

/// Holds ring_lock.
void put(ContextEntry& context, const AsyncRecord& record, DeferredActions& deferred) {
  if (context.used.load() != kContextOpen) return;
  uint32_t tail = context.tail.load(std::memory_order_relaxed);
  if (tail - context.head.load(std::memory_order_acquire) >= kAsyncRing) return;
  context.ring[tail % kAsyncRing] = record;
  context.tail.store(tail + 1, std::memory_order_release);
  deferred.wake(context.process.load(), context.wake);
}

void put_affiliated(Fabric& fabric, uint32_t context, const AsyncRecord& record, DeferredActions& deferred) {
  ContextEntry& owner = fabric.header().contexts[context];
  Guard guard(owner.ring_lock, fabric.tag(), fabric);
  put(owner, record, deferred);
}

void trace_event(Fabric& fabric, uint32_t type, uint32_t node, uint32_t device, uint32_t port, uint32_t qpn) {
  FabricHeader& h = fabric.header();
  if (!enabled(h.trace)) return;
  MessageRecord record{};
  record.time_ns = fabric.now();
  record.opcode = Opcode::kEvent;
  record.syndrome = static_cast<uint8_t>(type);
  record.node = static_cast<uint16_t>(node);
  record.device = static_cast<uint16_t>(device);
  record.port = static_cast<uint16_t>(port);
  record.src_qpn = qpn;
  record.pid = fabric.pid();
  record.rule = 0xff;
  append(h.trace, record);
}

}  // namespace

void raise_qp_event(Fabric& fabric, const QpEntry& qp, ibv_event_type type, DeferredActions& deferred) {
  uint32_t qpn = qp.qpn.load();
  trace_event(fabric, type, qp.node, qp.device, qp.attr.port_num, qpn);
  put_affiliated(fabric, qp.context, {type, index_of(fabric, qp), qpn}, deferred);
}

void raise_cq_event(Fabric& fabric, const CqEntry& cq, ibv_event_type type, DeferredActions& deferred) {
  ContextEntry& context = fabric.header().contexts[cq.context];
  trace_event(fabric, type, context.node, context.device, 0, 0);
  put_affiliated(fabric, cq.context, {type, index_of(fabric, cq), 0}, deferred);
}

void raise_srq_event(Fabric& fabric, const SrqEntry& srq, ibv_event_type type, DeferredActions& deferred) {
  ContextEntry& context = fabric.header().contexts[srq.context];
  trace_event(fabric, type, context.node, context.device, 0, 0);
  put_affiliated(fabric, srq.context, {type, index_of(fabric, srq), 0}, deferred);
}

void raise_port_event(Fabric& fabric, uint32_t node, uint32_t device, uint32_t port, ibv_event_type type,
                      DeferredActions& deferred) {
  trace_event(fabric, type, node, device, port, 0);
  FabricHeader& h = fabric.header();
  for (uint32_t i = 0; i < h.contexts_used.load(); ++i) {
    ContextEntry& context = h.contexts[i];
    if (context.used.load() != kContextOpen) continue;
    Guard guard(context.ring_lock, fabric.tag(), fabric);
    if (context.node == node && context.device == device) put(context, {type, port, 0}, deferred);
  }
}

bool take_event(Fabric& fabric, ContextEntry& context, AsyncRecord& record) {
  Guard guard(context.ring_lock, fabric.tag(), fabric);
  uint32_t head = context.head.load(std::memory_order_relaxed);
  if (head == context.tail.load(std::memory_order_acquire)) return false;
  record = context.ring[head % kAsyncRing];
  context.head.store(head + 1, std::memory_order_release);
  return true;
}

}  // namespace bfo::softhca
