// SPDX-License-Identifier: BSD-3-Clause
//
// memory.cc: registration of application memory through Open MPI's registration cache, one cache per device.
#include <string>

#include "btl/verbs/glue/memory_hooks.h"
#include "btl/verbs/glue/module.h"
#include "common/shown_text.h"

namespace bfo::verbs {
namespace {

int cache_register(void* context, void* base, size_t size, mca_rcache_base_registration_t* super) {
  auto* device = static_cast<DeviceSlot*>(context);
  auto* registration = reinterpret_cast<Registration*>(super);
  const int access = super->access_flags;
  const int flags = engine::access_flags(
      (access & MCA_RCACHE_ACCESS_LOCAL_WRITE) != 0, (access & MCA_RCACHE_ACCESS_REMOTE_READ) != 0,
      (access & MCA_RCACHE_ACCESS_REMOTE_WRITE) != 0, (access & MCA_RCACHE_ACCESS_REMOTE_ATOMIC) != 0);
  registration->mr = device->device.register_memory(base, size, flags);
  if (registration->mr == nullptr) return OPAL_ERR_OUT_OF_RESOURCE;
  registration->handle.lkey = registration->mr->lkey;
  registration->handle.rkey = registration->mr->rkey;
  device->user_bytes.fetch_add(registration->mr->length, std::memory_order_relaxed);
  mca_btl_verbs_component.registered_anew.store(true, std::memory_order_relaxed);
  return OPAL_SUCCESS;
}

int cache_deregister(void* context, mca_rcache_base_registration_t* super) {
  auto* device = static_cast<DeviceSlot*>(context);
  auto* registration = reinterpret_cast<Registration*>(super);
  if (registration->mr == nullptr) return OPAL_SUCCESS;
  const size_t bytes = registration->mr->length;
  if (device->device.deregister_memory(registration->mr) != 0) return OPAL_ERROR;
  device->user_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  registration->mr = nullptr;
  return OPAL_SUCCESS;
}

void evict_all(mca_rcache_base_module_t* cache) {
  while (cache->rcache_evict(cache)) {
  }
}

/// Looks for a way to give memory back unseen, when libraries were loaded since the last look. Where there is
/// one, registrations are not kept from now on. Not from inside the cache, whose lock a hook may want while
/// another thread has the loader's.
void look_for_blind_spot(Component& component) {
  component.registered_anew.store(false, std::memory_order_relaxed);
  if (component.blind || opal_leave_pinned == 0) return;
  const uint64_t loaded = libraries_loaded();
  if (component.libraries.exchange(loaded) == loaded) return;
  const BlindSpot spot = find_blind_spot();
  if (spot.function == nullptr || component.blind.exchange(true)) return;
  for (int i = 0; i < component.device_count; ++i) evict_all(component.devices[i]->rcache);
  say(true, "blind-hooks", opal_process_info.nodename, spot.function, spot.library, spot.function);
}

mca_rcache_base_registration_t* add_to_cache(mca_rcache_base_module_t* cache, void* base, size_t size,
                                             int access) {
  const uint32_t how = mca_btl_verbs_component.blind ? MCA_RCACHE_FLAGS_CACHE_BYPASS : 0;
  mca_rcache_base_registration_t* registration = nullptr;
  const int rc = cache->rcache_register(cache, base, size, how, access, &registration);
  return rc == OPAL_SUCCESS ? registration : nullptr;
}

/// What the process has registered now, over all devices.
int read_pinned(const mca_base_pvar_t*, void* value, void*) {
  const Component& component = mca_btl_verbs_component;
  unsigned long long bytes = 0;
  for (int i = 0; i < component.device_count; ++i) {
    DeviceSlot& device = *component.devices[i];
    bytes += device.device.arena().pinned() + device.user_bytes.load(std::memory_order_relaxed);
  }
  *static_cast<unsigned long long*>(value) = bytes;
  return OPAL_SUCCESS;
}

}  // namespace

void register_pvars(const Component& component) {
  constexpr auto flags =
      static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);
  mca_base_component_pvar_register(
      &component.super.btl_version, "pinned",
      "Bytes registered with devices: the buffers of the component, and application memory in the "
      "registration cache; memory that two devices know counts twice",
      OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_SIZE, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
      MPI_T_BIND_NO_OBJECT, flags, read_pinned, nullptr, nullptr, nullptr);
}

void rcache_open(Component& component, DeviceSlot& device) {
  // One cache per device: a key of one device means nothing to another, and eviction must not cross devices.
  char name[128];
  snprintf(name, sizeof name, "verbs.%s", device.device.name());
  mca_rcache_base_resources_t resources{};
  resources.cache_name = strdup(name);
  resources.reg_data = &device;
  resources.sizeof_reg = sizeof(Registration);
  resources.register_mem = cache_register;
  resources.deregister_mem = cache_deregister;
  const char* rcache =
      component.params.rcache == nullptr ? "" : component.params.rcache;  // as Open MPI stores ""
  device.rcache = mca_rcache_base_module_create(rcache, &device, &resources);
  free(resources.cache_name);
  if (device.rcache != nullptr) return look_for_blind_spot(component);
  const std::string why =
      "is \"" + shown(rcache) + "\": no registration cache can be made for " + device.device.name() +
      " with it (\"ompi_info\" lists those of this Open MPI as MCA rcache); leave it out to get \"grdma\"";
  refuse_parameter("rcache", why.c_str());
}

void rcache_close(DeviceSlot& device) {
  if (device.rcache != nullptr) mca_rcache_base_module_destroy(device.rcache);
  device.rcache = nullptr;
}

mca_btl_base_registration_handle_t* register_memory(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t*,
                                                    void* base, size_t size, uint32_t flags) {
  Component& component = mca_btl_verbs_component;
  mca_rcache_base_module_t* cache = module_of(btl)->device->rcache;
  const int access = static_cast<int>(flags & MCA_BTL_REG_FLAG_ACCESS_ANY);
  mca_rcache_base_registration_t* registration = add_to_cache(cache, base, size, access);
  if (component.registered_anew.load(std::memory_order_relaxed)) [[unlikely]] {
    const bool was_blind = component.blind;
    look_for_blind_spot(component);
    if (registration != nullptr && component.blind != was_blind) {  // it would be kept
      cache->rcache_deregister(cache, registration);
      registration = add_to_cache(cache, base, size, access);
    }
  }
  return registration == nullptr ? nullptr : &reinterpret_cast<Registration*>(registration)->handle;
}

int deregister_memory(mca_btl_base_module_t* btl, mca_btl_base_registration_handle_t* handle) {
  mca_rcache_base_module_t* cache = module_of(btl)->device->rcache;
  auto* registration =
      reinterpret_cast<Registration*>(reinterpret_cast<char*>(handle) - offsetof(Registration, handle));
  cache->rcache_deregister(cache, &registration->super);
  // What was registered before a way to give memory back unseen was found is not kept either.
  if (mca_btl_verbs_component.blind) [[unlikely]]
    evict_all(cache);
  return OPAL_SUCCESS;
}

}  // namespace bfo::verbs
