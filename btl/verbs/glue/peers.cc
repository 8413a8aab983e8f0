// SPDX-License-Identifier: BSD-3-Clause
//
// peers.cc: the processes this one knows, and which port of this process is paired with which one of a peer.
#include <endian.h>

#include <algorithm>
#include <cinttypes>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/glue/module.h"
#include "common/shown_text.h"

namespace bfo::verbs {
namespace {

using engine::ModexPort;

uint64_t name_of(const opal_process_name_t& name) {
  return uint64_t{name.jobid} << 32 | name.vpid;
}

/// The places of the ports of this process, and of a peer's.
struct Sides {
  engine::PortPlace ours[kMaxModules];
  engine::PortPlace theirs[kMaxModules];
  size_t our_count = 0;
  size_t their_count = 0;

  Sides(const Component& component, const ModexPort* ports, int count) {
    for (int i = 0; i < component.module_count; ++i) ours[our_count++] = component.modules[i]->place;
    for (int i = 0; i < count; ++i) theirs[their_count++] = engine::place_of(ports[i]);
  }
  size_t met_by(size_t which) const {
    return engine::meeting_port(ours, our_count, which, theirs, their_count);
  }
  bool none_meet() const {
    for (size_t i = 0; i < our_count; ++i) {
      if (met_by(i) != engine::kNoPort) return false;
    }
    return true;
  }
};

/// "mlx5_0:1 (10.0.0.1/24, fe80::1/64), mlx5_1:1 (no address)"
void addresses_text(const engine::PortPlace* places, size_t count, const ModexPort* ports, char* text,
                    size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < count && used < size; ++i) {
    char name[80];
    char gids[320];
    if (ports != nullptr) {
      snprintf(name, sizeof name, "%s:%u",
               shown(std::string(ports[i].device, strnlen(ports[i].device, sizeof ports[i].device))).c_str(),
               unsigned{ports[i].number});
    } else {
      const engine::Port& port = mca_btl_verbs_component.modules[i]->port;
      snprintf(name, sizeof name, "%s:%u", port.device().name(), unsigned{port.number()});
    }
    if (places[i].link_layer == IBV_LINK_LAYER_ETHERNET)
      engine::gids_text(places[i].gids, places[i].gid_count, gids, sizeof gids);
    else
      snprintf(gids, sizeof gids, "InfiniBand, subnet %016" PRIx64,
               be64toh(places[i].gid.global.subnet_prefix));
    const int written = snprintf(text + used, size - used, "%s%s (%s)", i == 0 ? "" : ", ", name, gids);
    used += written > 0 ? static_cast<size_t>(written) : 0;
  }
}

/// No port of this process meets one of the peer's: Open MPI would only say that the peer is unreachable.
void say_none_meet(const opal_proc_t* proc, const Sides& sides, const ModexPort* ports) {
  char ours[1024];
  char theirs[1024];
  addresses_text(sides.ours, sides.our_count, nullptr, ours, sizeof ours);
  addresses_text(sides.theirs, sides.their_count, ports, theirs, sizeof theirs);
  const HostName there(*proc);
  if (!mca_btl_verbs_component.claims.take_once(claim_key("btl-addresses", there.text()))) return;
  say(false, "no-common-address", opal_process_info.nodename, ours, there.text(), theirs);
}

/// What is known of the peer's port at the other end of `rail`: the addresses of the pair that both choose.
void set_address(const ModexPort& port, const engine::PortPlace& ours, const engine::PortPlace& theirs,
                 engine::PortAddress* address) {
  address->lid = port.lid;
  address->link_layer = port.link_layer & 0xf;
  address->mtu = port.mtu & 0xf;
  address->lmc = std::min(port.lmc, engine::kMaxLmc);
  address->cm_qpn = port.cm_qpn;
  address->heartbeat_qpn = port.heartbeat_qpn;
  address->qkey = port.qkey;
  address->gid = theirs.gid;
  if (theirs.gid_count == 0) return;
  const engine::GidPair pair = engine::choose_pair(ours.gids, ours.gid_count, theirs.gids, theirs.gid_count);
  const engine::PublishedGid& gid = theirs.gids[pair.found() ? pair.theirs : 0];
  address->gid = gid.gid;
  address->gid_type = static_cast<uint8_t>(gid.type) & 0xf;
}

size_t place_in(const Component& component, const Module& module) {
  size_t which = 0;
  while (component.modules[which] != &module) ++which;
  return which;
}

mca_btl_base_endpoint_t* make_endpoint(Module& module, opal_proc_t* proc) {
  ModexPort ports[kMaxModules];
  const int count = read_ports(proc, ports);
  const Sides sides(mca_btl_verbs_component, ports, count);
  const size_t which = place_in(mca_btl_verbs_component, module);
  const size_t met = sides.met_by(which);
  if (met == engine::kNoPort) {
    if (which == 0 && count != 0 && sides.none_meet()) say_none_meet(proc, sides, ports);
    return nullptr;
  }
  const ModexPort* const port = &ports[met];
  if (port->receive_bytes < module.super.btl_max_send_size) {
    char why[160];
    snprintf(why, sizeof why, "is %zu here but only %u in %s: give all processes the same value",
             module.super.btl_max_send_size, port->receive_bytes, HostName(*proc).text());
    say(true, "bad-parameter", "max_send_size", why);
    return nullptr;
  }
  auto* endpoint = engine::make<mca_btl_base_endpoint_t>();
  if (endpoint == nullptr) return nullptr;
  engine::Endpoint& rail = endpoint->engine;
  rail.peer.name = name_of(proc->proc_name);
  rail.peer.nonce = port->nonce;
  rail.peer.key = SipKey{port->key[0], port->key[1]};
  set_address(*port, sides.ours[which], sides.theirs[met], &rail.peer.address);
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

size_t peer_gids(void*, engine::Endpoint& endpoint, engine::PublishedGid* out) {
  const opal_proc_t* const proc = proc_of(endpoint);
  if (proc == nullptr) return 0;
  ModexPort ports[kMaxModules];
  const int count = read_ports(proc, ports);
  for (int i = 0; i < count; ++i) {
    if (ports[i].nonce != endpoint.peer.nonce) continue;
    const engine::PortPlace place = engine::place_of(ports[i]);
    std::copy_n(place.gids, place.gid_count, out);
    return place.gid_count;
  }
  return 0;
}

engine::Endpoint* find_peer(void*, uint64_t) {
  // The process is not known here yet (add_procs). It retransmits its connect request until it is.
  return nullptr;
}

}  // namespace bfo::verbs
