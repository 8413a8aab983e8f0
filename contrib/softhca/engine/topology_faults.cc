// SPDX-License-Identifier: BSD-3-Clause
//
// Topology faults: what happens to ports, devices and processes rather than to one message.
#include "contrib/softhca/engine/topology_faults.h"

#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>

#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/responder.h"
#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fault/link_speed.h"
#include "contrib/softhca/fabric/tables.h"
#include "contrib/softhca/engine/snapshot.h"

namespace bfo::softhca {
namespace {

bool matches(const Decision& decision, uint32_t index) {
  return (decision.node == kAnyId || decision.node == port_node(index)) &&
         (decision.device == kAnyId || decision.device == port_device(index)) &&
         (decision.port == kAnyId || decision.port == port_number(index));
}

template <class F>
void each_port(Fabric& fabric, const Decision& decision, F&& f) {
  FabricHeader& h = fabric.header();
  for (uint32_t node = 0; node < kMaxNodes; ++node) {
    if (decision.node != kAnyId && decision.node != node) continue;
    for (uint32_t device = 0; device < h.devices; ++device) {
      for (uint32_t port = 1; port <= h.ports; ++port) {
        uint32_t index = port_index(node, device, port);
        if (matches(decision, index)) f(index);
      }
    }
  }
}

template <class F>
void each_qp(Fabric& fabric, const Decision& decision, F&& f) {
  FabricHeader& h = fabric.header();
  for (uint32_t i = 0; i < h.qp_fresh; ++i) {
    QpEntry& qp = h.qps[i];
    uint32_t qpn = qp.qpn.load();
    if (qpn == 0 || (decision.qpn != 0 && decision.qpn != qpn)) continue;
    if (decision.qpn == 0 && !matches(decision, qp.port_index)) continue;
    f(qp);
  }
}

void raise_here(Fabric& fabric, uint32_t index, ibv_event_type type, DeferredActions& deferred) {
  raise_port_event(fabric, port_node(index), port_device(index), port_number(index), type, deferred);
}

void device_fatal(Fabric& fabric, uint32_t index, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  if (h.devices_table[index / kMaxPortsPerDevice].fatal.exchange(1) != 0) return;
  raise_here(fabric, index, IBV_EVENT_DEVICE_FATAL, deferred);
}

void change_lid(Fabric& fabric, uint32_t index, uint16_t lid, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  lid = static_cast<uint16_t>(lid - path_bits(h, lid));  // the first of a port's LIDs has none
  if (lid == 0 || lid + (1u << h.lmc) > kMaxLids) return;
  const uint16_t old = h.ports_table[index].lid.exchange(lid);
  assign_lids(h, old, kNone);
  assign_lids(h, lid, index);
  raise_here(fabric, index, IBV_EVENT_LID_CHANGE, deferred);
}

void signal_process(Fabric& fabric, uint32_t slot, int number) {
  if (fabric.alive(slot, true)) kill(fabric.header().processes[slot].pid.load(), number);
}

/// Notes that the processes a Stop is about to hit go on after its duration.
void resume_later(Fabric& fabric, const Decision& decision) {
  FabricHeader& h = fabric.header();
  uint64_t at = fabric.now() + decision.duration_ns;
  QpEntry* qp = decision.qpn != 0 ? find_qp(fabric, decision.qpn) : nullptr;
  for (uint32_t slot = 0; slot < h.processes_used.load(); ++slot) {
    ProcessEntry& entry = h.processes[slot];
    if (entry.state.load() != ProcessState::kLive) continue;
    if (decision.qpn != 0 ? qp == nullptr || qp->process != slot
                          : decision.node != kAnyId && decision.node != entry.node)
      continue;
    for (Resume& resume : h.resume) {
      uint64_t nobody = 0;
      if (!resume.at_ns.compare_exchange_strong(nobody, kNever)) continue;
      resume.process = slot;
      resume.at_ns.store(at);
      break;
    }
  }
}

/// topology_tick() of another process continues one that a rule has stopped for a while. If none is left to
/// do so this process does not stop.
void signal_self(Fabric& fabric, const Decision& decision, int number) {
  if (number == SIGSTOP && decision.duration_ns != 0 && !fabric.others_run())
    return fabric.forget_resume(fabric.process());
  signal_process(fabric, fabric.process(), number);
}

void signal_target(Fabric& fabric, const Decision& decision, int number) {
  FabricHeader& h = fabric.header();
  if (decision.qpn != 0) {
    QpEntry* qp = find_qp(fabric, decision.qpn);
    if (qp && qp->process == fabric.process()) return signal_self(fabric, decision, number);
    if (qp) signal_process(fabric, qp->process, number);
    return;
  }
  // The own process last: it may not survive its own action.
  for (uint32_t slot = 0; slot < h.processes_used.load(); ++slot) {
    ProcessEntry& entry = h.processes[slot];
    if (slot == fabric.process() || entry.state.load() != ProcessState::kLive) continue;
    if (decision.node == kAnyId || decision.node == entry.node) signal_process(fabric, slot, number);
  }
  if (decision.node == kAnyId || decision.node == fabric.node()) signal_self(fabric, decision, number);
}

void overrun(Fabric& fabric, const Decision& decision, DeferredActions& deferred) {
  each_qp(fabric, decision, [&](QpEntry& qp) { deferred.fail_cq(qp.recv_cq); });
}

void raise_named_event(Fabric& fabric, const Decision& decision, DeferredActions& deferred) {
  ibv_event_type type = static_cast<ibv_event_type>(decision.value);
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      each_qp(fabric, decision, [&](QpEntry& qp) { deferred.fail_cq(qp.recv_cq); });
      return;
    case IBV_EVENT_SRQ_ERR:
      each_qp(fabric, decision, [&](QpEntry& qp) {
        if (qp.srq == kNone) return;
        SrqEntry& srq = fabric.header().srqs[qp.srq];
        if (srq.error.exchange(1) == 0) raise_srq_event(fabric, srq, type, deferred);
        fail_qp(fabric, qp, IBV_EVENT_QP_FATAL, deferred);
      });
      return;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      each_qp(fabric, decision, [&](QpEntry& qp) {
        if (qp.srq != kNone) raise_srq_event(fabric, fabric.header().srqs[qp.srq], type, deferred);
      });
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      each_qp(fabric, decision, [&](QpEntry& qp) { fail_qp(fabric, qp, type, deferred); });
      return;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      each_qp(fabric, decision, [&](QpEntry& qp) { raise_qp_event(fabric, qp, type, deferred); });
      return;
    case IBV_EVENT_DEVICE_FATAL:
      each_port(fabric, decision, [&](uint32_t index) { device_fatal(fabric, index, deferred); });
      return;
    default:
      each_port(fabric, decision, [&](uint32_t index) { raise_here(fabric, index, type, deferred); });
  }
}

void note_next(Fabric& fabric, uint64_t at) {
  std::atomic<uint64_t>& next = fabric.header().next_topology_ns;
  uint64_t old = next.load();
  while (at < old && !next.compare_exchange_weak(old, at)) {
  }
  fabric.update_hooks();
}

/// The trace names the target; kAnyId stands for all.
void trace_firing(Fabric& fabric, const Decision& decision) {
  MessageRecord record{};
  record.time_ns = fabric.now();
  record.message_ordinal = decision.rule;
  record.src_qpn = decision.qpn;
  record.pid = fabric.pid();
  record.node = decision.node;
  record.device = decision.device;
  record.port = decision.port;
  record.opcode = Opcode::kFault;
  record.rule = decision.rule;
  append(fabric.header().trace, record);
}

}  // namespace

