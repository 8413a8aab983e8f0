// SPDX-License-Identifier: BSD-3-Clause
//
// component.cc: the component's entry points: registration, device discovery, progress.
#include "btl/verbs/glue/component.h"

#include <algorithm>
#include <vector>

#include "btl/verbs/engine/memory.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

/// What every module starts from; the standard parameters (eager_limit, flags...) are stored into it.
mca_btl_base_module_t default_module;

Component& self() {
  return mca_btl_verbs_component;
}

int component_register() {
  module_defaults(&default_module);
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
  return OPAL_SUCCESS;
}

/// True when `list` (comma-delimited "device" or "device:port") names the port.
bool listed(const char* list, const char* device, unsigned port) {
  char with_port[96];
  snprintf(with_port, sizeof with_port, "%s:%u", device, port);
  char** entries = opal_argv_split(list, ',');
  bool found = false;
  for (char** entry = entries; entry != nullptr && *entry != nullptr; ++entry) {
    found = found || strcmp(*entry, device) == 0 || strcmp(*entry, with_port) == 0;
  }
  opal_argv_free(entries);
  return found;
}

bool port_allowed(const char* device, unsigned port) {
  const Params& params = self().params;
  if (params.if_include != nullptr && *params.if_include != '\0')
    return listed(params.if_include, device, port);
  if (params.if_exclude != nullptr && *params.if_exclude != '\0')
    return !listed(params.if_exclude, device, port);
  return true;
}

/// A port that is down now is taken when it was asked for by name and the PML can do without it.
bool may_be_down() {
  const char* include = self().params.if_include;
  return include != nullptr && *include != '\0' && failover_pml();
}

/// What was found so far, also for the one message a user gets who asked for this component.
struct Search {
  int devices = 0;
  int unusable = 0;
  int inactive = 0;
  int excluded = 0;
  std::vector<engine::PortPlace> places;  // of all ports that are allowed
};

/// Where the port stands among those that came before it, active or not.
engine::PortPlace place_port(const DeviceSlot& device, uint8_t number, const ibv_port_attr& attr,
                             Search* search) {
  engine::PortPlace place;
  place.link_layer = attr.link_layer;
  const int gid_index = static_cast<int>(self().params.gid_index);
  const engine::VerbsApi& api = device.device.api();
  if (api.query_gid(device.device.context(), number, gid_index, &place.gid) != 0) place.gid = ibv_gid{};
  for (const engine::PortPlace& other : search->places) place.ordinal += engine::same_fabric(other, place);
  search->places.push_back(place);
  return place;
}

void open_ports(DeviceSlot& device, Search* search) {
  const engine::VerbsApi& api = device.device.api();
  for (unsigned port = 1; port <= device.device.attr().phys_port_cnt && self().module_count < kMaxModules;
       ++port) {
    ibv_port_attr attr{};
    if (!port_allowed(device.device.name(), port)) {
      ++search->excluded;
      continue;
    }
    const auto number = static_cast<uint8_t>(port);
    if (api.query_port(device.device.context(), number, &attr) != 0) {
      ++search->unusable;
      continue;
    }
    const engine::PortPlace place = place_port(device, number, attr, search);
    if (attr.state != IBV_PORT_ACTIVE && !may_be_down()) {
      ++search->inactive;
      continue;
    }
    Module* module = module_open(self(), device, number, default_module, may_be_down());
    if (module == nullptr) {
      ++search->unusable;
      continue;
    }
    module->place = place;
    if (module->port.state() != engine::PortState::kActive)
      say(true, "port-down", opal_process_info.nodename, port, device.device.name());
    device.ports[device.port_count++] = &module->port;
    ++device.open_ports;
    self().ports[self().module_count] = &module->port;
    self().modules[self().module_count++] = module;
  }
}

