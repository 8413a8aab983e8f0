// SPDX-License-Identifier: BSD-3-Clause
//
// discover.cc: describes the ports of this host, calls selection, and prints what the user must know.
#include "btl/verbs/glue/discover.h"

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/device/port_query.h"
#include "btl/verbs/engine/select/port_values.h"
#include "btl/verbs/glue/module.h"
#include "btl/verbs/glue/trace.h"
#include "common/shown_text.h"

namespace bfo::verbs {
namespace {

using engine::PortFacts;
using engine::PortVerdict;

/// The addresses to use: on Ethernet the configured one or all that are usable, on InfiniBand the configured
/// one or the first.
void describe_addresses(ibv_context* context, const ibv_port_attr& attr, const Params& params,
                        PortFacts* port) {
  unsigned configured = 0;
  const bool given = engine::find_port_value(params.gid_index, port->device, port->number, &configured);
  port->gid = engine::GidEntry{};
  port->gids = engine::GidTable{};
  if (attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
    port->gids = read_usable_gids(context, port->number, attr, given ? static_cast<int>(configured) : -1);
    if (port->gids.count != 0) port->gid = port->gids.entries[0];
  } else {
    for (const engine::GidEntry& entry : read_gids(context, port->number, attr)) {
      if (entry.index == static_cast<int>(configured)) port->gid = entry;
    }
  }
  const bool later = port->gid.index < 0 && attr.state != IBV_PORT_ACTIVE;
  if (later) port->gid.index = static_cast<int>(configured);  // it gets one then
}

uint16_t partition_of(ibv_context* context, uint8_t port, unsigned index) {
  constexpr uint16_t kDefaultPartition = 0xffff;
  uint16_t pkey = 0;  // as it is on the wire
  if (ibv_query_pkey(context, port, static_cast<int>(index), &pkey) != 0) return kDefaultPartition;
  return ntohs(pkey);
}

void describe_partition(const engine::VerbsApi& api, ibv_context* context, const ibv_port_attr& attr,
                        const Params& params, PortFacts* port) {
  unsigned wished = 0;
  int index = static_cast<int>(params.ib_pkey_index);
  if (engine::find_port_value(params.ib_pkey, port->device, port->number, &wished))
    index = engine::index_of_pkey(api, context, port->number, attr.pkey_tbl_len, wished);
  else if (index >= attr.pkey_tbl_len && attr.pkey_tbl_len != 0)
    index = -1;
  port->pkey_index = index;
  if (index >= 0) port->pkey = partition_of(context, port->number, static_cast<unsigned>(index));
}

/// One number of a port's folder in sysfs; 0 where there is none.
uint64_t counter_of(const ibv_context& context, unsigned port, const char* name) {
  char path[sizeof context.device->ibdev_path + 96];
  snprintf(path, sizeof path, "%s/ports/%u/counters/%s", context.device->ibdev_path, port, name);
  FILE* const file = fopen(path, "re");
  if (file == nullptr) return 0;
  unsigned long long value = 0;
  const bool read = fscanf(file, "%llu", &value) == 1;
  fclose(file);
  return read ? value : 0;
}

/// What a port that is down shows of its past.
bool had_link(const ibv_context& context, const PortFacts& port, const ibv_port_attr& attr) {
  engine::LinkTraces traces;
  traces.state = static_cast<uint8_t>(attr.state);
  traces.phys_state = attr.phys_state;
  traces.lid = attr.lid;
  traces.address =
      attr.link_layer == IBV_LINK_LAYER_ETHERNET ? engine::gid_kind(port.gid.gid) : engine::GidKind::kNull;
  traces.counted = counter_of(context, port.number, "port_rcv_packets") != 0 ||
                   counter_of(context, port.number, "link_downed") != 0;
  return engine::had_link(traces);
}

void describe_port(const engine::VerbsApi& api, const DeviceSlot& device, const Params& params,
                   PortFacts* port) {
  ibv_context* context = device.device.context();
  ibv_port_attr attr{};
  port->error = api.query_port(context, port->number, &attr);
  port->readable = port->error == 0;
  if (!port->readable) return;
  port->link_layer = attr.link_layer;
  port->active = attr.state == IBV_PORT_ACTIVE;
  if (port->active) port->rate = engine::read_rate(api, context, port->number, attr).mbit;
  port->lid = attr.lid;
  port->subnet_manager = attr.sm_lid;
  describe_addresses(context, attr, params, port);
  port->had_link = port->active || had_link(*context, *port, attr);
  describe_partition(api, context, attr, params, port);
}

void add_port(const PortFacts& port, DeviceSlot* owner, Discovery* found) {
  found->facts.push_back(port);
  found->owners.push_back(owner);
}

void discover_device(const engine::VerbsApi& api, ibv_device* device, const Params& params,
                     Discovery* found) {
  PortFacts port;
  snprintf(port.device, sizeof port.device, "%s", api.get_device_name(device));
  port.transport = engine::transport_of(*device);
  if (port.transport != engine::Transport::kInfiniband) return add_port(port, nullptr, found);
  // No code reads the memory before the completion of the write, and without atomics no one-sided component
  // uses these registrations.
  const int access = params.relaxed_ordering ? int{IBV_ACCESS_RELAXED_ORDERING} : 0;
  auto* slot = engine::make<DeviceSlot>();
  if (slot == nullptr || !slot->device.open(api, device, access)) {
    port.error = errno;
    if (slot != nullptr) engine::unmake(slot);
    port.readable = false;
    return add_port(port, nullptr, found);
  }
  found->opened.push_back(slot);
  port.distance = distance_of(*device);
  for (unsigned number = 1; number <= slot->device.attr().phys_port_cnt; ++number) {
    port.number = static_cast<uint8_t>(number);
    describe_port(api, *slot, params, &port);
    add_port(port, slot, found);
  }
}

/// One line for all devices that cannot work.
void say_wrong_transport(const Discovery& found) {
  std::string names;
  const char* why = "";
  for (size_t i = 0; i < found.facts.size(); ++i) {
    if (found.verdicts[i] != PortVerdict::kIwarp && found.verdicts[i] != PortVerdict::kNoRc) continue;
    names += (names.empty() ? "" : ", ") + std::string(found.facts[i].device);
    why = engine::verdict_text(found.verdicts[i]);
  }
  if (!names.empty()) say(true, "wrong-transport", opal_process_info.nodename, names.c_str(), why);
}

/// Entries of if_include and if_exclude that name nothing on this host.
void say_unknown_names(const char* name, const char* list, const Discovery& found) {
  constexpr int kMostNamed = 8;
  char entry[128];
  int unknown = 0;
  for (size_t i = 0; unknown < kMostNamed && engine::list_entry(list, i, entry, sizeof entry); ++i) {
    bool known = false;
    for (const PortFacts& port : found.facts)
      known = known || engine::names_port(entry, port.device, port.number);
    if (known) continue;
    say(true, "unknown-port", opal_process_info.nodename, shown(entry).c_str(), name);
    ++unknown;
  }
}

/// The parameter that asked for a partition which the table of the port does not have.
std::string partition_wish(const PortFacts& port, const Params& params) {
  unsigned wished = 0;
  if (engine::find_port_value(params.ib_pkey, port.device, port.number, &wished))
    return "btl_verbs_ib_pkey " + shown(params.ib_pkey);
  char wish[64];
  snprintf(wish, sizeof wish, "an entry %u (btl_verbs_ib_pkey_index)", params.ib_pkey_index);
  return wish;
}

/// A port that is not usable, for a reason that the user can remove.
void say_misfit(const PortFacts& port, PortVerdict verdict, const Params& params) {
  const char* host = opal_process_info.nodename;
  const unsigned number = port.number;
  if (verdict == PortVerdict::kUnreadable) {
    char remedy[400];
    start_remedy(port.error, remedy, sizeof remedy);
    say(true, "unreadable", host, number, port.device, strerror(port.error), remedy);
  }
  if (verdict == PortVerdict::kNoAddress)
    say(true, "no-gid", host, number, port.device,
        params.gid_index == nullptr ? "auto" : shown(params.gid_index).c_str());
  if (verdict == PortVerdict::kNoPartition)
    say(true, "no-pkey", host, number, port.device, partition_wish(port, params).c_str());
}

/// Ports that work and are not used beside others of another speed: one line for all of them.
void say_mixed(const Discovery& found) {
  if (!engine::speeds_are_mixed(found.facts.data(), found.facts.size(), found.verdicts.data())) return;
  std::string ports;
  for (size_t i = 0; i < found.facts.size(); ++i) {
    const PortFacts& port = found.facts[i];
    if (!engine::left_out(port, found.verdicts[i])) continue;
    char text[256];
    snprintf(text, sizeof text, "%s%s:%u (%u Mbit/s) %s", ports.empty() ? "" : "; ", port.device,
             unsigned{port.number}, port.rate, engine::verdict_text(found.verdicts[i]));
    ports += text;
  }
  say(true, "mixed-ports", opal_process_info.nodename, ports.c_str());
}

void say_verdicts(const Discovery& found) {
  if (found.devices == 0) opal_output(0, "btl/verbs: no device is here (ibv_get_device_list)");
  for (size_t i = 0; i < found.facts.size(); ++i) {
    const PortFacts& port = found.facts[i];
    opal_output(0, "btl/verbs: %s:%u (%s, %u Mbit/s, distance %u, GID index %d, P_Key 0x%x) %s", port.device,
                port.number, port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
                port.rate, port.distance, port.gid.index, port.pkey, engine::verdict_text(found.verdicts[i]));
  }
}

}  // namespace

void discover(const engine::VerbsApi& api, ibv_device** list, int count, const Params& params,
              Discovery* found) {
  found->devices = count;
  for (int i = 0; i < count; ++i) discover_device(api, list[i], params, found);
}

void select(const Component& component, Discovery* found) {
  const Params& params = component.params;
  engine::SelectionRules rules;
  rules.include = params.if_include;
  rules.exclude = params.if_exclude;
  rules.failover = component.wish.failover;
  rules.alone = component.wish.alone;
  rules.ignore_locality = params.ignore_locality;
  rules.most = params.max_btls;
  const size_t count = found->facts.size();
  found->verdicts.resize(count);
  found->places.resize(count);
  engine::select_ports(found->facts.data(), count, rules, found->verdicts.data());
  engine::place_ports(found->facts.data(), count, found->verdicts.data(), found->places.data());
  if (traces(kTracePorts)) say_verdicts(*found);
  if (found->devices == 0) return;
  say_wrong_transport(*found);
  say_unknown_names("if_include", params.if_include, *found);
  say_unknown_names("if_exclude", params.if_exclude, *found);
  for (size_t i = 0; i < count; ++i) say_misfit(found->facts[i], found->verdicts[i], params);
  say_mixed(*found);
  size_t first = 0;
  size_t second = 0;
  if (engine::prefixes_mislead(found->facts.data(), count, found->verdicts.data(), &first, &second)) {
    const PortFacts& a = found->facts[first];
    const PortFacts& b = found->facts[second];
    say(true, "same-prefix", opal_process_info.nodename, a.device, a.number, b.device, b.number);
  }
}

}  // namespace bfo::verbs
