// SPDX-License-Identifier: BSD-3-Clause
//
// Address handles, and multicast membership.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/fabric/gids.h"

namespace bfo::softhca {

bool is_address(const ibv_ah_attr& attr) {
  const FabricHeader& h = fabric().header();
  if (attr.port_num < 1 || attr.port_num > h.ports) return false;
  if (attr.is_global == 0) return !is_ethernet(h);
  return attr.grh.sgid_index < kMaxGids;
}

AddressVector address_of(ibv_context* context, const ibv_ah_attr& attr) {
  const FabricHeader& h = fabric().header();
  AddressVector av{};
  take_address(attr, av);
  if (is_ethernet(h)) {
    const uint32_t from = port_index(fabric().node(), of(context)->device, attr.port_num);
    av.dlid = is_address(attr) ? lid_of_gid(h, from, attr.grh.sgid_index, attr.grh.dgid.raw) : kNoLid;
  }
  return av;
}

int address_fault(ibv_context* context, const ibv_ah_attr& attr) {
  const FabricHeader& h = fabric().header();
  if (!is_address(attr)) return EINVAL;
  if (!is_ethernet(h) || attr.grh.dgid.raw[0] == 0xff) return 0;
  int why = 0;
  const uint32_t from = port_index(fabric().node(), of(context)->device, attr.port_num);
  return lid_of_gid(h, from, attr.grh.sgid_index, attr.grh.dgid.raw, &why) == kNoLid ? why : 0;
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  VerbCall call = at_port(attr->port_num);
  const AddressVector address = address_of(pd->context, *attr);
  aim(call, pd->context, attr->port_num, address);
  if (verb_fails(ControlVerb::kCreateAh, pd->context, call)) return nullptr;
  if (int why = address_fault(pd->context, *attr)) {
    errno = why;
    return nullptr;
  }
  Reservation reserved(pd->context, ObjectKind::kAh);
  auto* ah = reserved.taken() ? static_cast<Ah*>(std::calloc(1, sizeof(Ah))) : nullptr;
  if (ah == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ah->base.context = pd->context;
  ah->base.pd = pd;
  ah->av = address;
  of(pd)->refs.fetch_add(1);
  reserved.keep();
  return &ah->base;
}

SOFTHCA_EXPORT int ibv_destroy_ah(ibv_ah* base) {
  if (int why = verb_fault(ControlVerb::kDestroyAh, base->context)) return why;
  of(base->pd)->refs.fetch_sub(1);
  object_destroyed(base->context, ObjectKind::kAh);
  std::free(of(base));
  return 0;
}

SOFTHCA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attr) {
  std::memset(attr, 0, sizeof(*attr));
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  attr->is_global = 1;
  attr->grh.dgid = grh->sgid;
  if (port >= 1 && port <= fabric().header().ports) {
    const uint32_t here = port_index(fabric().node(), of(context)->device, port);
    attr->grh.sgid_index = static_cast<uint8_t>(index_of_gid(fabric().header(), here, grh->dgid.raw));
  }
  uint32_t flow_class = __builtin_bswap32(grh->version_tclass_flow);
  attr->grh.flow_label = flow_class & 0xfffff;
  attr->grh.hop_limit = grh->hop_limit;
  attr->grh.traffic_class = (flow_class >> 20) & 0xff;
  return 0;
}

SOFTHCA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

namespace {

bool same_group(const McastGroup& group, const ibv_gid* gid, uint16_t lid) {
  return group.used.load() != 0 && group.lid == lid && std::memcmp(group.gid, gid, sizeof(group.gid)) == 0;
}

}  // namespace

SOFTHCA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (int why = verb_fault(ControlVerb::kAttachMcast, qp->context, of_qp(qp))) return why;
  if (qp->qp_type != IBV_QPT_UD || gid->raw[0] != 0xff) return EINVAL;
  FabricHeader& h = fabric().header();
  Guard guard(h.registry_lock, fabric().tag(), fabric());
  McastGroup* place = nullptr;
  for (McastGroup& group : h.mcast) {
    if (same_group(group, gid, lid)) {
      place = &group;
      break;
    }
    if (place == nullptr && group.used.load() == 0) place = &group;
  }
  if (place == nullptr || place->count >= kMaxMcastMembers) return ENOMEM;
  if (place->used.load() == 0) {
    std::memcpy(place->gid, gid, sizeof(place->gid));
    place->lid = lid;
    place->count = 0;
    place->used.store(1);
  }
  for (uint32_t i = 0; i < place->count; ++i) {
    if (place->qpn[i] == qp->qp_num) return 0;
  }
  place->qpn[place->count++] = qp->qp_num;
  return 0;
}

SOFTHCA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (int why = verb_fault(ControlVerb::kDetachMcast, qp->context, of_qp(qp))) return why;
  FabricHeader& h = fabric().header();
  Guard guard(h.registry_lock, fabric().tag(), fabric());
  for (McastGroup& group : h.mcast) {
    if (!same_group(group, gid, lid)) continue;
    for (uint32_t i = 0; i < group.count; ++i) {
      if (group.qpn[i] != qp->qp_num) continue;
      group.qpn[i] = group.qpn[--group.count];
      if (group.count == 0) group.used.store(0);
      return 0;
    }
  }
  return EINVAL;
}