void set_port_state(Fabric& fabric, uint32_t index, bool up, uint64_t duration_ns,
                    DeferredActions& deferred) {
  PortEntry& port = fabric.header().ports_table[index];
  if (!up) {
    port.up_at_ns.store(duration_ns == 0 ? kNever : fabric.now() + duration_ns);
    const bool was_down = port.state.exchange(kPortDown) == kPortDown;
    // After the state: note_next looks for ports that are down, and without one nobody would bring this one
    // back.
    if (duration_ns != 0) note_next(fabric, fabric.now() + duration_ns);
    if (was_down) return;
    port.link_downed.fetch_add(1);
    raise_here(fabric, index, IBV_EVENT_PORT_ERR, deferred);
    return;
  }
  port.up_at_ns.store(kNever);
  if (port.state.exchange(kPortActive) == kPortActive) return;
  raise_here(fabric, index, IBV_EVENT_PORT_ACTIVE, deferred);
}

void set_link_speed(Fabric& fabric, uint32_t index, uint64_t packed, DeferredActions& deferred) {
  if (fabric.header().ports_table[index].speed.exchange(packed) == packed) return;
  raise_here(fabric, index, static_cast<ibv_event_type>(kDeviceSpeedChange), deferred);
}

void act_on_topology(Fabric& fabric, const Decision& decision, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  if (enabled(h.trace)) trace_firing(fabric, decision);
  auto ports = [&](auto&& f) { each_port(fabric, decision, f); };
  switch (decision.kind) {
    case ActionKind::kPortDown:
      ports([&](uint32_t i) { set_port_state(fabric, i, false, decision.duration_ns, deferred); });
      break;
    case ActionKind::kPortUp:
      ports([&](uint32_t i) { set_port_state(fabric, i, true, 0, deferred); });
      break;
    case ActionKind::kDeviceFatal:
      ports([&](uint32_t i) { device_fatal(fabric, i, deferred); });
      break;
    case ActionKind::kLidChange:
      ports([&](uint32_t i) { change_lid(fabric, i, static_cast<uint16_t>(decision.value), deferred); });
      break;
    case ActionKind::kGidChange:
      ports([&](uint32_t i) {
        h.ports_table[i].gid_id.store(decision.value64);
        raise_here(fabric, i, IBV_EVENT_GID_CHANGE, deferred);
      });
      break;
    case ActionKind::kGidTable:
      ports([&](uint32_t i) {
        if (!is_ethernet(h)) return;
        h.ports_table[i].gids.store(decision.value64);
        raise_here(fabric, i, IBV_EVENT_GID_CHANGE, deferred);
      });
      break;
    case ActionKind::kPkeyChange:
      ports([&](uint32_t i) {
        h.ports_table[i].pkey[0].store(static_cast<uint16_t>(decision.value));
        raise_here(fabric, i, IBV_EVENT_PKEY_CHANGE, deferred);
      });
      break;
    case ActionKind::kSmChange:
      ports([&](uint32_t i) { raise_here(fabric, i, IBV_EVENT_SM_CHANGE, deferred); });
      break;
    case ActionKind::kClientReregister:
      ports([&](uint32_t i) { raise_here(fabric, i, IBV_EVENT_CLIENT_REREGISTER, deferred); });
      break;
    case ActionKind::kCqOverrun:
      overrun(fabric, decision, deferred);
      break;
    case ActionKind::kKill:
      signal_target(fabric, decision, SIGKILL);
      break;
    case ActionKind::kStop:
      if (decision.duration_ns != 0) {
        resume_later(fabric, decision);
        note_next(fabric, fabric.now() + decision.duration_ns);
      }
      signal_target(fabric, decision, SIGSTOP);
      break;
    case ActionKind::kSetRate:
      ports([&](uint32_t i) { h.ports_table[i].rate.store(decision.value64); });
      fabric.update_hooks();
      break;
    case ActionKind::kSetLatency:
      ports([&](uint32_t i) { h.ports_table[i].latency_ns.store(decision.value64); });
      fabric.update_hooks();
      break;
    case ActionKind::kSetSpeed:
      ports([&](uint32_t i) { set_link_speed(fabric, i, decision.value64, deferred); });
      break;
    case ActionKind::kSetLimit:
      ports([&](uint32_t i) {
        DeviceEntry& device = h.devices_table[i / kMaxPortsPerDevice];
        device.limit[decision.value % kObjectKinds].store(static_cast<uint32_t>(decision.value64));
      });
      break;
    case ActionKind::kSetMemlock:
      ports([&](uint32_t i) { h.memlock[port_node(i)].store(decision.value64); });
      break;
    case ActionKind::kSetSegment:
      ports([&](uint32_t i) {
        const bool own = decision.value == kOwnSegment;
        h.ports_table[i].segment.store(own ? kMostSegment + 1 + i : decision.value);
      });
      break;
    case ActionKind::kReleaseLate:
      release_late_writes(fabric, fabric.now(), &decision, deferred);
      break;
    case ActionKind::kRaiseEvent:
      raise_named_event(fabric, decision, deferred);
      break;
    default:
      break;
  }
}

