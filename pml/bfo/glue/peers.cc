// SPDX-License-Identifier: BSD-3-Clause
//
// peers.cc: the peers of the module (module.h) and their rails: made at the first contact, broken when a BTL
// without the contract says so.
//
// Rails are copied out of the BML once, by value, and its arrays are left as they are when one dies: taking a
// BTL out of them (bml_del_proc_btl) cannot be undone (bml_add_btl is not implemented in 4.1 and 5.0), while
// our rails come back with a new epoch; and it can leave the BML's list of eager rails empty for others.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "pml/bfo/glue/builds.h"
#include "pml/bfo/glue/deaths.h"
#include "pml/bfo/glue/help.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/rail_limits.h"
#include "pml/bfo/xfer/contract.h"
#include "pml/bfo/xfer/rails/stock_name.h"

namespace bfo::glue {
namespace {

uint64_t number_of(const opal_process_name_t& process) {
  return uint64_t{process.jobid} << 32 | process.vpid;
}

// The same number on both sides, another one for the next peer.
uint64_t pair_key(const opal_process_name_t& peer) {
  const opal_process_name_t self = OPAL_PROC_MY_NAME;
  return uint64_t{self.jobid} + peer.jobid + self.vpid + peer.vpid;
}

// BTLs whose sendi copies a header of any length. Others have a field for it (ugni: 128 bytes), or choose how
// to send by the length of the payload alone (uct).
bool takes_any_header(const mca_btl_base_module_t& btl) {
  const char* const name = btl.btl_component->btl_version.mca_component_name;
  return strcmp(name, kSharedMemoryBtl) == 0 || strcmp(name, "self") == 0;
}

}  // namespace

Peer* Module::peer(ompi_proc_t* proc) {
  void* known = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  if (known != nullptr) [[likely]]
    return static_cast<Peer*>(known);
  return make_peer(proc);
}

void Module::set_peer(ompi_proc_t* proc, Peer* peer) {
  proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] =
      reinterpret_cast<mca_bml_base_endpoint_t*>(static_cast<void*>(peer));
}

// A process that nothing is sent to: requests with it, and those with anybody, end with an error.
Peer* Module::make_refused(ompi_proc_t* proc) {
  PeerHandle handle;
  handle.proc = proc;
  handle.refused = true;
  Peer* peer = engine_.peer_add(handle, pair_key(proc->super.proc_name), false);
  if (peer == nullptr) return nullptr;
  set_peer(proc, peer);
  engine_.peer_refuse(peer);
  return peer;
}

// Called with the engine's lock held.
Peer* Module::make_peer(ompi_proc_t* proc) {
  // Processes of other hosts are not added at the start.
  if (!understands(&proc->super)) return make_refused(proc);
  mca_bml_base_endpoint_t* ep = mca_bml_base_get_endpoint(proc);
  if (ep == nullptr) return nullptr;
  PeerHandle handle;
  handle.proc = proc;
  Peer* peer = engine_.peer_add(handle, pair_key(proc->super.proc_name), proc == ompi_proc_local());
  if (peer == nullptr) return nullptr;
  const size_t n = std::min<size_t>(mca_bml_base_btl_array_get_size(&ep->btl_send),
                                    static_cast<size_t>(params_.max_send_per_range));
  for (size_t i = 0; i < n; ++i) add_rail(peer, *mca_bml_base_btl_array_get_index(&ep->btl_send, i), *ep);
  set_peer(proc, peer);
  rail_check_.at_contact(*peer);
  return peer;
}

void Module::add_rail(Peer* peer, const mca_bml_base_btl_t& bml_btl, const mca_bml_base_endpoint_t& ep) {
  RailHandle handle;
  handle.btl = bml_btl.btl;
  handle.ep = bml_btl.btl_endpoint;
  handle.failover = find_failover(bml_btl.btl);
  handle.whole_in_header = takes_any_header(*bml_btl.btl);

  size_t same_component = 0;
  for (size_t i = 0; i < ep.btl_send.arr_size; ++i) {
    if (ep.btl_send.bml_btls[i].btl->btl_component == handle.btl->btl_component) ++same_component;
  }
  const bool named = handle.failover != nullptr || same_component == 1;
  const bool rdma = named && peer->n_rails < params_.max_rdma_per_request;
  xfer::RailLimits limits = limits_of(handle.btl, params_, rdma);
  limits.failover = handle.failover != nullptr;
  limits.port = port_index(handle.btl);
  limits.given = given_weight(handle);

  Rail* const rail = engine_.rail_add(peer, handle, limits);
  if (rail == nullptr) return;
  if (handle.failover != nullptr) return begin_rail(*rail);
  const RailName name = xfer::stock_name(component_name(handle.btl), number_of(OPAL_PROC_MY_NAME),
                                         number_of(peer->handle.proc->super.proc_name));
  engine_.rail_begin(rail, RailState::kUp, named ? name : RailName{});
  broken_lock_.lock();
  stock_rails_.push_back(rail);
  broken_lock_.unlock();
}

// attach() reads the state when the BTL has the pointer. A later change, reported to another thread, waits
// for the engine's lock, which this thread holds.
void Module::begin_rail(Rail& rail) {
  const RailHandle& handle = rail.handle;
  bfo_rail_info_t info = {};
  if (handle.failover->attach(handle.btl, handle.ep, &rail, &info) != OPAL_SUCCESS)
    return engine_.rail_begin(&rail, RailState::kUnusable);
  engine_.rail_begin(&rail, xfer::state_of(info.state), {info.name.conn, info.name.epoch});
  if (info.answers != 0) engine_.on_peer_alive(&rail, true);
}

void Module::note_broken(mca_btl_base_module_t* btl, opal_proc_t* proc, const char* info) {
  broken_lock_.lock();
  broken_.push_back({btl, proc, info == nullptr ? "no detail" : info});
  broken_lock_.unlock();
  broken_any_.store(true, std::memory_order_release);
}

void Module::handle_broken_now() {
  broken_lock_.lock();
  broken_any_.store(false, std::memory_order_relaxed);
  const std::vector<Broken> notes = std::exchange(broken_, {});
  const std::vector<Rail*> rails = stock_rails_;
  broken_lock_.unlock();
  for (const Broken& note : notes) {
    show_help("stock-btl-error", component_name(note.btl), note.info.c_str(),
              lost_error_name(Outcome::kMessageLost));
    xfer::RailEvent event;
    event.cause = BFO_CAUSE_POST_FAILED;
    event.text = note.info.c_str();
    for (Rail* rail : rails) {
      if (rail->handle.btl != note.btl) continue;
      if (note.proc != nullptr && &rail->peer->handle.proc->super != note.proc) continue;
      // A message taken without a descriptor is not counted.
      const bool used =
          note.btl->btl_sendi != nullptr || __atomic_load_n(&rail->handle.carried, __ATOMIC_RELAXED);
      engine_.on_rail_broken(rail, event, used);
    }
  }
}

}  // namespace bfo::glue
