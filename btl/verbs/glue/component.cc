// SPDX-License-Identifier: BSD-3-Clause
//
// component.cc: the component's entry points: registration, device discovery, progress.
#include "btl/verbs/glue/component.h"

#include <ctime>
#include <utility>
#include <vector>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/glue/discover.h"
#include "btl/verbs/glue/module.h"
#include "common/compat/class_sizes.h"
#include "common/version.h"

namespace bfo::verbs {
namespace {

/// What every module starts from; the standard parameters (eager_limit, flags...) are stored into it.
mca_btl_base_module_t default_module;

Component& self() {
  return mca_btl_verbs_component;
}

/// The first code of the component that runs. NOT_AVAILABLE: it has said why itself.
int component_register() {
  if (!fits_running("BTL verbs", built_for().c_str(), opal_class_sizes())) return OPAL_ERR_NOT_AVAILABLE;
  module_defaults(&default_module);
  register_pvars(self());
  register_drop_pvars(self());
  register_port_pvars(self());
  return register_params(self(), &default_module);
}

int component_open() {
  self().module_count = 0;
  self().device_count = 0;
  return OPAL_SUCCESS;
}

int component_close() {
  if (self().events != nullptr) {
    self().events->stop();
    engine::unmake(self().events);
    self().events = nullptr;
  }
  for (int i = 0; i < self().device_count; ++i) engine::unmake(self().devices[i]);
  self().device_count = 0;
  self().kept.drop();
  return OPAL_SUCCESS;
}

/// Opens the ports of `device` that were chosen. Those that cannot be used after all get another verdict.
void open_ports(DeviceSlot& device, Discovery& found) {
  for (size_t i = 0; i < found.facts.size() && self().module_count < kMaxModules; ++i) {
    if (found.owners[i] != &device || found.verdicts[i] != engine::PortVerdict::kUsed) continue;
    // The PML works without a port that is down.
    Module* module = module_open(self(), device, found.facts[i], default_module, self().wish.failover);
    if (module == nullptr) {
      found.verdicts[i] = engine::PortVerdict::kNotMade;
      continue;
    }
    module->place = found.places[i];
    device.ports[device.port_count++] = &module->port;
    ++device.open_ports;
    self().ports[self().module_count] = &module->port;
    self().modules[self().module_count++] = module;
  }
}

/// Has the event thread serve the device's events and the heartbeat responders of its ports.
bool watch(DeviceSlot& device) {
  for (int i = 0; i < device.port_count; ++i) {
    if (!self().events->serve(device.ports[i]->heartbeat())) return false;
  }
  return self().events->add(device.device.context(), &device.device.events());
}

/// Makes the chosen ports of a device, or closes it.
void open_device(DeviceSlot* device, Discovery& found) {
  open_ports(*device, found);
  if (device->port_count != 0) {
    rcache_open(self(), *device);
    if (watch(*device)) {
      self().devices[self().device_count++] = device;
      return;
    }
    start_failed("watch a device for events", errno);
  }
  for (size_t i = 0; i < found.facts.size(); ++i) {
    if (found.owners[i] == device && found.verdicts[i] == engine::PortVerdict::kUsed)
      found.verdicts[i] = engine::PortVerdict::kNotMade;
  }
  for (int i = device->port_count; i > 0; --i) {
    Module* module = self().modules[--self().module_count];
    self().events->forget(module->port.heartbeat());
    module->port.close();
    engine::unmake(module);
  }
  rcache_close(*device);
  device->device.close();
  engine::unmake(device);
}

/// For a user who asked for this component. The bfo PML says it itself.
void say_nothing_found(const Discovery& found) {
  if (!self().wish.named || self().wish.failover) return;
  int inactive = 0;
  int excluded = 0;
  for (const engine::PortVerdict verdict : found.verdicts) {
    inactive += verdict == engine::PortVerdict::kInactive ? 1 : 0;
    excluded += verdict == engine::PortVerdict::kExcluded ? 1 : 0;
  }
  const int unusable = static_cast<int>(found.verdicts.size()) - inactive - excluded;
  char text[256];
  snprintf(text, sizeof text,
           "%d device(s) found by ibv_get_device_list(); %d port(s) not ACTIVE, %d excluded by "
           "btl_verbs_if_include/if_exclude, %d unusable",
           found.devices, inactive, excluded, unusable);
  say(true, "no-ports", opal_process_info.nodename, text);
}

/// What any device needs. False: a sentence said what is missing.
bool prepare(const engine::VerbsApi& api) {
  self().events = engine::make<engine::EventThread>();
  if (self().events == nullptr) {
    start_failed("make the record of the event thread", ENOMEM);
    return false;
  }
  if (self().events->start(api, engine::system_environment().now_ns)) return true;
  start_failed("start the thread that reads events", errno);
  return false;
}

/// Finds, chooses and opens the ports.
void open_everything(const engine::VerbsApi& api, ibv_device** list, int count, Discovery* found) {
  discover(api, list, count, self().params, found);
  select(self(), found);
  for (DeviceSlot* device : found->opened) open_device(device, *found);
  self().shortfall = engine::shortfall_of(found->facts.data(), found->facts.size(), found->verdicts.data());
}

/// Closes all ports and devices that were opened. The list of modules for the framework is not made.
mca_btl_base_module_t** give_up() {
  while (self().module_count != 0) {
    mca_btl_base_module_t& btl = self().modules[self().module_count - 1]->super;
    btl.btl_finalize(&btl);
  }
  component_close();
  return nullptr;
}

mca_btl_base_module_t** component_init(int* count, bool, bool enable_mpi_threads) {
  *count = 0;
  self().wish = read_wish();
  if (!self().wish.named && !self().wish.failover) return nullptr;
  self().claims.open(opal_process_info.job_session_dir, opal_process_info.my_local_rank);
  self().shortfall = engine::not_used();
  check_params(self(), default_module);
  if (!prepare_fork(self().params)) return nullptr;
  static constexpr bool kAlways = true;
  self().threads = enable_mpi_threads ? &kAlways : &opal_uses_threads;
  const engine::VerbsApi& api = engine::system_verbs();
  int devices = 0;
  errno = 0;
  ibv_device** list = api.get_device_list(&devices);
  // Without the driver's modules it is ENOSYS: there are no devices.
  if (list == nullptr && errno != 0 && errno != ENOSYS) start_failed("ask for the devices", errno);
  if (list != nullptr && devices != 0 && !prepare(api)) {
    api.free_device_list(list);
    return give_up();
  }
  Discovery found;
  open_everything(api, list, devices, &found);
  if (list != nullptr) api.free_device_list(list);
  if (self().module_count == 0) {
    say_nothing_found(found);
    return give_up();
  }
  if (publish_ports(self()) != OPAL_SUCCESS) {
    opal_output(0, "btl/verbs: cannot publish the addresses of the ports; the component is not used");
    self().shortfall = engine::not_used();
    return give_up();
  }
  auto** modules =
      static_cast<mca_btl_base_module_t**>(malloc(sizeof(void*) * static_cast<size_t>(self().module_count)));
  if (modules == nullptr) return give_up();
  for (int i = 0; i < self().module_count; ++i) modules[i] = &self().modules[i]->super;
  *count = self().module_count;
  return modules;
}

int progress_once() {
  int handled = 0;
  for (int i = 0; i < self().device_count; ++i) {
    DeviceSlot& device = *self().devices[i];
    if (!device.device.events().empty() || device.device.events().overflowed()) [[unlikely]] {
      engine::Port::take_events(device.device, device.ports, device.port_count);
    }
  }
  return handled + engine::poll_ports(self().ports, self().module_count);
}

uint64_t now_ns() {
  return engine::system_environment().now_ns();
}

/// A handshake takes several turns of this process, and it comes by seldom: it stays for a moment, so that
/// not each of them waits for another call. The control threads and the peer get the processor meanwhile.
int stay() {
  const auto steps = [] {
    uint64_t sum = 0;
    for (int i = 0; i < self().module_count; ++i) sum += self().ports[i]->steps();
    return sum;
  };
  const uint64_t step_ns = self().patience.step_ns(std::exchange(self().stay_ns, 0), steps());
  engine::Stay stay(step_ns, steps(), now_ns(), engine::system_environment());
  const auto connecting = [] {
    for (int i = 0; i < self().module_count; ++i) {
      if (self().ports[i]->connecting()) return true;
    }
    return false;
  };
  int handled = 0;
  while (connecting() && stay.goes_on(steps(), now_ns())) {
    constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 20'000};
    nanosleep(&kPause, nullptr);
    handled += progress_once();
  }
  self().stay_ns = 0;
  self().patience.left(connecting(), steps());
  for (int i = 0; i < self().module_count; ++i) self().ports[i]->await_message(nullptr);
  return handled;
}

int progress_all() {
  const int handled = progress_once();
  if (kTellsOfTheDead && self().kept.count() != 0) [[unlikely]]
    send_kept(self());
  if (self().stay_ns != 0) [[unlikely]]
    return handled + stay();
  return handled;
}

int component_progress() {
  if (!*self().threads) return progress_all();
  // One thread makes progress for all of them; another one returns.
  if (!self().progress_lock.try_lock()) return 0;
  const int handled = progress_all();
  self().progress_lock.unlock();
  return handled;
}

}  // namespace
}  // namespace bfo::verbs

extern "C" {
bfo::verbs::Component mca_btl_verbs_component = {
    .super =
        {
            .btl_version =
                {
                    BFO_BTL_BASE_VERSION,
                    .mca_component_name = "verbs",
                    MCA_BASE_MAKE_VERSION(component, bfo::version_part(BFO_VERSION, 0),
                                          bfo::version_part(BFO_VERSION, 1),
                                          bfo::version_part(BFO_VERSION, 2)),
                    .mca_open_component = bfo::verbs::component_open,
                    .mca_close_component = bfo::verbs::component_close,
                    .mca_register_component_params = bfo::verbs::component_register,
                },
            .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
            .btl_init = bfo::verbs::component_init,
            .btl_progress = bfo::verbs::component_progress,
        },
};
}