bool hold_late_write(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const Decision& decision) {
  if (wqe.opcode != static_cast<uint8_t>(Opcode::kWrite) || wqe.length == 0 || wqe.held != 0) return false;
  FabricHeader& h = fabric.header();
  uint64_t data = fabric.allocate(wqe.length);
  if (data == 0) return false;
  uint8_t* out = fabric.at<uint8_t>(data);
  if ((wqe.flags & IBV_SEND_INLINE) != 0) {
    std::memcpy(out, wqe.sge, wqe.length);
  } else {
    KeyUser user{qp.pd, qp.process, qp.qpn.load()};
    for (uint32_t i = 0; i < wqe.num_sge; ++i) {
      uint64_t from = 0;
      if (wqe.sge[i].length == 0) continue;
      if (!translate(fabric, wqe.sge[i].lkey, user, wqe.sge[i].addr, wqe.sge[i].length, 0, from)) {
        fabric.release(data, wqe.length);
        return false;
      }
      std::memcpy(out, reinterpret_cast<const void*>(from), wqe.sge[i].length);
      out += wqe.sge[i].length;
    }
  }
  uint64_t due = decision.delay_ns == 0 ? kNever : fabric.now() + decision.delay_ns;
  {
    Guard guard(h.late_write_lock, fabric.tag(), fabric);
    for (LateWrite& held : h.late_writes) {
      if (held.used.load() != 0) continue;
      held.src_qpn = qp.qpn.load();
      held.dst_qpn = qp.attr.dest_qpn;
      held.psn = wqe.psn;
      held.packets = wqe.packets;
      held.rkey = wqe.rkey;
      held.length = wqe.length;
      held.src_port = qp.port_index;
      held.dst_port = dst_port;
      held.remote_addr = wqe.remote_addr;
      held.data = data;
      held.release_at_ns = due;
      held.rule = decision.rule;
      held.ordinal = wqe.ordinal;
      held.used.store(1, std::memory_order_release);
      wqe.held = 1;
      break;
    }
  }
  if (wqe.held == 0) {
    fabric.release(data, wqe.length);
    return false;
  }
  if (due != kNever) note_next(fabric, due);
  return true;
}