/// What a port that is down can carry is not known yet: as much as the best of the others, or the speed and
/// width it says.
void guess_rates() {
  uint32_t best = 0;
  for (int i = 0; i < self().module_count; ++i) {
    const Module& module = *self().modules[i];
    if (module.port.state() == engine::PortState::kActive) best = std::max(best, module.super.btl_bandwidth);
  }
  for (int i = 0; i < self().module_count; ++i) {
    Module& module = *self().modules[i];
    const bool active = module.port.state() == engine::PortState::kActive;
    if (!active && best != 0) module.super.btl_bandwidth = best;
  }
}

/// Hands the device's events and its ports' pulses to the event thread.
bool watch(DeviceSlot& device) {
  for (int i = 0; i < device.port_count; ++i) {
    if (!self().events->serve(device.ports[i]->pulse())) return false;
  }
  return self().events->add(device.device.context(), &device.device.events());
}

bool open_device(const engine::VerbsApi& api, ibv_device* found, Search* search) {
  auto* device = engine::make<DeviceSlot>();
  if (device == nullptr) return false;
  if (!device->device.open(api, found)) {
    ++search->unusable;
    engine::unmake(device);
    return false;
  }
  open_ports(*device, search);
  if (device->port_count == 0 || !rcache_open(self(), *device) || !watch(*device)) {
    for (int i = device->port_count; i > 0; --i) {
      Module* module = self().modules[--self().module_count];
      self().events->forget(module->port.pulse());
      module->port.close();
      engine::unmake(module);
    }
    rcache_close(*device);
    device->device.close();
    engine::unmake(device);
    return false;
  }
  self().devices[self().device_count++] = device;
  return true;
}

void say_nothing_found(const Search& search) {
  char text[256];
  snprintf(text, sizeof text,
           "%d device(s) found by ibv_get_device_list(); %d port(s) not ACTIVE, %d excluded by "
           "btl_verbs_if_include/if_exclude, %d unusable",
           search.devices, search.inactive, search.excluded, search.unusable);
  say(true, "no-ports", opal_process_info.nodename, text);
}

mca_btl_base_module_t** component_init(int* count, bool, bool enable_mpi_threads) {
  *count = 0;
  bool named = false;
  if (!wanted(&named)) return nullptr;
  add_help_directory();
  if (!check_params(self(), default_module)) return nullptr;
  self().threads = enable_mpi_threads || opal_using_threads();
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&self().progress_lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
  const engine::VerbsApi& api = engine::system_verbs();
  Search search;
  ibv_device** list = api.get_device_list(&search.devices);
  self().events = engine::make<engine::EventThread>();
  const bool started =
      self().events != nullptr && self().events->start(api, engine::system_environment().now_ns);
  for (int i = 0; started && list != nullptr && i < search.devices; ++i) open_device(api, list[i], &search);
  if (list != nullptr) api.free_device_list(list);
  if (self().module_count == 0) {
    if (named) say_nothing_found(search);
    component_close();
    return nullptr;
  }
  guess_rates();
  if (publish_ports(self()) != OPAL_SUCCESS) {
    opal_output(0, "btl/verbs: cannot publish the addresses of the ports; the component is not used");
    return nullptr;
  }
  auto** modules =
      static_cast<mca_btl_base_module_t**>(malloc(sizeof(void*) * static_cast<size_t>(self().module_count)));
  if (modules == nullptr) return nullptr;
  for (int i = 0; i < self().module_count; ++i) modules[i] = &self().modules[i]->super;
  *count = self().module_count;
  return modules;
}

int progress_all() {
  int handled = 0;
  for (int i = 0; i < self().device_count; ++i) {
    DeviceSlot& device = *self().devices[i];
    if (!device.device.events().empty() || device.device.events().overflowed()) [[unlikely]] {
      engine::Port::take_events(device.device, device.ports, device.port_count);
    }
  }
  return handled + engine::poll_ports(self().ports, self().module_count);
}

int component_progress() {
  if (!self().threads) return progress_all();
  // One thread makes progress for all; the others have nothing to add.
  if (pthread_mutex_trylock(&self().progress_lock) != 0) return 0;
  const int handled = progress_all();
  pthread_mutex_unlock(&self().progress_lock);
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
                    MCA_BTL_DEFAULT_VERSION("verbs"),
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
