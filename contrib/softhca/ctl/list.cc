// SPDX-License-Identifier: BSD-3-Clause
//
// softhcactl list: what runs, and in which state.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <utility>

#include "contrib/softhca/ctl/choose.h"
#include "contrib/softhca/ctl/commands.h"
#include "contrib/softhca/fabric/limits.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fabric/report.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca::ctl {
namespace {

std::string_view qp_type_name(uint8_t type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    default:
      return "?";
  }
}

std::string place(uint32_t node, uint32_t device) {
  return "node " + std::to_string(node) + " softhca" + std::to_string(device);
}

/// A living process of the job; a softhcactl that only reads the fabric is none.
bool is_member(Fabric& fabric, uint32_t slot) {
  const ProcessEntry& entry = fabric.header().processes[slot];
  return slot != fabric.process() && entry.state.load() == ProcessState::kLive && fabric.alive(slot, true);
}

struct ObjectName {
  ObjectKind kind;
  std::string_view name;
};
constexpr ObjectName kObjects[] = {{ObjectKind::kQp, "qp"}, {ObjectKind::kCq, "cq"},
                                   {ObjectKind::kMr, "mr"}, {ObjectKind::kSrq, "srq"},
                                   {ObjectKind::kAh, "ah"}, {ObjectKind::kPd, "pd"}};

/// f(node, device) once for every device that some process has open.
template <class F>
void each_open_device(Fabric& fabric, F&& f) {
  FabricHeader& h = fabric.header();
  std::set<std::pair<uint32_t, uint32_t>> open;
  for (uint32_t i = 0; i < h.contexts_used.load(); ++i) {
    const ContextEntry& context = h.contexts[i];
    if (context.used.load(std::memory_order_acquire) == kContextOpen)
      open.emplace(context.node.load(), context.device.load());
  }
  for (const auto& [node, device] : open) f(node, device);
}

void list_text(Fabric& fabric, bool all) {
  FabricHeader& h = fabric.header();
  printf("fabric %s: %u devices of %u port(s) per node, up %.1f s\n", fabric.name().c_str(), h.devices,
         h.ports, static_cast<double>(monotonic_ns() - h.created_ns) * 1e-9);
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (!is_member(fabric, i)) continue;
    const ProcessEntry& entry = h.processes[i];
    printf("  process %d on node %u: %.31s, %lu bytes registered\n", entry.pid.load(), entry.node,
           entry.command, static_cast<unsigned long>(entry.pinned.load()));
  }
  for (const PortReport& report : report_ports(h)) {
    const PortEntry& port = h.ports_table[report.index];
    printf("  %s:%u %s lid %u, %s, %lu bytes out, %lu in\n",
           place(port_node(report.index), port_device(report.index)).c_str(), port_number(report.index),
           port_state_name(port.state.load()).data(), port.lid.load(),
           write_link_speed(unpack_link_speed(port.speed.load())).c_str(),
           static_cast<unsigned long>(report.totals.tx_bytes),
           static_cast<unsigned long>(report.totals.rx_bytes));
  }
  each_open_device(fabric, [&](uint32_t node, uint32_t device) {
    printf("  %s:", place(node, device).c_str());
    for (const ObjectName& object : kObjects) {
      printf(" %u of %u %.*s", object_count(fabric, node, device, object.kind),
             object_limit(fabric, node, device, object.kind), static_cast<int>(object.name.size()),
             object.name.data());
    }
    printf("\n");
  });
  uint32_t by_state[8] = {};
  for (uint32_t i = 0; i < h.qp_fresh.load(); ++i) {
    const QpEntry& qp = h.qps[i];
    if (qp.qpn.load(std::memory_order_acquire) == 0) continue;
    ++by_state[qp.state.load() & 7];
    if (!all) continue;
    printf("  QP %u %s %s on %s:%u, peer QP %u lid %u sl %u, process %d\n", qp.qpn.load(),
           qp_type_name(qp.type).data(), qp_state_name(qp.state.load()).data(),
           place(qp.node, qp.device).c_str(), qp.attr.port_num, qp.attr.dest_qpn, qp.attr.av.dlid,
           qp.attr.av.sl, h.processes[qp.process].pid.load());
  }
  printf("  queue pairs:");
  bool any = false;
  for (uint8_t state = 0; state < 7; ++state) {
    if (by_state[state] == 0) continue;
    any = true;
    printf(" %u %s", by_state[state], qp_state_name(state).data());
  }
  printf(any ? "\n" : " none\n");
}

void list_json(Fabric& fabric) {
  FabricHeader& h = fabric.header();
  const std::string name = json_string(fabric.name());
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (!is_member(fabric, i)) continue;
    const ProcessEntry& entry = h.processes[i];
    const std::string command(entry.command, strnlen(entry.command, sizeof entry.command));
    printf("{\"type\":\"process\",\"fabric\":%s,\"pid\":%d,\"node\":%u,\"command\":%s,\"registered\":%lu}\n",
           name.c_str(), entry.pid.load(), entry.node, json_string(command).c_str(),
           static_cast<unsigned long>(entry.pinned.load()));
  }
  each_open_device(fabric, [&](uint32_t node, uint32_t device) {
    printf("{\"type\":\"device\",\"fabric\":%s,\"node\":%u,\"device\":\"softhca%u\"", name.c_str(), node,
           device);
    for (const ObjectName& object : kObjects) {
      const std::string word(object.name);
      printf(",\"%s\":%u,\"max_%s\":%u", word.c_str(), object_count(fabric, node, device, object.kind),
             word.c_str(), object_limit(fabric, node, device, object.kind));
    }
    printf("}\n");
  });
  for (uint32_t i = 0; i < h.qp_fresh.load(); ++i) {
    const QpEntry& qp = h.qps[i];
    if (qp.qpn.load(std::memory_order_acquire) == 0) continue;
    printf(
        "{\"type\":\"qp\",\"fabric\":%s,\"qpn\":%u,\"service\":\"%s\",\"state\":\"%s\",\"node\":%u,"
        "\"device\":\"softhca%u\",\"port\":%u,\"peer_qpn\":%u,\"peer_lid\":%u,\"sl\":%u,\"pid\":%d}\n",
        name.c_str(), qp.qpn.load(), qp_type_name(qp.type).data(), qp_state_name(qp.state.load()).data(),
        qp.node, qp.device, qp.attr.port_num, qp.attr.dest_qpn, qp.attr.av.dlid, qp.attr.av.sl,
        h.processes[qp.process].pid.load());
  }
  fputs(counters_json(h, fabric.name(), "list", false).c_str(), stdout);
}

}  // namespace

int list(const Options& options) {
  std::string error;
  if (registry_directory(error).empty()) return complain(error);
  std::vector<std::string> names = list_fabrics();
  if (!options.fabric.empty()) names = {options.fabric};
  if (names.empty() && !options.json) printf("no fabric is running%s\n", other_users().c_str());
  int result = 0;
  for (const std::string& name : names) {
    const std::unique_ptr<Fabric> fabric = Fabric::observe(name, error);
    if (!fabric) {
      // One that ended between the listing and now is no error.
      if (!options.fabric.empty()) result = complain(error + other_users());
      continue;
    }
    if (options.json) {
      list_json(*fabric);
    } else {
      list_text(*fabric, options.all);
    }
  }
  return result;
}

}  // namespace bfo::softhca::ctl