uint32_t release_late_writes(Fabric& fabric, uint64_t now, const Decision* decision,
                             DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  uint32_t landed = 0;
  for (LateWrite& slot : h.late_writes) {
    if (slot.used.load() != 1) continue;
    bool wanted = decision != nullptr ? matches(*decision, slot.src_port) || matches(*decision, slot.dst_port)
                                      : slot.release_at_ns <= now;
    uint32_t one = 1;
    if (!wanted || !slot.used.compare_exchange_strong(one, 2)) continue;
    bool executed = respond_late(fabric, slot, deferred);
    landed += executed ? 1 : 0;
    if (enabled(h.trace)) {
      MessageRecord record{};
      record.time_ns = now;
      record.message_ordinal = slot.ordinal;
      record.remote_addr = slot.remote_addr;
      record.length = slot.length;
      record.rkey = slot.rkey;
      record.psn = slot.psn;
      record.src_qpn = slot.src_qpn;
      record.dst_qpn = slot.dst_qpn;
      record.pid = fabric.pid();
      record.node = static_cast<uint16_t>(port_node(slot.dst_port));
      record.device = static_cast<uint16_t>(port_device(slot.dst_port));
      record.port = static_cast<uint16_t>(port_number(slot.dst_port));
      record.peer_node = static_cast<uint16_t>(port_node(slot.src_port));
      record.peer_device = static_cast<uint16_t>(port_device(slot.src_port));
      record.peer_port = static_cast<uint16_t>(port_number(slot.src_port));
      record.opcode = Opcode::kWrite;
      record.direction = Direction::kRx;
      record.flags = kRecordLate;
      record.verdict = executed ? Verdict::kReleased : Verdict::kReleasedDropped;
      record.rule = static_cast<uint8_t>(slot.rule);
      append(h.trace, record);
    }
    fabric.release(slot.data, slot.length);
    slot.used.store(0, std::memory_order_release);
  }
  return landed;
}

