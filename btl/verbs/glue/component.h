// SPDX-License-Identifier: BSD-3-Clause
//
// component.h: the BTL component "verbs" as Open MPI sees it: parameters, opened devices, modules.
#pragma once

#include "common/compat/ompi_includes.h"

#include <atomic>

#include "btl/verbs/engine/device/async.h"
#include "btl/verbs/engine/device/device.h"
#include "btl/verbs/engine/rail/patience.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/select/selection.h"
#include "btl/verbs/engine/select/shortfall.h"
#include "btl/verbs/glue/kept.h"
#include "common/claims.h"
#include "common/recursive_lock.h"

namespace bfo::verbs {

struct Module;

/// Parameter values, registered as btl_verbs_<name>. See params.cc for their meaning, ranges and help.
struct Params {
  char* version;  ///< of this build; nobody can set it
  char* if_include;
  char* if_exclude;
  char* rcache;
  char* gid_index;  ///< this and the next three: port_values.h
  char* ib_service_level;
  char* ib_traffic_class;
  char* ib_pkey;
  int verbose;
  unsigned send_queue_depth;
  unsigned receive_queue_depth;
  unsigned cq_size;
  unsigned slot_size;
  unsigned signal_interval;
  unsigned max_inline;
  unsigned free_list_max;
  unsigned ib_timeout;
  unsigned ib_retry_count;
  unsigned ib_rnr_retry;
  unsigned ib_min_rnr_timer;
  unsigned ib_pkey_index;
  unsigned max_btls;
  unsigned max_lmc;
  unsigned control_threads;
  unsigned ib_max_rdma_dst_ops;
  unsigned suspect_time;
  unsigned loss_threshold;
  unsigned probe_timeout;
  unsigned connect_timeout;
  unsigned peer_timeout;
  unsigned reconnect_min;
  unsigned reconnect_max;
  unsigned drain_timeout;
  unsigned poll_gap;
  bool ignore_locality;
  bool path_service_level;
  bool relaxed_ordering;
  int want_fork_support;
};

constexpr int kMaxModules = 64;

/// One opened HCA and the modules on it.
struct DeviceSlot {
  engine::Device device;
  mca_rcache_base_module_t* rcache;
  std::atomic<size_t> user_bytes;  ///< of the application, registered in the cache
  engine::Port* ports[kMaxModules];
  int port_count;
  int open_ports;  ///< not finalized yet
};

/// Who asked for this component.
struct Wish {
  bool named;     ///< by name in the btl list
  bool failover;  ///< by choosing the bfo PML, which goes on without a rail
  bool alone;     ///< by name, and no other BTL of the list reaches other hosts
};

/// The component. One instance, zero-initialised, without constructor or destructor: it lives as long as the
/// shared object.
struct Component {
  mca_btl_base_component_3_0_0_t super;
  Params params;
  Wish wish;
  engine::Shortfall shortfall;  ///< at the start of the process
  Module* modules[kMaxModules];
  engine::Port* ports[kMaxModules];  ///< of the modules, in the same order
  int module_count;
  DeviceSlot* devices[kMaxModules];
  int device_count;
  engine::EventThread* events;
  const bool* threads;                ///< may several threads call in? Open MPI may allow it later
  Claims claims;                      ///< what one process of a host says for all
  bool ever_bound;                    ///< by a PML that speaks common/failover_btl.h
  std::atomic<bool> registered_anew;  ///< memory was registered with a device since libraries were counted
  std::atomic<bool> blind;            ///< nothing says when memory is given back: no registration is kept
  std::atomic<uint64_t> libraries;    ///< memory_hooks.h: how many were loaded at the last look
  uint64_t stay_ns;                   ///< progress may go on for so long: engine::Host::comes_seldom
  engine::Patience patience;          ///< with handshakes that it stays for
  RecursiveLock progress_lock;        ///< a callback may add processes
  KeptMessages kept;                  ///< libmpi's own, without a rail: kept.cc
};

/// Prevents progress in other threads while the set of endpoints changes.
class ProgressPause {
 public:
  explicit ProgressPause(Component& component) : component_(component) {
    if (*component_.threads) component_.progress_lock.lock();
  }
  ~ProgressPause() {
    if (*component_.threads) component_.progress_lock.unlock();
  }
  ProgressPause(const ProgressPause&) = delete;
  ProgressPause& operator=(const ProgressPause&) = delete;

 private:
  Component& component_;
};

/// Registers all parameters. OPAL_SUCCESS or an OPAL error.
int register_params(Component& component, mca_btl_base_module_t* defaults);
/// The performance variables btl_verbs_dropped_*: datagrams dropped, by reason.
void register_drop_pvars(const Component& component);
/// Likewise for the outages of the ports.
void register_port_pvars(const Component& component);
/// Checks their ranges. False after printing one sentence that names the parameter, its value and the range.
void check_params(const Component& component, const mca_btl_base_module_t& defaults);
/// The parameters that may have another value for each port: registration, check as above, and the values for
/// the port that `facts` describe.
int register_port_params(Component& component);
void check_port_params(const Params& params);
void set_address(const Params& params, const engine::PortFacts& facts, engine::Config* config);
/// The performance variable btl_verbs_pinned.
void register_pvars(const Component& component);
/// Registers one text. `storage` keeps it.
int register_string(Component& component, const char* name, const char* help, mca_base_var_info_lvl_t level,
                    const char* fallback, char** storage);
/// Ends the process: a parameter has a value that means nothing, "btl_verbs_`name` `why`." A job that went on
/// over other BTLs would not be the one that was asked for.
[[noreturn]] void refuse_parameter(const char* name, const char* why);
/// Makes the memory of this process safe across fork(), as btl_verbs_want_fork_support says. Before any
/// device is opened. False after one sentence: it was asked for and is not available.
bool prepare_fork(const Params& params);
/// Copies them into an engine configuration.
engine::Config make_config(const Component& component, const mca_btl_base_module_t& defaults);
/// Reads it from the parameters "btl" and "pml", wherever they were given.
Wish read_wish();
/// Prints a text of help-mpi-btl-verbs.txt to stderr. Not by opal_show_help(): in 4.1 with an external PMIx
/// it loses messages ("Data unpack would read past end of buffer in show_help.c"), in 6.0 it has no texts but
/// Open MPI's own, and the text explains why the component is disabled or the job ends. `once_per_node`: of
/// the job's processes on this host, the first that has the same text to print does.
void say(bool once_per_node, const char* topic, ...);
/// True for the first process of the job on this host that would say `text`. Where nobody knows of the others
/// the first local rank has it.
bool first_to_say(const char* text);

}  // namespace bfo::verbs

extern "C" {
OPAL_DECLSPEC extern bfo::verbs::Component mca_btl_verbs_component;
}
