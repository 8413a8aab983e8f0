// SPDX-License-Identifier: BSD-3-Clause
//
// pvars.cc: datagrams dropped, by reason, and the outages of each port as performance variables of MPI_T.
// Read without a lock: each count is one aligned word, and a tool may see it a moment late.
#include <cstdio>

#include "btl/verbs/glue/module.h"
#include "opal/mca/base/mca_base_pvar.h"

namespace bfo::verbs {
namespace {

using engine::Drop;

struct Reason {
  Drop drop;
  const char* help;
};

constexpr Reason kReasons[] = {
    {Drop::kShape, "Connection datagrams dropped because they are no packets of this version"},
    {Drop::kForeign, "Connection datagrams dropped because they name another process or job"},
    {Drop::kSum, "Connection datagrams dropped because their keyed sum is wrong: damaged or forged"},
    {Drop::kType, "Connection datagrams dropped because of their type"},
    {Drop::kStranger, "Connection datagrams dropped because their sender is not known here"},
    {Drop::kLeft, "Connection datagrams dropped because their sender has left, or the rail is lost for good"},
    {Drop::kReplayed, "Connection datagrams dropped because they came before: doubled or sent by a stranger"},
    {Drop::kMemory, "Connection datagrams dropped because there was no memory to act on them"},
    {Drop::kStale, "Connection datagrams dropped because they came too late to change anything"},
};
static_assert(sizeof kReasons / sizeof *kReasons + 1 == engine::kDrops, "all but kNone");

int read_drops(const mca_base_pvar_t* pvar, void* value, void*) {
  const Drop drop = static_cast<const Reason*>(pvar->ctx)->drop;
  unsigned long long sum = 0;
  const Component& component = mca_btl_verbs_component;
  for (int i = 0; i < component.module_count; ++i) {
    engine::Port& port = component.modules[i]->port;
    sum += port.drops()[static_cast<size_t>(drop)] + port.heartbeat().dropped(drop);
  }
  *static_cast<unsigned long long*>(value) = sum;
  return OPAL_SUCCESS;
}

/// One value per port, always the same number of them: a handle may be older than the ports.
constexpr int kPorts = 8;

int port_notify(mca_base_pvar_t*, mca_base_pvar_event_t event, void*, int* count) {
  if (event == MCA_BASE_PVAR_HANDLE_BIND) *count = kPorts;
  return OPAL_SUCCESS;
}

template <class Read>
int read_ports_into(void* value, Read read) {
  auto* out = static_cast<unsigned long long*>(value);
  const Component& component = mca_btl_verbs_component;
  for (int i = 0; i < kPorts; ++i) out[i] = i < component.module_count ? read(component.modules[i]->port) : 0;
  return OPAL_SUCCESS;
}

int read_losses(const mca_base_pvar_t*, void* value, void*) {
  return read_ports_into(value, [](const engine::Port& port) { return port.outages().losses(); });
}

int read_down_time(const mca_base_pvar_t*, void* value, void*) {
  const uint64_t now = engine::system_environment().now_ns();
  return read_ports_into(value,
                         [now](const engine::Port& port) { return port.outages().down_ns(now) / 1'000'000; });
}

int read_packet_loss(const mca_base_pvar_t*, void* value, void*) {
  return read_ports_into(value, [](const engine::Port& port) { return port.packet_loss().found(); });
}

}  // namespace

void register_port_pvars(const Component& component) {
  constexpr auto flags =
      static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);
  mca_base_component_pvar_register(&component.super.btl_version, "port_losses",
                                   "How often each port was lost: one value per port", OPAL_INFO_LVL_3,
                                   MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
                                   MPI_T_BIND_NO_OBJECT, flags, read_losses, nullptr, port_notify, nullptr);
  mca_base_component_pvar_register(
      &component.super.btl_version, "port_down_ms",
      "Milliseconds in which each port was not active since it was opened: one value per port",
      OPAL_INFO_LVL_3, MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
      MPI_T_BIND_NO_OBJECT, flags, read_down_time, nullptr, port_notify, nullptr);
  mca_base_component_pvar_register(
      &component.super.btl_version, "port_packet_loss",
      "How often this process has found that each port loses packets: one value per port", OPAL_INFO_LVL_3,
      MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MPI_T_BIND_NO_OBJECT, flags,
      read_packet_loss, nullptr, port_notify, nullptr);
}

void register_drop_pvars(const Component& component) {
  constexpr auto flags =
      static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);
  for (const Reason& reason : kReasons) {
    char name[32];
    snprintf(name, sizeof name, "dropped_%s", engine::drop_name(reason.drop));
    mca_base_component_pvar_register(&component.super.btl_version, name, reason.help, OPAL_INFO_LVL_4,
                                     MPI_T_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr,
                                     MPI_T_BIND_NO_OBJECT, flags, read_drops, nullptr, nullptr,
                                     const_cast<Reason*>(&reason));
  }
}

}  // namespace bfo::verbs
