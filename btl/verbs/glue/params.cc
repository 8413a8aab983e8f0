// SPDX-License-Identifier: BSD-3-Clause
//
// params.cc: the parameters btl_verbs_*: name, default, range, level and help in one table.
#include "btl/verbs/glue/component.h"
#include "common/help_text.h"
#include "common/version.h"
#include "common/compat/given_text.h"

namespace bfo::verbs {
namespace {

struct UnsignedParam {
  const char* name;
  unsigned Params::*value;
  unsigned fallback;
  unsigned low;
  unsigned high;
  mca_base_var_info_lvl_t level;
  const char* help;
};

constexpr UnsignedParam kUnsigned[] = {
    {"send_queue_depth", &Params::send_queue_depth, 128, 16, 16384, OPAL_INFO_LVL_5,
     "Work requests that may be outstanding per connection; a power of two. Each takes slot_size bytes of "
     "registered memory"},
    {"receive_queue_depth", &Params::receive_queue_depth, 512, 16, 32768, OPAL_INFO_LVL_5,
     "Most receive buffers of max_send_size bytes, shared by all connections of a port. 2 MiB of them are "
     "made at first, more when they run short"},
    {"cq_size", &Params::cq_size, 8192, 256, 4194304, OPAL_INFO_LVL_9,
     "Wished entries of a completion queue. A further queue is made whenever more work could complete than "
     "fits, so none can overrun"},
    {"slot_size", &Params::slot_size, 512, 64, 65536, OPAL_INFO_LVL_9,
     "Largest message in bytes, header included, that is kept in its send queue slot until a completion "
     "covers it"},
    {"signal_interval", &Params::signal_interval, 64, 1, 8192, OPAL_INFO_LVL_9,
     "One in so many small messages asks for a completion. At most half of send_queue_depth"},
    {"poll_gap", &Params::poll_gap, 0, 0, 5000, OPAL_INFO_LVL_6,
     "Nanoseconds that a completion queue is left alone after each poll while short messages arrive one "
     "after another: polling without a pause slows down a processor that writes its entries, as that of the "
     "software HCA does (0: never)"},
    {"max_inline", &Params::max_inline, 128, 0, 1024, OPAL_INFO_LVL_5,
     "Messages up to this many bytes are copied into the work request. Lowered to what the device can"},
    {"free_list_max", &Params::free_list_max, 0, 0, 1u << 30, OPAL_INFO_LVL_9,
     "Largest number of send fragments of each size (0: no limit; 1 counts as 2)"},
    {"ib_timeout", &Params::ib_timeout, 0, 0, 31, OPAL_INFO_LVL_3,
     "Transport timeout: 4.096 us * 2^value. 0: 14 (67 ms) with pml bfo, so that a dead path is reported "
     "after 0.5 s with ib_retry_count 7, if nothing else reports it earlier; 20 (4.3 s) with other PMLs, for "
     "which a lost path is the end of the job: a fabric that reroutes is quiet for seconds"},
    {"ib_retry_count", &Params::ib_retry_count, 7, 0, 7, OPAL_INFO_LVL_3,
     "How often a packet without acknowledgement is sent again before the connection fails"},
    {"ib_rnr_retry", &Params::ib_rnr_retry, 7, 0, 7, OPAL_INFO_LVL_5,
     "How often a message is sent again to a peer without a free receive buffer; 7 is for ever, because a "
     "busy peer is not a dead peer"},
    {"ib_min_rnr_timer", &Params::ib_min_rnr_timer, 4, 0, 31, OPAL_INFO_LVL_9,
     "Code of the time a sender waits when this process has no free receive buffer (4: 0.04 ms; 0 is the "
     "longest, 655 ms)"},
    {"ib_pkey_index", &Params::ib_pkey_index, 0, 0, 65535, OPAL_INFO_LVL_9,
     "Index into the port's partition key table, where btl_verbs_ib_pkey is not given"},
    {"max_btls", &Params::max_btls, 8, 0, 64, OPAL_INFO_LVL_4,
     "Ports used at most, near ones first (0: no bound)"},
    {"max_lmc", &Params::max_lmc, 7, 0, 7, OPAL_INFO_LVL_5,
     "Of an InfiniBand port with several LIDs (LID mask control, LMC) 2^value at most are used. They are "
     "paths through the fabric: connections are spread over them, and one that broke comes up again over the "
     "next (0: the first LID only)"},
    {"control_threads", &Params::control_threads, 12, 1, 64, OPAL_INFO_LVL_5,
     "Threads at most, for each port, that call the verbs which may take seconds (queue pairs, address "
     "handles, memory). They are started when there is work, and all but one end after half a second without "
     "any. With 7 or more a verb that does not return holds up none of another kind; no number lets one port "
     "hold up another"},
    {"ib_max_rdma_dst_ops", &Params::ib_max_rdma_dst_ops, 4, 1, 255, OPAL_INFO_LVL_9,
     "RDMA reads outstanding per connection and direction; lowered to what the device can"},
    {"suspect_time", &Params::suspect_time, 10, 0, 60000, OPAL_INFO_LVL_4,
     "Milliseconds without any completion, while work is outstanding, after which a rail is suspected and "
     "another one preferred; longer where silence is usual. Path and peer are asked after half of them (0: "
     "never). The rail ends when the peer answers over other rails only, or the device reports an error. "
     "Needs pml bfo"},
    {"loss_threshold", &Params::loss_threshold, 1000, 0, 1000000, OPAL_INFO_LVL_3,
     "Lost packets for a million, by the counters of a port in /sys/class/infiniband, that are told: in a "
     "line, in the event file and in the summary, after three seconds of traffic. Nothing else changes (0: "
     "never). Needs pml bfo"},
    {"probe_timeout", &Params::probe_timeout, 8, 1, 31, OPAL_INFO_LVL_9,
     "ib_timeout of the probe queue pair (8: 1 ms, so a dead path fails its probe, sent five times, after "
     "about 5 ms)"},
    {"connect_timeout", &Params::connect_timeout, 1000, 1, 3600000, OPAL_INFO_LVL_5,
     "Milliseconds that messages wait for a connection that has never been up before the peer's other rails "
     "are tried and, when one of those is up, used instead; up to 16 times longer where this process waits "
     "for a processor. A silent peer is given up after peer_timeout only"},
    {"peer_timeout", &Params::peer_timeout, 10000, 0, 3600000, OPAL_INFO_LVL_4,
     "Milliseconds without any sign of life from a peer, while a connection to it is being made, after which "
     "it counts as unreachable: then the first messages to it move to its other rails, and fail when there "
     "are none. A peer that computes outside MPI shows life all the time; one that is stopped (by a "
     "debugger) does not (0: wait for ever)"},
    {"reconnect_min", &Params::reconnect_min, 1000, 100, 10000000, OPAL_INFO_LVL_9,
     "Microseconds before the first repetition of a handshake or reconnection; doubled each time, with "
     "jitter"},
    {"reconnect_max", &Params::reconnect_max, 256, 1, 600000, OPAL_INFO_LVL_9,
     "Milliseconds at most between repetitions"},
    {"drain_timeout", &Params::drain_timeout, 50, 1, 60000, OPAL_INFO_LVL_9,
     "Milliseconds to wait for a failed queue pair to give its work back before it is destroyed with the "
     "work on it"},
};

void check_range(const UnsignedParam& param, unsigned value) {
  if (value >= param.low && value <= param.high) return;
  char why[160];
  snprintf(why, sizeof why, "is %u; allowed are %u to %u", value, param.low, param.high);
  refuse_parameter(param.name, why);
}

int register_bool(Component& component, const char* name, const char* help, mca_base_var_info_lvl_t level,
                  bool fallback, bool* storage) {
  *storage = fallback;
  return mca_base_component_var_register(&component.super.btl_version, name, help, MCA_BASE_VAR_TYPE_BOOL,
                                         nullptr, 0, static_cast<mca_base_var_flag_t>(0), level,
                                         MCA_BASE_VAR_SCOPE_READONLY, storage);
}

}  // namespace

void refuse_parameter(const char* name, const char* why) {
  // The ranks of a host usually have the same, and mpirun ends the others when the first one has spoken. No
  // claim of who speaks: each that has another value says its own.
  constexpr unsigned kFirstSpeaksSeconds = 2;
  if (opal_process_info.my_local_rank != 0) sleep(kFirstSpeaksSeconds);
  say(false, "wrong-parameter", name, why);
  fflush(stdout);
  _exit(1);
}

int register_string(Component& component, const char* name, const char* help, mca_base_var_info_lvl_t level,
                    const char* fallback, char** storage) {
  *storage = const_cast<char*>(fallback);
  return mca_base_component_var_register(&component.super.btl_version, name, help, MCA_BASE_VAR_TYPE_STRING,
                                         nullptr, 0, static_cast<mca_base_var_flag_t>(0), level,
                                         MCA_BASE_VAR_SCOPE_READONLY, storage);
}

int register_params(Component& component, mca_btl_base_module_t* defaults) {
  Params& params = component.params;
  for (const UnsignedParam& param : kUnsigned) {
    unsigned* storage = &(params.*param.value);
    *storage = param.fallback;
    const int rc = registered(mca_base_component_var_register(
        &component.super.btl_version, param.name, param.help, MCA_BASE_VAR_TYPE_UNSIGNED_INT, nullptr, 0,
        static_cast<mca_base_var_flag_t>(0), param.level, MCA_BASE_VAR_SCOPE_READONLY, storage));
    if (rc < 0) return rc;
  }
  register_string(component, "if_include",
                  "Comma-delimited devices or device:port pairs to use (e.g. mlx5_0,mlx5_1:1); empty: all "
                  "that are ACTIVE. With pml bfo also those that are down and had a link before, and what is "
                  "named here in any case: the rail joins when the port comes up",
                  OPAL_INFO_LVL_1, "", &params.if_include);
  register_string(component, "if_exclude",
                  "Comma-delimited devices or device:port pairs not to use; not together with if_include",
                  OPAL_INFO_LVL_1, "", &params.if_exclude);
  register_string(component, "rcache", "Registration cache component", OPAL_INFO_LVL_9, "grdma",
                  &params.rcache);
  params.version = const_cast<char*>(kBuild);
  mca_base_component_var_register(&component.super.btl_version, "version",
                                  "Version of this build; it cannot be changed", MCA_BASE_VAR_TYPE_STRING,
                                  nullptr, 0, MCA_BASE_VAR_FLAG_DEFAULT_ONLY, OPAL_INFO_LVL_1,
                                  MCA_BASE_VAR_SCOPE_READONLY, &params.version);
  params.verbose = 0;
  mca_base_component_var_register(&component.super.btl_version, "verbose",
                                  "Verbosity: 0 = silent, 1 = which ports are used or left out and why, 10 = "
                                  "also each change of a rail (up, suspect, down, closed, back), 20 = also "
                                  "each message that is dropped or put off, with the reason, 30 = also each "
                                  "message of a connection (SOLICIT, REQ, REP, READY, REFUSE, BYE, PING, "
                                  "QUESTION ...) that is sent or received",
                                  MCA_BASE_VAR_TYPE_INT, nullptr, 0, static_cast<mca_base_var_flag_t>(0),
                                  OPAL_INFO_LVL_8, MCA_BASE_VAR_SCOPE_READONLY, &params.verbose);
  register_bool(component, "ignore_locality",
                "Use ports whatever their distance from the processors a process is bound to. Else, of the "
                "ports of one fabric, the nearest are used, and with pml bfo a second one wherever it is. "
                "Ports named in btl_verbs_if_include are used anyway",
                OPAL_INFO_LVL_5, false, &params.ignore_locality);
  register_bool(component, "ib_path_record_service_level",
                "Ask the subnet administrator (SA) for the InfiniBand service level of each path before a "
                "connection is made over it, as fabrics need whose routing is free of deadlocks only with it "
                "(DFSSSP, torus-2QoS). While it has no answer to give, btl_verbs_ib_service_level is used",
                OPAL_INFO_LVL_5, false, &params.path_service_level);
  register_bool(component, "relaxed_ordering",
                "Let the device write received data to memory in any order, where it can: faster on some "
                "hosts, and safe, since nothing looks at the data before its completion",
                OPAL_INFO_LVL_9, true, &params.relaxed_ordering);
  params.want_fork_support = -1;
  mca_base_component_var_register(
      &component.super.btl_version, "want_fork_support",
      "Keep registered memory with this process when it forks: -1 where the kernel needs help for it and the "
      "library gives it, 0 never, 1 always, or this component is not used",
      MCA_BASE_VAR_TYPE_INT, nullptr, 0, static_cast<mca_base_var_flag_t>(0), OPAL_INFO_LVL_5,
      MCA_BASE_VAR_SCOPE_READONLY, &params.want_fork_support);
  if (const int rc = register_port_params(component); rc < 0) return rc;
  return mca_btl_base_param_register(&component.super.btl_version, defaults);
}

void check_params(const Component& component, const mca_btl_base_module_t& defaults) {
  const Params& params = component.params;
  std::string misread;
  if (const std::string name = first_misread("opal", "btl", "verbs", &misread); !name.empty()) {
    refuse_parameter(name.c_str() + strlen("btl_verbs_"), misread.c_str());
  }
  for (const UnsignedParam& param : kUnsigned) {
    check_range(param, params.*param.value);
  }
  if ((params.send_queue_depth & (params.send_queue_depth - 1)) != 0) {
    refuse_parameter("send_queue_depth", "is not a power of two");
  }
  if (params.signal_interval > params.send_queue_depth / 2) {
    refuse_parameter("signal_interval", "is more than half of btl_verbs_send_queue_depth");
  }
  if (params.if_include != nullptr && *params.if_include != '\0' && params.if_exclude != nullptr &&
      *params.if_exclude != '\0') {
    refuse_parameter("if_exclude", "cannot be given together with btl_verbs_if_include");
  }
  constexpr size_t kLongest = 4096;
  for (const auto& [name, list] : {std::pair{"if_include", params.if_include},
                                   {"if_exclude", params.if_exclude},
                                   {"gid_index", params.gid_index},
                                   {"ib_pkey", params.ib_pkey},
                                   {"ib_service_level", params.ib_service_level},
                                   {"ib_traffic_class", params.ib_traffic_class}}) {
    if (list != nullptr && strlen(list) > kLongest) refuse_parameter(name, "is longer than 4096 bytes");
  }
  constexpr size_t kLargest = size_t{1} << 24;
  if (defaults.btl_eager_limit < 256 || defaults.btl_eager_limit > defaults.btl_max_send_size) {
    refuse_parameter("eager_limit", "must be at least 256 and not larger than btl_verbs_max_send_size");
  }
  if (defaults.btl_rndv_eager_limit > defaults.btl_max_send_size) {
    refuse_parameter("rndv_eager_limit", "must not be larger than btl_verbs_max_send_size");
  }
  if (defaults.btl_max_send_size > kLargest) {
    refuse_parameter(
        "max_send_size",
        "must not be larger than 16777216: receive_queue_depth buffers of that size are registered");
  }
  if (params.want_fork_support < -1 || params.want_fork_support > 1) {
    char why[80];
    snprintf(why, sizeof why, "is %d; allowed are -1, 0 and 1", params.want_fork_support);
    refuse_parameter("want_fork_support", why);
  }
  check_port_params(params);
}

engine::Config make_config(const Component& component, const mca_btl_base_module_t& defaults) {
  const Params& params = component.params;
  engine::Config config;
  const opal_process_name_t name = OPAL_PROC_MY_NAME;
  config.own_name = uint64_t{name.jobid} << 32 | name.vpid;
  config.send_depth = params.send_queue_depth;
  config.slot_bytes = (params.slot_size + 63) / 64 * 64;
  config.receive_depth = params.receive_queue_depth;
  config.receive_bytes = static_cast<uint32_t>(defaults.btl_max_send_size);
  config.signal_interval = params.signal_interval;
  config.inline_bytes = params.max_inline;
  config.cq_entries = params.cq_size;
  config.probe_timeout = static_cast<uint8_t>(params.probe_timeout);
  config.loss_threshold = params.loss_threshold;
  config.suspect_ns = uint64_t{params.suspect_time} * 1'000'000;
  config.connect_timeout_ns = uint64_t{params.connect_timeout} * 1'000'000;
  config.peer_timeout_ns = uint64_t{params.peer_timeout} * 1'000'000;
  config.retry_min_ns = uint64_t{params.reconnect_min} * 1000;
  config.retry_max_ns = uint64_t{params.reconnect_max} * 1'000'000;
  config.poll_gap_ns = params.poll_gap;
  config.marker_bound_ns = uint64_t{params.drain_timeout} * 1'000'000;
  config.threads = component.threads;
  config.max_lmc = static_cast<uint8_t>(params.max_lmc);
  config.path_service_level = params.path_service_level;
  config.control = engine::ControlMode::kThread;
  config.control_threads = params.control_threads;
  constexpr unsigned kLosable = 14;
  constexpr unsigned kFinal = 20;
  const unsigned timeout = params.ib_timeout != 0    ? params.ib_timeout
                           : component.wish.failover ? kLosable
                                                     : kFinal;
  config.qp.timeout = static_cast<uint8_t>(timeout);
  config.qp.retry_count = static_cast<uint8_t>(params.ib_retry_count);
  config.qp.rnr_retry = static_cast<uint8_t>(params.ib_rnr_retry);
  config.qp.min_rnr_timer = static_cast<uint8_t>(params.ib_min_rnr_timer);
  config.qp.max_read = static_cast<uint8_t>(params.ib_max_rdma_dst_ops);
  return config;
}

bool first_to_say(const char* text) {
  return mca_btl_verbs_component.claims.take_once(claim_key(text), opal_process_info.my_local_rank == 0);
}

void say(bool once_per_node, const char* topic, ...) {
  va_list arguments;
  va_start(arguments, topic);
  const std::string text = help_text(help_path("help-mpi-btl-verbs.txt"), topic, arguments);
  va_end(arguments);
  if (once_per_node && !first_to_say(text.c_str())) return;
  fputs(text.c_str(), stderr);
  fflush(stderr);
}

}  // namespace bfo::verbs