uint64_t topology_tick(Fabric& fabric, uint64_t now) {
  FabricHeader& h = fabric.header();
  DeferredActions deferred(fabric);
  for (;;) {
    h.topology_acting.fetch_add(1);
    Decision decision = tick(h.faults, now);
    if (decision.kind != ActionKind::kNone) snapshot_fault(fabric, decision);
    // A process may kill itself, and would be waited for.
    if (decision.kind == ActionKind::kKill) h.topology_acting.fetch_sub(1);
    if (decision.kind != ActionKind::kNone) act_on_topology(fabric, decision, deferred);
    if (decision.kind != ActionKind::kKill) h.topology_acting.fetch_sub(1);
    if (decision.kind == ActionKind::kNone) break;
  }
  uint64_t next = next_due_ns(h.faults);
  h.next_topology_ns.store(kNever);
  for (uint32_t index = 0; index < kMaxPorts; ++index) {
    if (port_device(index) >= h.devices || port_number(index) > h.ports) continue;
    PortEntry& port = h.ports_table[index];
    uint64_t at = port.up_at_ns.load(std::memory_order_relaxed);
    if (at == 0 || at == kNever || port.state.load(std::memory_order_relaxed) != kPortDown) continue;
    if (at <= now && port.up_at_ns.compare_exchange_strong(at, kNever)) {
      set_port_state(fabric, index, true, 0, deferred);
    } else if (at < next) {
      next = at;
    }
  }
  release_late_writes(fabric, now, nullptr, deferred);
  for (LateWrite& held : h.late_writes) {
    if (held.used.load() == 1 && held.release_at_ns < next) next = held.release_at_ns;
  }
  for (Resume& resume : h.resume) {
    uint64_t at = resume.at_ns.load();
    if (at == 0 || at == kNever) continue;
    if (at > now) {
      if (at < next) next = at;
      continue;
    }
    uint32_t slot = resume.process;
    if (resume.at_ns.compare_exchange_strong(at, 0)) signal_process(fabric, slot, SIGCONT);
  }
  uint64_t old = h.next_topology_ns.load();
  while (next < old && !h.next_topology_ns.compare_exchange_weak(old, next)) {
  }
  fabric.update_hooks();
  return next;
}

void topology_settle(Fabric& fabric, uint64_t now) {
  topology_tick(fabric, now);
  while (fabric.header().topology_acting.load() != 0 && fabric.now() < now + kSettleNs) sched_yield();
}

}  // namespace bfo::softhca
