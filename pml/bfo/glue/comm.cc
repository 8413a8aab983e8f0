// SPDX-License-Identifier: BSD-3-Clause
//
// comm.cc: communicators coming and going, and the dump of their queues.
#include <algorithm>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/dump.h"
#include "pml/bfo/glue/entry.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/trace.h"

namespace bfo::glue {

int pml_add_comm(ompi_communicator_t* comm) {
  Module& module = *mca_pml_bfo_component.module;
  if (context_of(*comm) > module.table().pml_max_contextid) return OMPI_ERR_OUT_OF_RESOURCE;
  xfer::CommDesc<BtlPort> desc;
  desc.handle.comm = comm;
  desc.ctx = static_cast<uint16_t>(context_of(*comm));
  desc.my_rank = comm->c_my_rank;
  desc.size = comm->c_remote_group->grp_proc_count;  // of an intercommunicator: the other side
  desc.inter = OMPI_COMM_IS_INTER(comm);
  Comm* made = module.engine().comm_add(desc);
  if (made == nullptr) return OMPI_ERR_OUT_OF_RESOURCE;
  comm->c_pml_comm = static_cast<mca_pml_comm_t*>(static_cast<void*>(made));
  module.at_comm();
  return OMPI_SUCCESS;
}

int pml_del_comm(ompi_communicator_t* comm) {
  Module* module = mca_pml_bfo_component.module;
  if (module == nullptr || comm->c_pml_comm == nullptr) return OMPI_SUCCESS;
  module->engine().comm_del(static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm)));
  comm->c_pml_comm = nullptr;
  return OMPI_SUCCESS;
}

namespace {

void print_line(const char* line) {
  opal_output(0, "%s", line);
}

void dump_totals(Module& module) {
  const xfer::Counters& counters = module.engine().counters();
  DumpedProcess process;
  process.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  process.rails_lost = counters.rails_lost;
  process.suspicions = counters.suspicions;
  process.degradations = counters.degradations;
  process.fences = counters.fences;
  process.restarts = counters.restarts;
  process.peers_lost = counters.peers_lost;
  process.messages_resent = counters.messages_resent;
  process.bytes_resent = counters.bytes_resent;
  process.missing_ns = module.summary().missing_ns(module.port().now_ns());
  dump_process(process, print_line);
}

void dump_one_rail(const Rail& rail, uint64_t now_ns, int verbose) {
  const RailHandle& handle = rail.handle;
  bfo_rail_info_t info = {};
  char why[96] = "";
  char rate[96] = "";
  DumpedRail dumped;
  dumped.index = rail.index;
  dumped.device = handle.btl->btl_component->btl_version.mca_component_name;
  if (handle.failover != nullptr) {
    if (handle.failover->rail_info(handle.btl, handle.ep, &info) == OPAL_SUCCESS) {
      dumped.device = info.device;
      dumped.port = info.port;
      dumped.peer_port = info.peer_port;
      dumped.peer_alive = info.answers != 0;
    }
    dumped.never_ms = handle.failover->never_up(handle.btl, handle.ep, why, sizeof(why));
    dumped.never_why = why;
  }
  dumped.state = to_string(rail.state);
  dumped.epoch = rail.name.epoch;
  dumped.bytes_in_flight = rail.inflight_bytes;
  if (rail.degraded != nullptr) {
    dumped.degraded = rail.degraded->degraded();
    dumped.degraded_since_ns = rail.degraded->since_ns();
    dumped.mbits = rail.degraded->rate();
    dumped.mbits_of_others = rail.degraded->others();
  }
  const auto& choice = rail.peer->choice;
  if (choice.size() > 1 && choice.has(&rail)) {
    const auto e = choice.estimate_now(rail);
    describe_rate(rate, sizeof(rate), e.basis, e.cost.rate, e.cost.latency_ns);
  }
  dumped.rate = rate;
  dumped.rate_counts = choice.uneven();
  dumped.lost = rail.event;
  dumped.lost_open = rail.event_open;
  dump_rail(dumped, now_ns, print_line);
  if (handle.btl->btl_dump != nullptr) handle.btl->btl_dump(handle.btl, handle.ep, verbose);
}

void dump_one_peer(Module& module, const Peer& peer, int verbose) {
  const uint64_t now_ns = module.port().now_ns();
  const Engine::PeerLoad load = module.engine().peer_load(peer);
  DumpedPeer dumped;
  dumped.rails = peer.n_rails;
  dumped.up = peer.rails_up();
  dumped.failed = peer.standing.failed();
  dumped.finalized = peer.standing.finalized();
  if (peer.standing.unreachable())
    dumped.unreachable_ns = std::max<uint64_t>(now_ns - peer.standing.unreachable_since_ns(), 1);
  dumped.ready_sends = load.ready_sends;
  dumped.ready_receives = load.ready_recvs;
  dumped.rendezvous_sends = load.live_sends;
  dumped.rendezvous_receives = load.live_recvs;
  dumped.stored = load.stored;
  dumped.stalled = load.stalled;
  dumped.unknown_held = peer.unknown_held;
  dump_peer(dumped, print_line);
  for (unsigned r = 0; r < peer.n_rails; ++r) dump_one_rail(peer.rails[r], now_ns, verbose);
}

}  // namespace

int pml_dump(ompi_communicator_t* comm, int verbose) {
  Module& module = *mca_pml_bfo_component.module;
  Comm* c = static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm));
  const Engine::QueueLengths any = module.engine().queue_lengths(c, xfer::kAnySource);
  dump_totals(module);
  opal_output(0, "pml bfo: communicator %s ctx %u rank %d of %d: %u posted for any source, %u unexpected",
              comm->c_name, static_cast<unsigned>(c->ctx), c->my_rank, c->size, any.posted, any.unexpected);
  for (int i = 0; i < c->size; ++i) {
    const auto* proc = c->procs[i];
    if (proc == nullptr) continue;
    const Engine::QueueLengths queues = module.engine().queue_lengths(c, i);
    opal_output(0, "  rank %d: next %u, expected %u, %u posted, %u unexpected", i,
                static_cast<unsigned>(proc->next_seq), static_cast<unsigned>(proc->expected), queues.posted,
                queues.unexpected);
    if (proc->peer != nullptr) dump_one_peer(module, *proc->peer, verbose);
  }
  return OMPI_SUCCESS;
}

}  // namespace bfo::glue
