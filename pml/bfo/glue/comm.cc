// SPDX-License-Identifier: BSD-3-Clause
//
// comm.cc: communicators coming and going, and the dump of their queues.
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/entry.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {

int pml_add_comm(ompi_communicator_t* comm) {
  Module& module = *mca_pml_bfo_component.module;
  if (comm->c_contextid > module.table().pml_max_contextid) return OMPI_ERR_OUT_OF_RESOURCE;
  xfer::CommDesc<BtlPort> desc;
  desc.handle.comm = comm;
  desc.ctx = static_cast<uint16_t>(comm->c_contextid);
  desc.my_rank = comm->c_my_rank;
  desc.size = comm->c_remote_group->grp_proc_count;  // of an intercommunicator: the other side
  desc.inter = OMPI_COMM_IS_INTER(comm);
  Comm* made = module.engine().comm_add(desc);
  if (made == nullptr) return OMPI_ERR_OUT_OF_RESOURCE;
  comm->c_pml_comm = static_cast<mca_pml_comm_t*>(static_cast<void*>(made));
  return OMPI_SUCCESS;
}

int pml_del_comm(ompi_communicator_t* comm) {
  Module* module = mca_pml_bfo_component.module;
  if (module == nullptr || comm->c_pml_comm == nullptr) return OMPI_SUCCESS;
  module->engine().comm_del(static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm)));
  comm->c_pml_comm = nullptr;
  return OMPI_SUCCESS;
}

int pml_dump(ompi_communicator_t* comm, int verbose) {
  Comm* c = static_cast<Comm*>(static_cast<void*>(comm->c_pml_comm));
  Engine& engine = mca_pml_bfo_component.module->engine();
  const Engine::QueueLengths any = engine.queue_lengths(c, xfer::kAnySource);
  opal_output(0, "pml bfo: communicator %s ctx %u rank %d of %d: %u posted for any source, %u unexpected",
              comm->c_name, static_cast<unsigned>(c->ctx), c->my_rank, c->size, any.posted, any.unexpected);
  for (int i = 0; i < c->size; ++i) {
    const auto* proc = c->procs[i];
    if (proc == nullptr) continue;
    const Engine::QueueLengths queues = engine.queue_lengths(c, i);
    opal_output(0, "  rank %d: next %u, expected %u, %u posted, %u unexpected, %u rails", i,
                static_cast<unsigned>(proc->next_seq), static_cast<unsigned>(proc->expected), queues.posted,
                queues.unexpected, proc->peer != nullptr ? proc->peer->n_rails : 0u);
    if (proc->peer == nullptr) continue;
    for (unsigned r = 0; r < proc->peer->n_rails; ++r) {
      const Rail& rail = proc->peer->rails[r];
      opal_output(0, "    rail %u: %s %s epoch %u, %lu bytes in flight", r,
                  rail.handle.btl->btl_component->btl_version.mca_component_name, to_string(rail.state),
                  rail.name.epoch, static_cast<unsigned long>(rail.inflight_bytes));
      if (rail.handle.btl->btl_dump != nullptr)
        rail.handle.btl->btl_dump(rail.handle.btl, rail.handle.ep, verbose);
    }
  }
  return OMPI_SUCCESS;
}

}  // namespace bfo::glue
