// SPDX-License-Identifier: BSD-3-Clause
//
// port_query.cc: see port_query.h.
#include "btl/verbs/engine/device/port_query.h"

#include <arpa/inet.h>

namespace bfo::engine {

int index_of_pkey(const VerbsApi& api, ibv_context* context, uint8_t port, int entries, unsigned wished) {
  constexpr unsigned kMembership = 0x8000;
  int limited = -1;
  for (int index = 0; index < entries; ++index) {
    uint16_t entry = 0;
    if (api.query_pkey(context, port, index, &entry) != 0) continue;
    const unsigned pkey = ntohs(entry);
    if (((pkey ^ wished) & ~kMembership) != 0) continue;
    if ((pkey & kMembership) != 0) return index;
    if (limited < 0) limited = index;
  }
  return limited;
}

static void read_partition(const PortQuestion& question, PortReading* reading) {
  reading->pkey_index = question.pkey_index;
  if (reading->attr.state != IBV_PORT_ACTIVE) return;
  const VerbsApi& api = *question.api;
  if (question.pkey != 0) {
    reading->pkey_index =
        index_of_pkey(api, question.context, question.number, reading->attr.pkey_tbl_len, question.pkey);
  }
  uint16_t entry = 0;
  if (reading->pkey_index >= 0 &&
      api.query_pkey(question.context, question.number, reading->pkey_index, &entry) == 0) {
    reading->pkey = ntohs(entry);
  }
}

PortReading read_port(const PortQuestion& question) {
  PortReading reading;
  ibv_context* const context = question.context;
  reading.error = question.api->query_port(context, question.number, &reading.attr);
  if (reading.error != 0) return reading;
  if (reading.attr.state == IBV_PORT_ACTIVE)
    reading.rate = read_rate(*question.api, context, question.number, reading.attr);
  reading.gid_index = question.gid_index;
  reading.listed = question.read_gids != nullptr && reading.attr.state == IBV_PORT_ACTIVE;
  if (reading.listed) {
    reading.gids = question.read_gids(context, question.number, reading.attr, question.fixed_gid);
    if (reading.gids.count != 0) {
      reading.gid_index = static_cast<uint8_t>(reading.gids.entries[0].index);
      reading.gid = reading.gids.entries[0].gid;
    }
  } else if (question.api->query_gid(context, question.number, reading.gid_index, &reading.gid) != 0)
    reading.gid = ibv_gid{};
  read_partition(question, &reading);
  return reading;
}

}  // namespace bfo::engine
