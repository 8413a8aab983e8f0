// SPDX-License-Identifier: BSD-3-Clause
//
// verbs_api.cc: libibverbs as a table. Several of these names are macros or inline functions in verbs.h,
// hence the wrappers.
#include "btl/verbs/engine/device/verbs_api.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bfo::engine {
namespace {

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return ibv_query_port(context, port, attr);
}

/// The symbol is looked for: this library may be linked with an older libibverbs than the one that runs.
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  using Query = int (*)(ibv_context*, uint32_t, uint64_t*);
  static const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "ibv_query_port_speed"));
  return query == nullptr ? EOPNOTSUPP : query(context, port, speed);
}

/// Asks as a program with a newer header does. An older library leaves the field 0.
uint32_t active_speed_ex(ibv_context* context, uint8_t port) {
  constexpr size_t kOffset = 52;
  static_assert(sizeof(ibv_port_attr) >= kOffset);
  struct {
    alignas(ibv_port_attr) char bytes[kOffset + sizeof(uint32_t)];
  } attr{};
  verbs_context* const verbs = verbs_get_ctx_op(context, query_port);
  uint32_t speed = 0;
  if (verbs == nullptr ||
      verbs->query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr.bytes), sizeof attr.bytes) != 0)
    return 0;
  memcpy(&speed, attr.bytes + kOffset, sizeof speed);
  return speed;
}

/// False: the device has no such counter.
bool read_counter(ReadFile read, const ibv_context* context, uint8_t port, const char* name,
                  uint64_t* value) {
  char file[64];
  char text[32];
  snprintf(file, sizeof file, "ports/%u/%s", unsigned{port}, name);
  const int n = read(context->device->ibdev_path, file, text, sizeof text - 1);
  if (n <= 0) return false;
  text[n] = 0;
  char* end = text;
  *value = strtoull(text, &end, 10);
  return end != text;
}

/// The library reads the files, because that is what stands in for it where there is no kernel.
ReadFile file_reader() {
  static const auto read = reinterpret_cast<ReadFile>(dlsym(RTLD_DEFAULT, "ibv_read_sysfs_file"));
  return read;
}

int port_losses(ibv_context* context, uint8_t port, LossCounters* files, LossCounts* counts) {
  if (file_reader() == nullptr) return EOPNOTSUPP;
  *counts = files->read(file_reader(), context->device->ibdev_path, port);
  return 0;
}

int port_received(ibv_context* context, uint8_t port, uint64_t* bytes) {
  constexpr uint64_t kUnit = 4;            // bytes of the first one
  constexpr uint64_t kLeastOfPacket = 64;  // of the second one
  const ReadFile read = file_reader();
  uint64_t value = 0;
  if (read == nullptr) return EOPNOTSUPP;
  if (read_counter(read, context, port, "counters/port_rcv_data", &value)) {
    *bytes = value * kUnit;
  } else if (read_counter(read, context, port, "hw_counters/rcvd_pkts", &value)) {  // of rxe
    *bytes = value * kLeastOfPacket;
  } else {
    return EOPNOTSUPP;
  }
  return 0;
}

int query_pkey(ibv_context* context, uint8_t port, int index, uint16_t* pkey) {
  return ibv_query_pkey(context, port, index, pkey);
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return ibv_reg_mr(pd, address, length, access);
}

ibv_cq* create_cq(ibv_context* context, int entries) {
  return ibv_create_cq(context, entries, nullptr, nullptr, 0);
}

ibv_cq* create_event_cq(ibv_context* context, int entries, ibv_comp_channel* channel) {
  return ibv_create_cq(context, entries, nullptr, channel, 0);
}

bool get_cq_event(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  return ibv_get_cq_event(channel, &cq, &user) == 0;
}

constexpr VerbsApi kSystemVerbs = {
    .get_device_list = ibv_get_device_list,
    .free_device_list = ibv_free_device_list,
    .get_device_name = ibv_get_device_name,
    .open_device = ibv_open_device,
    .close_device = ibv_close_device,
    .query_device = ibv_query_device,
    .query_port = query_port,
    .query_port_speed = query_port_speed,
    .active_speed_ex = active_speed_ex,
    .port_received = port_received,
    .port_losses = port_losses,
    .query_gid = ibv_query_gid,
    .query_pkey = query_pkey,
    .alloc_pd = ibv_alloc_pd,
    .dealloc_pd = ibv_dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = ibv_dereg_mr,
    .create_cq = create_cq,
    .destroy_cq = ibv_destroy_cq,
    .create_comp_channel = ibv_create_comp_channel,
    .destroy_comp_channel = ibv_destroy_comp_channel,
    .create_event_cq = create_event_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ibv_ack_cq_events,
    .create_srq = ibv_create_srq,
    .modify_srq = ibv_modify_srq,
    .destroy_srq = ibv_destroy_srq,
    .create_qp = ibv_create_qp,
    .modify_qp = ibv_modify_qp,
    .query_qp = ibv_query_qp,
    .destroy_qp = ibv_destroy_qp,
    .create_ah = ibv_create_ah,
    .destroy_ah = ibv_destroy_ah,
    .get_async_event = ibv_get_async_event,
    .ack_async_event = ibv_ack_async_event,
};

}  // namespace

const VerbsApi& system_verbs() {
  return kSystemVerbs;
}

}  // namespace bfo::engine
