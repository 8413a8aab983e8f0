// SPDX-License-Identifier: BSD-3-Clause
//
// peers.cc: the processes this one knows, and which port of this process is paired with which one of a peer.
#include <algorithm>

#include "btl/verbs/engine/memory.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

using engine::ModexPort;

uint64_t name_of(const opal_process_name_t& name) {
  return uint64_t{name.jobid} << 32 | name.vpid;
}

/// The peer's port for `module`, or nullptr.
const ModexPort* choose(const Module& module, const ModexPort* ports, int count) {
  engine::PortPlace ours[kMaxModules];
  engine::PortPlace theirs[kMaxModules];
  const Component& component = mca_btl_verbs_component;
  size_t which = 0;
  for (int i = 0; i < component.module_count; ++i) {
    ours[i] = component.modules[i]->place;
    if (component.modules[i] == &module) which = static_cast<size_t>(i);
  }
  for (int i = 0; i < count; ++i) theirs[i] = engine::place_of(ports[i]);
  const size_t met = engine::meeting_port(ours, static_cast<size_t>(component.module_count), which, theirs,
                                          static_cast<size_t>(count));
  return met == engine::kNoPort ? nullptr : &ports[met];
}

mca_btl_base_endpoint_t* make_endpoint(Module& module, opal_proc_t* proc) {
  ModexPort ports[kMaxModules];
  const int count = read_ports(proc, ports);
  const ModexPort* port = choose(module, ports, count);
  if (port == nullptr) return nullptr;
  if (port->receive_bytes < module.super.btl_max_send_size) {
    char why[160];
    snprintf(why, sizeof why, "is %zu here but only %u in %s: give all processes the same value",
             module.super.btl_max_send_size, port->receive_bytes, opal_get_proc_hostname(proc));
    say(true, "bad-parameter", "max_send_size", why);
    return nullptr;
  }
  auto* endpoint = engine::make<mca_btl_base_endpoint_t>();
  if (endpoint == nullptr) return nullptr;
  engine::Endpoint& rail = endpoint->engine;
  rail.peer.name = name_of(proc->proc_name);
  rail.peer.nonce = port->nonce;
  rail.peer.key = SipKey{port->key[0], port->key[1]};
  rail.peer.address.lid = port->lid;
  rail.peer.address.link_layer = port->link_layer;
  rail.peer.address.mtu = port->mtu & 0xf;
  rail.peer.address.lmc = std::min(port->lmc, engine::kMaxLmc);
  rail.peer.address.cm_qpn = port->cm_qpn;
  rail.peer.address.heartbeat_qpn = port->heartbeat_qpn;
  rail.peer.address.qkey = port->qkey;
  memcpy(rail.peer.address.gid.raw, port->gid, sizeof port->gid);
  rail.peer.initially_down = port->active == 0;
  if (!module.port.add(rail)) {
    engine::unmake(endpoint);
    return nullptr;
  }
  return endpoint;
}

bool may_reach(const opal_proc_t* proc) {
  const opal_proc_t* self = opal_proc_local_get();
  if (proc == self || name_of(proc->proc_name) == name_of(self->proc_name)) return false;  // btl self
  return proc->proc_arch == self->proc_arch;
}

}  // namespace

int peer_ports(opal_proc_t* proc) {
  ModexPort ports[kMaxModules];
  bool there = false;
  const int count = read_ports(proc, ports, &there);
  return count == 0 && there ? -1 : count;
}

int peer_port(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, char* device, size_t size,
              uint32_t* number) {
  const opal_proc_t* const proc = proc_of(endpoint->engine);
  if (proc == nullptr) return OPAL_ERR_NOT_FOUND;
  ModexPort ports[kMaxModules];
  const int count = read_ports(proc, ports);
  for (int i = 0; i < count; ++i) {
    if (ports[i].nonce != endpoint->engine.peer.nonce) continue;
    snprintf(device, size, "%.*s", static_cast<int>(sizeof ports[i].device), ports[i].device);
    *number = ports[i].number;
    return OPAL_SUCCESS;
  }
  return OPAL_ERR_NOT_FOUND;
}

int add_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints, opal_bitmap_t* reachable) {
  const ProgressPause pause(mca_btl_verbs_component);
  Module& module = *module_of(btl);
  for (size_t i = 0; i < count; ++i) {
    endpoints[i] = nullptr;
    if (!may_reach(procs[i])) continue;
    engine::Endpoint* known = module.port.find_peer(name_of(procs[i]->proc_name));
    endpoints[i] = known != nullptr ? endpoint_of(*known) : make_endpoint(module, procs[i]);
    if (endpoints[i] != nullptr && reachable != nullptr) opal_bitmap_set_bit(reachable, static_cast<int>(i));
  }
  return OPAL_SUCCESS;
}

int del_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t**, mca_btl_base_endpoint_t** endpoints) {
  const ProgressPause pause(mca_btl_verbs_component);
  Module& module = *module_of(btl);
  for (size_t i = 0; i < count; ++i) {
    if (endpoints[i] == nullptr) continue;
    module.port.remove(endpoints[i]->engine);
    engine::unmake(endpoints[i]);
  }
  return OPAL_SUCCESS;
}

engine::Endpoint* find_peer(void*, uint64_t) {
  // The process is not known here yet (add_procs). It retransmits its connect request until it is.
  return nullptr;
}

}  // namespace bfo::verbs
