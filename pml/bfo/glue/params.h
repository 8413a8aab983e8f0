// SPDX-License-Identifier: BSD-3-Clause
//
// params.h: the MCA parameters of the component (pml_bfo_*), their ranges and their registration.
#pragma once

#include "common/compat/ompi_includes.h"
#include "pml/bfo/glue/weights.h"

namespace bfo::glue {

/// Values as the user set them. Registered with Open MPI by address, hence plain C types; read-only after
/// component open.
struct Params {
  int verbose;  ///< 0 = silent, 10 = rails, 20 = dropped headers, 30 = every restart message, 40 = every plan
  int priority;              ///< PML selection; only looked at when `--mca pml` names several
  int free_list_num;         ///< requests preallocated
  int free_list_max;         ///< -1 = no limit
  int free_list_inc;         ///< growth step
  int send_pipeline_depth;   ///< FRAGs in flight per request
  int recv_pipeline_depth;   ///< READs or PUT grants in flight per request and rail
  int max_rdma_per_request;  ///< rails of a peer used for RDMA
  int max_send_per_range;    ///< rails of a peer used at all
  int unexpected_limit;      ///< bytes of an unexpected message kept inside its record
  int unknown_limit;         ///< MiB kept of a peer for communicators that this process has not made yet
  char* allocator;           ///< allocator component for larger unexpected messages
  int rdma_threshold;        ///< bytes; shorter messages are copied; 0 = each BTL's own
  int blocking_limit;      ///< bytes; a blocking send copies messages up to this size, see its help; 0 = the
                           ///< BTL's eager limit
  int short_limit;         ///< bytes; shorter messages to a peer all use one rail
  char* weights;           ///< "measured", "nominal" or a list: see weights.h
  bool use_get;            ///< receiver-side RDMA reads
  bool use_put;            ///< sender-side RDMA writes
  int buffer_wait;         ///< milliseconds MPI_Bsend waits for room that messages before it still hold
  int park_timeout;        ///< seconds without any rail before MPI reports an error; -1 = for ever
  int min_rails;           ///< a host with fewer rails up says so; 0 = never
  char* min_rails_action;  ///< "warn" or "abort": what then happens
  char* any_source_on_loss;  ///< "error" or "wait": what becomes of receives from any source
  bool summary;              ///< one line at the end of a job that was less than perfect
  char* version;             ///< of this build; nobody can set it
  char* event_file;          ///< one JSON line per failover or return of a rail is appended; empty = none
  char* event_dir;           ///< the same, to a file per host and job in this folder; empty = none
  int connect_wait;          ///< milliseconds long messages wait for rails at the first contact
  int degraded_time;         ///< milliseconds until a slow rail is called degraded; 0 = never
  int event_limit;           ///< MiB until the event file gets no further line; 0 = no limit
};

/// Registers all parameters with `component` and stores defaults or the user's values in `params`. Called
/// once from component register. Returns OPAL_SUCCESS or the first registration error.
int register_params(const mca_base_component_t* component, Params& params);

/// Checks that every value is what the user wrote, and its range. On the first violation prints one sentence
/// naming parameter, value and range, and returns false.
bool params_in_range(const Params& params);

/// What pml_bfo_weights means. For values that are in range.
GivenWeights given_weights(const Params& params);

/// A job with fewer rails than min_rails ends. For values that are in range.
bool min_rails_aborts(const Params& params);

/// Receives and probes from any source go on when a process is lost. For values that are in range.
bool any_source_waits(const Params& params);

}  // namespace bfo::glue
