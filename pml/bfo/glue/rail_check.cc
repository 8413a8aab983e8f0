// SPDX-License-Identifier: BSD-3-Clause
//
// rail_check.cc: see rail_check.h.
#include "pml/bfo/glue/rail_check.h"

#include <algorithm>

#include "common/component_list.h"
#include "pml/bfo/glue/callbacks.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {
namespace {

constexpr char kBtl[] = "verbs";

const char* name_of(const mca_btl_base_module_t* btl) {
  return btl->btl_component->btl_version.mca_component_name;
}

const char* btl_list() {
  const int index = mca_base_var_find("opal", "btl", nullptr, nullptr);
  char** value = nullptr;
  if (index < 0 || mca_base_var_get_value(index, &value, nullptr, nullptr) != OPAL_SUCCESS) return "";
  return value != nullptr && *value != nullptr ? *value : "";
}

// A peer gets no more rails than that.
void bound(OwnRails& own, unsigned most) {
  if (own.up <= most) return;
  own.up = most;
  own.missing = "pml_bfo_max_send_per_range lets a message have no more";
  own.remedy = "Raise that parameter";
}

// The rails of this process; `ports` keeps the BTL's words.
OwnRails read_own(bfo_host_ports_t& ports, unsigned most) {
  OwnRails own;
  own.btl_list = btl_list();
  own.our_version = BFO_FAILOVER_VERSION;
  bool flagged = true;
  for_each_btl([&](const mca_btl_base_module_t* btl) {
    if (strcmp(name_of(btl), kBtl) != 0) return;
    ++own.modules;
    flagged = flagged && (btl->btl_flags & MCA_BTL_FLAGS_FAILOVER_SUPPORT) != 0;
  });
  const ComponentList list(own.btl_list);
  own.by_name = list.leaves_out_by_name(kBtl);
  const bfo_failover_btl_t* const contract = contract_of(kBtl);
  if (list.leaves_out(kBtl)) {
    own.btl = Btl::kLeftOut;
  } else if (contract == nullptr) {
    own.btl = Btl::kNotLoaded;
  } else if (!speaks(*contract)) {
    own.btl = Btl::kOtherVersion;
    own.btl_version = contract->version;
  } else {
    own.btl = flagged ? Btl::kThere : Btl::kNoFlag;
    contract->host_ports(&ports);
    own.up = ports.up;
    own.expected = ports.expected;
    own.missing = ports.missing;
    own.remedy = ports.remedy;
    bound(own, most);
  }
  return own;
}

// A BTL that is preferred to verbs and reaches more than the process itself: shared memory.
bool is_memory(const mca_btl_base_module_t* btl) {
  return btl->btl_exclusivity > MCA_BTL_EXCLUSIVITY_DEFAULT && strcmp(name_of(btl), "self") != 0;
}

// Of the ways to a peer osc rdma takes the one of the least latency.
bool prefers_rail(const Peer& peer) {
  const RailHandle* best = nullptr;
  for (unsigned i = 0; i < peer.n_rails; ++i) {
    const RailHandle& rail = peer.rails[i].handle;
    if (best == nullptr || rail.btl->btl_latency < best->btl->btl_latency) best = &rail;
  }
  return best != nullptr && best->failover != nullptr;
}

JobShape read_shape(const char* list) {
  JobShape shape;
  shape.several_hosts =
      ompi_process_info.num_procs > static_cast<unsigned>(ompi_process_info.num_local_peers) + 1;
  for_each_btl([&shape](const mca_btl_base_module_t* btl) { shape.memory = shape.memory || is_memory(btl); });
  // One process has no peer yet. When it gets one the contact is judged.
  shape.asked = ComponentList(list).asks_for(kBtl) && ompi_process_info.num_procs > 1;
  return shape;
}

}  // namespace

bfo_host_ports_t host_ports() {
  bfo_host_ports_t ports = {};
  const bfo_failover_btl_t* const contract = contract_of(kBtl);
  if (contract != nullptr && speaks(*contract)) contract->host_ports(&ports);
  return ports;
}

