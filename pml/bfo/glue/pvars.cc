// SPDX-License-Identifier: BSD-3-Clause
//
// pvars.cc: reads the engine's counters and queues for MPI_T. Counters are read without the engine's lock:
// each is one aligned word, and a tool may see it a moment late. The bytes of each rail are the BTL's own
// count.
#include "pml/bfo/glue/pvars.h"

#include <algorithm>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {
namespace {

struct Total {
  const char* name;
  uint64_t xfer::Counters::*value;
  const char* help;
};

constexpr Total kTotals[] = {
    {"failovers", &xfer::Counters::rails_lost, "Number of times a rail to a peer was lost"},
    {"suspicions", &xfer::Counters::suspicions,
     "Number of times work on a rail stood still for longer than is usual, so that another one was "
     "preferred"},
    {"degradations", &xfer::Counters::degradations,
     "Number of times a rail was found to move much less than it should, for longer than "
     "pml_bfo_degraded_time"},
    {"bytes_sent", &xfer::Counters::bytes_sent,
     "Application bytes handed to rails to be sent or written, those sent again included"},
    {"bytes_read", &xfer::Counters::bytes_read,
     "Application bytes read over rails by receivers, those read again included"},
    {"bytes_resent", &xfer::Counters::bytes_resent,
     "Application bytes that were sent or read again after a failure, counted when they go; the lines of "
     "pml_bfo_event_file have those that went before the line was written, each byte in one line"},
    {"messages_resent", &xfer::Counters::messages_resent,
     "First fragments that were sent again after a failure, counted when they go"},
    {"duplicates_dropped", &xfer::Counters::duplicates, "Messages dropped because they had arrived before"},
    {"stale_dropped", &xfer::Counters::stale,
     "Messages dropped because they came too late: of a transfer that was restarted or finished since, of a "
     "connection that was closed, or an answer about the window to a question that is not open any more"},
    {"malformed_dropped", &xfer::Counters::malformed, "Messages dropped because their header made no sense"},
    {"unknown_dropped", &xfer::Counters::unknown_pushed_out,
     "Messages for communicators that this process has not made that were dropped for newer ones: they came "
     "over "
     "BTLs that do not name their sender, which together had reached pml_bfo_unknown_limit"},
    {"restarts", &xfer::Counters::restarts, "Transfers that went through the restart dance"},
    {"fences", &xfer::Counters::fences, "Connections closed to keep late accesses out"},
    {"peers_lost", &xfer::Counters::peers_lost, "Peers given up after pml_bfo_park_timeout"},
};

int read_total(const mca_base_pvar_t* pvar, void* value, void*) {
  const auto* total = static_cast<const Total*>(pvar->ctx);
  const Module* module = mca_pml_bfo_component.module;
  *static_cast<unsigned long long*>(value) =
      module == nullptr ? 0 : const_cast<Module*>(module)->engine().counters().*total->value;
  return OMPI_SUCCESS;
}

int read_protocol(const mca_base_pvar_t*, void* value, void*) {
  const Module* module = mca_pml_bfo_component.module;
  *static_cast<unsigned long long*>(value) =
      module == nullptr ? 0 : const_cast<Module*>(module)->engine().counters().bytes_protocol();
  return OMPI_SUCCESS;
}

// Always the same number of values: a handle may be older than the rails.
int rail_notify(mca_base_pvar_t*, mca_base_pvar_event_t event, void*, int* count) {
  if (event == MCA_BASE_PVAR_HANDLE_BIND) *count = static_cast<int>(xfer::kMaxRails);
  return OMPI_SUCCESS;
}

int read_rails(const mca_base_pvar_t*, void* value, void*) {
  auto* out = static_cast<unsigned long long*>(value);
  const Module* module = mca_pml_bfo_component.module;
  if (module != nullptr) {
    module->rail_bytes(out, xfer::kMaxRails);
  } else {
    std::fill_n(out, xfer::kMaxRails, 0ull);
  }
  return OMPI_SUCCESS;
}

int read_rates(const mca_base_pvar_t*, void* value, void*) {
  auto* out = static_cast<unsigned long long*>(value);
  Module* module = mca_pml_bfo_component.module;
  if (module != nullptr) {
    module->port_rates(out, xfer::kMaxRails);
  } else {
    std::fill_n(out, xfer::kMaxRails, 0ull);
  }
  return OMPI_SUCCESS;
}

int read_rails_up(const mca_base_pvar_t*, void* value, void*) {
  *static_cast<unsigned*>(value) = mca_pml_bfo_component.module == nullptr ? 0 : host_ports().up;
  return OMPI_SUCCESS;
}

int read_rails_degraded(const mca_base_pvar_t*, void* value, void*) {
  const Module* module = mca_pml_bfo_component.module;
  *static_cast<unsigned*>(value) =
      module == nullptr
          ? 0
          : static_cast<unsigned>(const_cast<Module*>(module)->engine().counters().rails_degraded);
  return OMPI_SUCCESS;
}

int read_rails_expected(const mca_base_pvar_t*, void* value, void*) {
  *static_cast<unsigned*>(value) = mca_pml_bfo_component.module == nullptr ? 0 : host_ports().expected;
  return OMPI_SUCCESS;
}

Comm* comm_of(void* object) {
  return static_cast<Comm*>(static_cast<void*>(static_cast<ompi_communicator_t*>(object)->c_pml_comm));
}

// One value per rank of the communicator.
int comm_notify(mca_base_pvar_t*, mca_base_pvar_event_t event, void* object, int* count) {
  if (event == MCA_BASE_PVAR_HANDLE_BIND) {
    *count = comm_of(object)->size;
  }
  return OMPI_SUCCESS;
}

// Fills one value per rank of the communicator `object`.
int read_queues(void* value, void* object, uint32_t Engine::QueueLengths::*which) {
  Module* module = mca_pml_bfo_component.module;
  Comm* comm = comm_of(object);
  auto* out = static_cast<unsigned*>(value);
  for (int i = 0; i < comm->size; ++i) {
    out[i] = module == nullptr ? 0 : module->engine().queue_lengths(comm, i).*which;
  }
  return OMPI_SUCCESS;
}

int read_unexpected(const mca_base_pvar_t*, void* value, void* object) {
  return read_queues(value, object, &Engine::QueueLengths::unexpected);
}

int read_posted(const mca_base_pvar_t*, void* value, void* object) {
  return read_queues(value, object, &Engine::QueueLengths::posted);
}

}  // namespace

