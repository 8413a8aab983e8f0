// SPDX-License-Identifier: BSD-3-Clause
//
// selection.cc: see selection.h.
#include "btl/verbs/engine/select/selection.h"

#include <algorithm>

#include "btl/verbs/engine/select/port_values.h"

namespace bfo::engine {
namespace {

constexpr bool given(const char* list) {
  return list != nullptr && *list != '\0';
}

/// What can be said of a port without the others.
PortVerdict judge_alone(const PortFacts& port, const SelectionRules& rules) {
  if (given(rules.include) && !names_port(rules.include, port.device, port.number))
    return PortVerdict::kExcluded;
  if (!given(rules.include) && given(rules.exclude) && names_port(rules.exclude, port.device, port.number))
    return PortVerdict::kExcluded;
  if (port.transport == Transport::kIwarp) return PortVerdict::kIwarp;
  if (port.transport != Transport::kInfiniband) return PortVerdict::kNoRc;
  if (!port.readable) return PortVerdict::kUnreadable;
  if (!port.active && port.pkey_index >= 0) {
    const bool joins = rules.failover && (given(rules.include) || port.had_link);
    return joins ? PortVerdict::kUsed : PortVerdict::kInactive;
  }
  if (port.gid.index < 0) return PortVerdict::kNoAddress;
  if (port.pkey_index < 0) return PortVerdict::kNoPartition;
  return PortVerdict::kUsed;
}

/// Nobody named these ports, and none is active: other BTLs carry the job, if there are any.
void drop_all_inactive(const PortFacts* ports, size_t count, PortVerdict* verdicts) {
  for (size_t i = 0; i < count; ++i) {
    if (verdicts[i] == PortVerdict::kUsed && ports[i].active) return;
  }
  for (size_t i = 0; i < count; ++i) {
    if (verdicts[i] == PortVerdict::kUsed) verdicts[i] = PortVerdict::kNoneActive;
  }
}

PortPlace place_of(const PortFacts& port) {
  PortPlace place;
  place.link_layer = port.link_layer;
  place.gid = port.gid.gid;
  place.pkey = port.pkey;
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return place;
  const bool single = port.gids.count == 0 && gid_kind(port.gid.gid) != GidKind::kNull;
  place.gid_count = single ? 1 : port.gids.count;
  for (size_t i = 0; i < place.gid_count; ++i) {
    const GidEntry& from = single ? port.gid : port.gids.entries[i];
    place.gids[i] = {from.gid, from.type, from.subnet_bits, 0};
  }
  return place;
}

/// Numbers the addresses of `place` that are in a subnet of an earlier port's.
void count_subnets(const PortPlace& earlier, PortPlace* place) {
  for (size_t i = 0; i < place->gid_count; ++i) {
    PublishedGid& gid = place->gids[i];
    for (size_t k = 0; k < earlier.gid_count; ++k) {
      const PublishedGid& other = earlier.gids[k];
      if (!same_type(gid.type, other.type) || gid_kind(gid.gid) != gid_kind(other.gid) ||
          !same_subnet(gid.gid, gid.subnet_bits, other.gid, other.subnet_bits))
        continue;
      ++gid.ordinal;
      break;
    }
  }
}

/// True when port `a` comes before port `b` where only some can be used: active, nearer, if that counts,
/// faster, earlier. So no port that is down takes the place of one that works.
bool before(const PortFacts* ports, size_t a, size_t b, bool locality) {
  if (ports[a].active != ports[b].active) return ports[a].active;
  if (locality && ports[a].distance != ports[b].distance) return ports[a].distance < ports[b].distance;
  if (ports[a].rate != ports[b].rate) return ports[a].rate > ports[b].rate;
  return a < b;
}

/// In each fabric the nearest ports are enough, and with failover a second one wherever it is. Every fabric
/// keeps a port: the peer may be in that one only.
void drop_far(const PortFacts* ports, size_t count, bool failover, PortVerdict* verdicts) {
  const unsigned enough = failover ? 2 : 1;
  for (size_t i = 0; i < count; ++i) {
    if (verdicts[i] != PortVerdict::kUsed) continue;
    unsigned earlier = 0;
    bool nearest = true;
    for (size_t k = 0; k < count; ++k) {
      // What was dropped in this round was farther than this port or equal, or comes after it.
      if (k == i || (verdicts[k] != PortVerdict::kUsed && verdicts[k] != PortVerdict::kFar)) continue;
      if (!same_fabric(place_of(ports[i]), place_of(ports[k]))) continue;
      if (ports[i].active && !ports[k].active) continue;
      nearest = nearest && ports[i].distance <= ports[k].distance;
      earlier += before(ports, k, i, true) ? 1 : 0;
    }
    if (!nearest && earlier >= enough) verdicts[i] = PortVerdict::kFar;
  }
}

void bound(const PortFacts* ports, size_t count, const SelectionRules& rules, PortVerdict* verdicts) {
  for (size_t i = 0; i < count; ++i) {
    if (verdicts[i] != PortVerdict::kUsed) continue;
    unsigned earlier = 0;
    for (size_t k = 0; k < count; ++k) {
      const bool candidate = verdicts[k] == PortVerdict::kUsed || verdicts[k] == PortVerdict::kTooMany;
      earlier += candidate && before(ports, k, i, !rules.ignore_locality) ? 1 : 0;
    }
    if (earlier >= rules.most) verdicts[i] = PortVerdict::kTooMany;
  }
}

/// True when the process could use the port if it were active and near.
bool counts(PortVerdict verdict) {
  return verdict == PortVerdict::kUsed || verdict == PortVerdict::kInactive ||
         verdict == PortVerdict::kNoneActive || verdict == PortVerdict::kFar ||
         verdict == PortVerdict::kTooMany;
}

}  // namespace

Transport transport_of(const ibv_device& device) {
  if (device.transport_type == IBV_TRANSPORT_IB) return Transport::kInfiniband;
  return device.transport_type == IBV_TRANSPORT_IWARP ? Transport::kIwarp : Transport::kOther;
}

bool had_link(const LinkTraces& traces) {
  constexpr uint8_t kDisabled = 3;
  constexpr uint16_t kMulticast = 0xc000;
  const bool signal = traces.state > IBV_PORT_DOWN || traces.phys_state > kDisabled;
  const bool in_subnet = traces.lid != 0 && traces.lid < kMulticast;
  const bool configured = traces.address == GidKind::kIpv4 || traces.address == GidKind::kGlobal;
  return signal || in_subnet || configured || traces.counted;
}

void select_ports(const PortFacts* ports, size_t count, const SelectionRules& rules, PortVerdict* verdicts) {
  for (size_t i = 0; i < count; ++i) verdicts[i] = judge_alone(ports[i], rules);
  if (!given(rules.include)) {
    if (!rules.alone) drop_all_inactive(ports, count, verdicts);
    if (!rules.ignore_locality) drop_far(ports, count, rules.failover, verdicts);
  }
  if (rules.most != 0) bound(ports, count, rules, verdicts);
}

bool left_out(const PortFacts& port, PortVerdict verdict) {
  return port.active && (verdict == PortVerdict::kFar || verdict == PortVerdict::kTooMany);
}

const char* verdict_text(PortVerdict verdict) {
  switch (verdict) {
    case PortVerdict::kUsed:
      return "is used";
    case PortVerdict::kExcluded:
      return "is not used: excluded by btl_verbs_if_include or btl_verbs_if_exclude";
    case PortVerdict::kIwarp:
      return "is not used: iWARP has no datagrams";
    case PortVerdict::kNoRc:
      return "is not used: its transport has no reliable connections";
    case PortVerdict::kUnreadable:
      return "is not used: its attributes cannot be read";
    case PortVerdict::kNotMade:
      return "is not used: what it needs could not be made";
    case PortVerdict::kInactive:
      return "is not used: it is not ACTIVE";
    case PortVerdict::kNoneActive:
      return "is not used: no port is ACTIVE, and other BTLs carry the job (name it in btl_verbs_if_include "
             "to wait for it)";
    case PortVerdict::kNoAddress:
      return "is not used: no usable address in its GID table (at btl_verbs_gid_index, if that is given)";
    case PortVerdict::kNoPartition:
      return "is not used: it is no member of the partition btl_verbs_ib_pkey";
    case PortVerdict::kFar:
      return "is not used: other ports are nearer to this process (btl_verbs_ignore_locality 1 uses it)";
    case PortVerdict::kTooMany:
      return "is not used: there are btl_verbs_max_btls ports without it";
  }
  return "is not used";
}

void place_ports(const PortFacts* ports, size_t count, const PortVerdict* verdicts, PortPlace* places) {
  for (size_t i = 0; i < count; ++i) {
    places[i] = place_of(ports[i]);
    for (size_t k = 0; k < i; ++k) {
      if (!counts(verdicts[k])) continue;
      places[i].ordinal += same_fabric(places[k], places[i]) ? 1 : 0;
      places[i].position += places[k].link_layer == places[i].link_layer ? 1 : 0;
      count_subnets(places[k], &places[i]);
    }
  }
}

bool prefixes_mislead(const PortFacts* ports, size_t count, const PortVerdict* verdicts, size_t* first,
                      size_t* second) {
  constexpr uint8_t kDefault[8] = {0xfe, 0x80};
  const auto suspect = [&](size_t i) {
    return verdicts[i] == PortVerdict::kUsed && ports[i].active && ports[i].lid != 0 &&
           ports[i].link_layer == IBV_LINK_LAYER_INFINIBAND &&
           std::equal(kDefault, kDefault + sizeof kDefault, ports[i].gid.gid.raw);
  };
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = i + 1; suspect(i) && k < count; ++k) {
      if (!suspect(k)) continue;
      if (ports[i].lid != ports[k].lid && ports[i].subnet_manager == ports[k].subnet_manager) continue;
      *first = i;
      *second = k;
      return true;
    }
  }
  return false;
}

bool speeds_are_mixed(const PortFacts* ports, size_t count, const PortVerdict* verdicts) {
  uint32_t fastest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (verdicts[i] == PortVerdict::kUsed && ports[i].active) fastest = std::max(fastest, ports[i].rate);
  }
  for (size_t i = 0; i < count; ++i) {
    if (left_out(ports[i], verdicts[i]) && ports[i].rate != fastest) return true;
  }
  return false;
}

}  // namespace bfo::engine