void RailCheck::tell(const char* text) {
  constexpr int kPatienceMs = 1000;
  told_ = true;
  const bool abort = min_rails_aborts(params_);
  const uint64_t key = claim_key("protection");
  const bool first = claims_.take_once(key, opal_process_info.my_local_rank == 0);
  if (first) {
    opal_output(0, "%s%s", text, abort ? ". The job ends (pml_bfo_min_rails_action abort)" : "");
    claims_.said(key);
  }
  if (!abort) return;
  // mpirun kills the others: not before the sentence is out.
  if (!first) claims_.wait(key, kPatienceMs);
  ompi_rte_abort(1, nullptr);
}

void RailCheck::look_at_host(bool met) {
  bfo_host_ports_t ports = {};
  const OwnRails own = read_own(ports, static_cast<unsigned>(params_.max_send_per_range));
  if (own.btl == Btl::kOtherVersion) return;  // Module::builds_fit() refuses it, in a sentence of its own
  JobShape shape = read_shape(own.btl_list);
  if (met) shape.several_hosts = true;
  const auto min_rails = static_cast<unsigned>(params_.min_rails);
  if (!lacks_rails(min_rails, own, shape)) return;
  char text[1024];
  tell_own(min_rails, own, opal_process_info.nodename, text, sizeof(text));
  tell(text);
}

void RailCheck::at_start() {
  if (ompi_process_info.num_procs > 1) look_at_host(false);
}

void RailCheck::look_at_windows() {
  if (windows_told_ || !by_rail_ || params_.min_rails == 0 || !windows_use_btls(btl_message_callback()))
    return;
  windows_told_ = true;
  const uint64_t key = claim_key("windows");
  if (!claims_.take_once(key, opal_process_info.my_local_rank == 0)) return;
  char text[640];
  tell_windows(opal_process_info.nodename, text, sizeof(text));
  opal_output(0, "%s", text);
  claims_.said(key);
}

void RailCheck::at_lost_window(opal_proc_t& proc) const {
  if (survives_deaths() && is_dead(reinterpret_cast<ompi_proc_t&>(proc))) return;
  char text[640];
  tell_lost_window(opal_process_info.nodename, HostName(proc).text(), text, sizeof(text));
  opal_output(0, "%s", text);
  ompi_rte_abort(1, nullptr);
}

void RailCheck::at_contact(const Peer& peer) {
  by_rail_ = by_rail_ || prefers_rail(peer);
  look_at_windows();
  if (told_ || params_.min_rails == 0 || peer.handle.proc == ompi_proc_local()) return;
  opal_proc_t* const proc = &peer.handle.proc->super;
  const auto min_rails = static_cast<unsigned>(params_.min_rails);
  PeerRails seen;
  seen.same_host = OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags);
  const char* other = "";
  for (unsigned i = 0; i < peer.n_rails; ++i) {
    const RailHandle& rail = peer.rails[i].handle;
    if (rail.failover != nullptr) {
      ++seen.rails;
    } else if (!is_memory(rail.btl)) {
      ++seen.others;
      other = name_of(rail.btl);
    }
  }
  if (seen.rails >= min_rails && seen.others == 0) return;
  seen.own_up = std::min(host_ports().up, static_cast<unsigned>(params_.max_send_per_range));
  if (const bfo_failover_btl_t* const contract = contract_of(kBtl); contract != nullptr && speaks(*contract))
    seen.published = contract->peer_ports(proc);
  const PeerGap gap = judge_peer(min_rails, seen);
  if (gap == PeerGap::kNone) return;
  if (gap == PeerGap::kOwn) return look_at_host(true);
  char text[1024];
  tell_peer(gap, seen, opal_process_info.nodename, HostName(*proc).text(), other, text, sizeof(text));
  tell(text);
}

}  // namespace bfo::glue