void register_pvars(const mca_base_component_t* component) {
  constexpr auto flags =
      static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);
  mca_base_component_pvar_register(
      component, "unexpected_msgq_length",
      "Messages received by each peer of a communicator that no receive has matched", OPAL_INFO_LVL_4,
      MPI_T_PVAR_CLASS_SIZE, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, MPI_T_BIND_MPI_COMM,
      MCA_BASE_PVAR_FLAG_READONLY, read_unexpected, nullptr, comm_notify, nullptr);
  mca_base_component_pvar_register(
      component, "posted_recvq_length",
      "Receives posted for each peer of a communicator that no message has matched", OPAL_INFO_LVL_4,
      MPI_T_PVAR_CLASS_SIZE, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, MPI_T_BIND_MPI_COMM,
      MCA_BASE_PVAR_FLAG_READONLY, read_posted, nullptr, comm_notify, nullptr);
  mca_base_component_pvar_register(component, "bytes_protocol",
                                   "Bytes of headers and control messages handed to rails", OPAL_INFO_LVL_3,
                                   MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
                                   MPI_T_BIND_NO_OBJECT, flags, read_protocol, nullptr, nullptr, nullptr);
  mca_base_component_pvar_register(
      component, "rail_bytes",
      "Bytes that each port of a failover BTL was given, headers and READs included: one value per port",
      OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
      MPI_T_BIND_NO_OBJECT, flags, read_rails, nullptr, rail_notify, nullptr);
  mca_base_component_pvar_register(component, "rail_rate",
                                   "Mbit/s that each port of a failover BTL was last measured to move, to "
                                   "the peer that it moves most to; 0 "
                                   "while nothing had to be measured: one value per port",
                                   OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_LEVEL,
                                   MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MPI_T_BIND_NO_OBJECT, flags,
                                   read_rates, nullptr, rail_notify, nullptr);
  mca_base_component_pvar_register(component, "rails_up", "Ports of this process that are up now as rails",
                                   OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_UNSIGNED_INT,
                                   nullptr, MPI_T_BIND_NO_OBJECT, flags, read_rails_up, nullptr, nullptr,
                                   nullptr);
  mca_base_component_pvar_register(
      component, "rails_expected",
      "Ports of this process that are rails, or would be if they were up: fewer than 2 do not survive a loss",
      OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, MPI_T_BIND_NO_OBJECT,
      flags, read_rails_expected, nullptr, nullptr, nullptr);
  mca_base_component_pvar_register(
      component, "rails_degraded",
      "Rails that move much less than they should now, one for each peer and port", OPAL_INFO_LVL_3,
      MPI_T_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, MPI_T_BIND_NO_OBJECT, flags,
      read_rails_degraded, nullptr, nullptr, nullptr);
  for (const Total& total : kTotals) {
    mca_base_component_pvar_register(component, total.name, total.help, OPAL_INFO_LVL_3,
                                     MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
                                     MPI_T_BIND_NO_OBJECT, flags, read_total, nullptr, nullptr,
                                     const_cast<Total*>(&total));
  }
}

}  // namespace bfo::glue
