// SPDX-License-Identifier: BSD-3-Clause
//
// module.cc: making and finalizing a module.
#include "btl/verbs/glue/module.h"

#include "btl/verbs/engine/base/memory.h"

namespace bfo::verbs {
namespace {

/// A leaked fragment is an error of this component. It is printed.
void check_accounting(const Module& module, const bfo_accounting_t& accounting) {
  static const char* const kNames[BFO_KIND_COUNT] = {"send", "sendi", "put", "get", "control"};
  for (int kind = 0; kind < BFO_KIND_COUNT; ++kind) {
    const uint64_t ended = accounting.delivered[kind] + accounting.unknown[kind];
    if (accounting.posted[kind] == ended && accounting.accepted[kind] == ended + accounting.never_sent[kind])
      continue;
    opal_output(0,
                "btl/verbs: books of %s do not balance for %s: accepted %lu posted %lu delivered %lu unknown "
                "%lu never sent %lu",
                module.port.device().name(), kNames[kind], accounting.accepted[kind], accounting.posted[kind],
                accounting.delivered[kind], accounting.unknown[kind], accounting.never_sent[kind]);
#if BFO_DEBUG
    abort();
#endif
  }
}

int finalize(mca_btl_base_module_t* btl) {
  const ProgressPause pause(mca_btl_verbs_component);
  Module* module = module_of(btl);
  Component& component = mca_btl_verbs_component;
  DeviceSlot& device = *module->device;
  // The PML's code may be unmapped already: there are no callbacks from here on.
  module->port.stop_callbacks();
  module->bound = false;
  while (module->port.endpoints() != nullptr) {
    engine::Endpoint* endpoint = module->port.endpoints();
    module->port.remove(*endpoint);
    engine::unmake(endpoint_of(*endpoint));
  }
  check_accounting(*module, module->port.accounting());
  if (component.events != nullptr) component.events->forget(module->port.heartbeat());
  module->port.close();
  for (int i = 0; i < component.module_count; ++i) {
    if (component.modules[i] != module) continue;
    component.modules[i] = component.modules[--component.module_count];
    component.ports[i] = component.ports[component.module_count];
  }
  for (int i = 0; i < device.port_count; ++i) {
    if (device.ports[i] == &module->port) device.ports[i] = device.ports[--device.port_count];
  }
  if (--device.open_ports == 0) {
    // The event thread reads every device's descriptor: it ends before the first of them closes. Later events
    // are of no interest any more.
    if (component.events != nullptr) component.events->stop();
    rcache_close(device);
    device.device.close();
  }
  pools_close(*module);
  engine::unmake(module);
  return OPAL_SUCCESS;
}

void dump(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, int) {
  Module& module = *module_of(btl);
  const engine::Outages& outages = module.port.outages();
  opal_output(0, "btl/verbs: %s:%u %u Mbit/s, lost %lu times, down for %lu ms", module.port.device().name(),
              module.port.number(), module.port.rate().mbit, outages.losses(),
              outages.down_ns(engine::system_environment().now_ns()) / 1'000'000);
  for (engine::Endpoint* rail = module.port.endpoints(); rail != nullptr; rail = rail->next) {
    if (endpoint != nullptr && endpoint_of(*rail) != endpoint) continue;
    opal_output(0, "btl/verbs: %s:%u rank %u %s epoch %u posted %lu covered %lu parked %zu received %lu",
                module.port.device().name(), module.port.number(), static_cast<unsigned>(rail->peer.name),
                engine::phase_name(rail->phase), rail->epoch, rail->ring().head, rail->ring().tail,
                rail->queued.size(), rail->delivered);
  }
}

}  // namespace

void say_guessed_rate(Module& module) {
  const engine::PortRate& rate = module.port.rate();
  if (!rate.guessed || module.guess_reported) return;
  module.guess_reported = true;
  say(true, "unknown-speed", opal_process_info.nodename, module.port.number(), module.port.device().name(),
      static_cast<unsigned>(rate.width), rate.lane, rate.mbit);
}

void module_defaults(mca_btl_base_module_t* defaults) {
  *defaults = mca_btl_base_module_t{};
  mca_btl_base_module_t& btl = *defaults;
  btl.btl_component = &mca_btl_verbs_component.super;
  btl.btl_eager_limit = 12 * 1024;
  btl.btl_rndv_eager_limit = 12 * 1024;
  btl.btl_max_send_size = 64 * 1024;
  btl.btl_rdma_pipeline_send_length = 1024 * 1024;
  btl.btl_rdma_pipeline_frag_size = 1024 * 1024;
  btl.btl_min_rdma_pipeline_size = 256 * 1024;
  btl.btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
  btl.btl_latency = 4;
  btl.btl_bandwidth = 0;
  btl.btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET |
                  MCA_BTL_FLAGS_FAILOVER_SUPPORT | MCA_BTL_FLAGS_SINGLE_ADD_PROCS;
  btl.btl_registration_handle_size = sizeof(mca_btl_base_registration_handle_t);
  btl.btl_get_limit = size_t{1} << 30;
  btl.btl_put_limit = size_t{1} << 30;
  btl.btl_add_procs = add_procs;
  btl.btl_del_procs = del_procs;
  btl.btl_finalize = finalize;
  btl.btl_alloc = alloc;
  btl.btl_free = free_descriptor;
  btl.btl_prepare_src = prepare_src;
  btl.btl_send = send;
  btl.btl_sendi = sendi;
  btl.btl_put = put;
  btl.btl_get = get;
  btl.btl_dump = dump;
  btl.btl_register_mem = register_memory;
  btl.btl_deregister_mem = deregister_memory;
  btl.btl_register_error = register_error;
}

Module* module_open(Component& component, DeviceSlot& device, const engine::PortFacts& facts,
                    const mca_btl_base_module_t& defaults, bool may_be_down) {
  auto* module = engine::make<Module>();
  if (module == nullptr) return nullptr;
  module->super = defaults;
  module->device = &device;
  const char* what = "";
  engine::Config config = make_config(component, defaults);
  set_address(component.params, facts, &config);
  config.may_be_down = may_be_down;
  if (!module->port.open(device.device, facts.number, config, make_host(*module),
                         engine::system_environment(), &what)) {
    const int error = errno;
    char remedy[400];
    start_remedy(error, remedy, sizeof remedy);
    say(true, "port-failed", opal_process_info.nodename, device.device.name(), facts.number, what,
        strerror(error), remedy);
    // Only the first rank of the node prints the text above, and it may have had no error. So other ranks
    // print one line.
    if (opal_process_info.my_local_rank != 0) {
      opal_output(0, "btl/verbs: rank %u goes on without %s:%u: %s: %s", OPAL_PROC_MY_NAME.vpid,
                  device.device.name(), facts.number, what, strerror(error));
    }
    engine::unmake(module);
    return nullptr;
  }
  if (const int error = module->port.heartbeat_error(); error != 0) {
    opal_output(
        0,
        "btl/verbs: rank %u uses %s:%u without a heartbeat responder (%s): peers that wait for this process "
        "cannot tell whether it computes or is dead, and wait until mpirun ends the job",
        OPAL_PROC_MY_NAME.vpid, device.device.name(), facts.number, strerror(error));
  }
  const ibv_port_attr& attr = module->port.attr();
  module->fixed_rate = module->super.btl_bandwidth != 0;
  if (!module->fixed_rate) {
    // Of a port that is down it is not known before it comes up.
    module->super.btl_bandwidth = module->port.rate().mbit;
    say_guessed_rate(*module);
  }
  if (attr.max_msg_sz != 0 && attr.max_msg_sz < module->super.btl_get_limit) {
    module->super.btl_get_limit = attr.max_msg_sz;
    module->super.btl_put_limit = attr.max_msg_sz;
  }
  if (!device.device.reads()) {
    // Long messages go by PUT instead, in every PML.
    module->super.btl_flags &= ~static_cast<uint32_t>(MCA_BTL_FLAGS_GET);
    module->super.btl_get = nullptr;
    module->super.btl_get_limit = 0;
  }
  module->pool_lock.open(component.threads);
  pools_open(*module);
  return module;
}

}  // namespace bfo::verbs
