// SPDX-License-Identifier: BSD-3-Clause
//
// leaving.cc: processes that are removed: what is under way ends first, the peers are told, and the summary
// is collected.
#include <utility>

#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/deaths.h"
#include "pml/bfo/glue/other_end.h"

namespace bfo::glue {
namespace {

// Finalize waits so long for messages that are not acknowledged, and for the answers of those that it leaves.
constexpr uint64_t kDrainNs = 2'000'000'000;
// The same for those that need not be in MPI now: no fence of the runtime was before it.
constexpr uint64_t kGuestNs = 50'000'000;
constexpr uint64_t kTellNs = 500'000'000;  // how long it waits then for the records of losses

}  // namespace

uint64_t Module::drain() {
  const uint64_t end_ns = port_.now_ns() + kDrainNs;
  auto busy = [this] {
    uint64_t left = engine_.unfinished();
    for (const auto& [btl, contract] : bound_) left += contract->outstanding(btl);
    return left != 0;
  };
  while (busy() && port_.now_ns() < end_ns) opal_progress();
  // What was lost shortly before is complete, and its cause is known, when its rail is fenced.
  const uint64_t told = port_.now_ns() + kTellNs;
  while (engine_.losses_open() && port_.now_ns() < told) opal_progress();
  return end_ns;
}

void Module::say_goodbye(ompi_proc_t** procs, size_t count, uint64_t end_ns) {
  const uint64_t guests_until_ns = port_.now_ns() + kGuestNs;
  auto unheard = [&] {
    const bool guests_wait = port_.now_ns() < guests_until_ns;
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      void* const known = procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
      if (known == nullptr || (survives_deaths() && is_dead(*procs[i]))) continue;
      const bool guest =
          ompi_async_mpi_finalize || procs[i]->super.proc_name.jobid != OMPI_PROC_MY_NAME->jobid;
      Peer& peer = *static_cast<Peer*>(known);
      for (unsigned r = 0; r < peer.n_rails; ++r) {
        const RailHandle& handle = peer.rails[r].handle;
        if (handle.failover == nullptr || handle.failover->leave(handle.btl, handle.ep) == 0) continue;
        any = any || !guest || guests_wait;
      }
    }
    return any;
  };
  // What is said leaves with progress, so there is some also when the drain has taken all of the time.
  while (unheard()) {
    opal_progress();
    if (port_.now_ns() >= end_ns) break;
  }
}

// A rail whose first connection has taken longer than kEnoughMs.
void Module::note_never_up(Rail& rail) {
  constexpr uint32_t kEnoughMs = 1000;
  RailHandle& handle = rail.handle;
  if (handle.failover == nullptr || handle.away != Away::kNo) return;
  char why[96];
  const uint32_t ms = handle.failover->never_up(handle.btl, handle.ep, why, sizeof(why));
  bfo_rail_info_t info = {};
  if (ms < kEnoughMs || handle.failover->rail_info(handle.btl, handle.ep, &info) != OPAL_SUCCESS) return;
  const OtherEnd there(rail.peer->handle, &handle);
  EventNames names;
  names.device = info.device;
  names.port = info.port;
  there.name(names);
  handle.away = summary_.down(names, why, Away::kNo, false, port_.now_ns() - uint64_t{ms} * 1'000'000u);
}

void Module::collect_summary(ompi_proc_t** procs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void* const known = procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
    if (known == nullptr) continue;
    Peer& peer = *static_cast<Peer*>(known);
    for (unsigned r = 0; r < peer.n_rails; ++r) note_never_up(peer.rails[r]);
  }
  const bfo_host_ports_t ports = host_ports();
  summary_.rails(ports.up, ports.expected);
  const xfer::Counters& counters = engine_.counters();
  summary_.collect(counters.bytes_resent, counters.peers_lost, port_.now_ns());
}

int Module::del_procs(ompi_proc_t** procs, size_t count) {
  collect_summary(procs, count);
  say_goodbye(procs, count, drain());
  for (size_t i = 0; i < count; ++i) {
    void* const known = procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
    if (known != nullptr) engine_.tell_losses(static_cast<Peer*>(known));
  }
  collect_summary(procs, count);
  leaving_ = true;
  for (size_t i = 0; i < count; ++i) {
    void*& known = reinterpret_cast<void*&>(procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML]);
    if (known == nullptr) continue;
    Peer* peer = static_cast<Peer*>(std::exchange(known, nullptr));
    for (unsigned r = 0; r < peer->n_rails; ++r) {
      const RailHandle& handle = peer->rails[r].handle;
      if (handle.failover != nullptr) {
        static_cast<void>(handle.failover->attach(handle.btl, handle.ep, nullptr, nullptr));
        continue;
      }
      broken_lock_.lock();
      std::erase(stock_rails_, &peer->rails[r]);
      broken_lock_.unlock();
    }
    engine_.peer_lost(peer, true);
  }
  leaving_ = false;
  return mca_bml.bml_del_procs(count, procs);
}

}  // namespace bfo::glue
