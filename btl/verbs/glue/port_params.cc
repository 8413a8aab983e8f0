// SPDX-License-Identifier: BSD-3-Clause
//
// port_params.cc: the parameters that may have another value for each device or port (port_values.h).
#include "btl/verbs/engine/select/port_values.h"
#include "btl/verbs/glue/discover.h"
#include "common/shown_text.h"

namespace bfo::verbs {
namespace {

struct PortParam {
  const char* name;
  char* Params::*list;
  const char* fallback;
  engine::ValueRange range;
  mca_base_var_info_lvl_t level;
  const char* help;
};

constexpr PortParam kPortParams[] = {
    {"gid_index",
     &Params::gid_index,
     "auto",
     {0, 255, true},
     OPAL_INFO_LVL_4,
     "Index into the port's GID table. auto: on Ethernet all of them, for each peer the best one that fits "
     "one of its addresses (RoCE v2, IPv4), on InfiniBand 0. For single devices or ports: "
     "auto,mlx5_1:3,mlx5_2:1:5"},
    {"ib_service_level",
     &Params::ib_service_level,
     "0",
     {0, 15, false},
     OPAL_INFO_LVL_9,
     "InfiniBand service level; VALUE, DEVICE:VALUE or DEVICE:PORT:VALUE, comma-delimited. With "
     "btl_verbs_ib_path_record_service_level that of paths the subnet administrator does not know"},
    {"ib_traffic_class",
     &Params::ib_traffic_class,
     "0",
     {0, 255, false},
     OPAL_INFO_LVL_9,
     "Traffic class of packets with a global route header; VALUE, DEVICE:VALUE or DEVICE:PORT:VALUE, "
     "comma-delimited"},
    {"ib_pkey",
     &Params::ib_pkey,
     "",
     {1, 0xffff, false},
     OPAL_INFO_LVL_5,
     "Partition key, such as 0x8001; each port looks up the index it has it at. VALUE, DEVICE:VALUE or "
     "DEVICE:PORT:VALUE, comma-delimited (empty: btl_verbs_ib_pkey_index)"},
};

unsigned value_for(const char* list, const engine::PortFacts& port) {
  unsigned value = 0;
  static_cast<void>(engine::find_port_value(list, port.device, port.number, &value));
  return value;
}

}  // namespace

int register_port_params(Component& component) {
  for (const PortParam& param : kPortParams) {
    const int rc = register_string(component, param.name, param.help, param.level, param.fallback,
                                   &(component.params.*param.list));
    if (rc < 0) return rc;
  }
  return OPAL_SUCCESS;
}

void check_port_params(const Params& params) {
  for (const PortParam& param : kPortParams) {
    char wrong[96];
    if (engine::check_port_values(params.*param.list, param.range, wrong, sizeof wrong)) continue;
    char why[256];
    snprintf(why, sizeof why, "has \"%s\"; allowed are %u to %u%s, also as DEVICE:VALUE or DEVICE:PORT:VALUE",
             shown(wrong).c_str(), param.range.low, param.range.high,
             param.range.may_be_auto ? " and auto" : "");
    refuse_parameter(param.name, why);
  }
}

void set_address(const Params& params, const engine::PortFacts& facts, engine::Config* config) {
  config->qp.pkey_index = static_cast<uint16_t>(facts.pkey_index);
  config->qp.gid_index = static_cast<uint8_t>(facts.gid.index < 0 ? 0 : facts.gid.index);
  config->qp.service_level = static_cast<uint8_t>(value_for(params.ib_service_level, facts));
  config->qp.traffic_class = static_cast<uint8_t>(value_for(params.ib_traffic_class, facts));
  unsigned fixed = 0;
  if (engine::find_port_value(params.ib_pkey, facts.device, facts.number, &fixed))
    config->pkey = static_cast<uint16_t>(fixed);
  if (facts.link_layer != IBV_LINK_LAYER_ETHERNET) return;
  config->read_gids = read_usable_gids;
  config->gid_fixed = engine::find_port_value(params.gid_index, facts.device, facts.number, &fixed);
}

}  // namespace bfo::verbs
