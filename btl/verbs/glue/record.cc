// SPDX-License-Identifier: BSD-3-Clause
//
// record.cc: the modex record of the ports: written for this process, read of its peers.
#include <unistd.h>

#include <algorithm>

#include "btl/verbs/engine/select/modex.h"
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

using engine::ModexPort;

constexpr WireVersions kVersions = {engine::kWireVersion + BFO_TEST_WIRE_AHEAD,
                                    engine::kWireOldest + BFO_TEST_WIRE_AHEAD};

// The name that Open MPI makes for a component of its own release. Earlier builds had it, so theirs are found
// and told from hosts without a port. The version of this component must not be in it.
#define BFO_TEXT(x) #x
#define BFO_RELEASE(major, minor) BFO_TEXT(major) "." BFO_TEXT(minor)
char kKey[] = "btl.verbs." BFO_RELEASE(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION);

/// Once per host of the peer.
void say_refused(const opal_proc_t* proc, const PeerRecord& theirs) {
  const opal_process_name_t self = OPAL_PROC_MY_NAME;
  const WireSide here = {opal_process_info.nodename, self.vpid};
  const HostName host(*proc);
  const WireSide there = {host.text(), proc->proc_name.vpid};
  char text[768];
  const size_t length = refusal_text(text, sizeof text, "BTL verbs", here, kVersions, there, theirs);
  if (!mca_btl_verbs_component.claims.take_once(claim_key("btl-version", there.host))) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
}

}  // namespace

int read_ports(const opal_proc_t* proc, ModexPort* ports, bool* there) {
  void* data = nullptr;
  size_t size = 0;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV_STRING(rc, kKey, const_cast<opal_process_name_t*>(&proc->proc_name), &data, &size);
  const PeerRecord record = read_record(rc == OPAL_SUCCESS ? data : nullptr, size, engine::kModexMagic,
                                        engine::kFirstRanged, kVersions);
  const int count = engine::modex_ports(record, ports, kMaxModules);
  free(data);
  if (there != nullptr) *there = record.state != RecordState::kAbsent;
  // Without a record the peer has no port.
  if (record.state == RecordState::kOther || record.state == RecordState::kDamaged) say_refused(proc, record);
  return count;
}

int publish_ports(Component& component) {
  struct {
    WireRecord header;
    char ports[kMaxModules * sizeof(ModexPort)];
  } record{};
  size_t gids = 0;
  for (int i = 0; i < component.module_count; ++i)
    gids = std::max<size_t>(gids, component.modules[i]->place.gid_count);
  const size_t entry = engine::modex_entry_bytes(gids);
  record.header =
      make_record(engine::kModexMagic, kVersions, static_cast<size_t>(component.module_count), entry);
  for (int i = 0; i < component.module_count; ++i) {
    const Module& module = *component.modules[i];
    const engine::PortAddress& address = module.port.address();
    ModexPort port{};
    port.nonce = module.port.nonce();
    port.key[0] = module.port.key().low;
    port.key[1] = module.port.key().high;
    memcpy(port.gid, module.place.gid.raw, sizeof port.gid);
    port.cm_qpn = address.cm_qpn;
    port.heartbeat_qpn = address.heartbeat_qpn;
    port.qkey = address.qkey;
    port.receive_bytes = module.port.config().receive_bytes;
    port.lid = address.lid;
    port.link_layer = module.place.link_layer;
    port.mtu = address.mtu;
    port.lmc = address.lmc;
    port.ordinal = module.place.ordinal;
    port.position = module.place.position;
    engine::write_gids(module.place, &port);
    port.pkey = module.place.pkey;
    port.number = module.port.number();
    const char* const device = module.port.device().name();
    memcpy(port.device, device, strnlen(device, sizeof port.device));
    port.active = module.port.state() == engine::PortState::kActive;
    memcpy(record.ports + static_cast<size_t>(i) * entry, &port, entry);
  }
  int rc = OPAL_SUCCESS;
  const size_t size = sizeof record.header + static_cast<size_t>(component.module_count) * entry;
  OPAL_MODEX_SEND_STRING(rc, kModexGlobal, kKey, &record, size);
  return rc;
}

}  // namespace bfo::verbs
