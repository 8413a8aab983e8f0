// SPDX-License-Identifier: BSD-3-Clause
//
// See subnet.h.
#include "contrib/softhca/engine/subnet.h"

#include <infiniband/verbs.h>

#include <cstring>

#include "contrib/softhca/engine/responder.h"
#include "contrib/softhca/fabric/gids.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kGsiQpn = 1;
constexpr uint32_t kGsiQkey = 0x80010000;
constexpr uint64_t kWhole = ~uint64_t{0};

// A MAD of subnet administration: offsets in bytes; numbers are big-endian.
constexpr uint32_t kMadBytes = 256;
constexpr uint32_t kMethod = 3;
constexpr uint32_t kStatus = 4;
constexpr uint32_t kAttribute = 16;
constexpr uint32_t kComponentMask = 48;
constexpr uint32_t kDgid = 64;
constexpr uint32_t kSgid = 80;
constexpr uint32_t kDlid = 96;
constexpr uint32_t kSlid = 98;
constexpr uint32_t kNumbPath = 105;
constexpr uint32_t kPkey = 106;
constexpr uint32_t kServiceLevel = 109;
constexpr uint32_t kMtu = 110;
constexpr uint32_t kRate = 111;
constexpr uint32_t kLifetime = 112;

constexpr uint8_t kGet = 0x01;
constexpr uint8_t kGetResponse = 0x81;
constexpr uint16_t kPathRecord = 0x35;
constexpr uint64_t kBothLids = 0x30;  // components DLID and SLID

constexpr uint16_t kNotSupported = 0x000c;
constexpr uint16_t kInvalidRequest = 0x0200;
constexpr uint16_t kNoRecords = 0x0300;

uint64_t get(const uint8_t* at, uint32_t bytes) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}
void put16(uint8_t* at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

/// Index of the port that has `lid`; kNone = none has.
uint32_t port_of(const FabricHeader& h, uint64_t lid) {
  if (lid == 0 || lid >= kMaxLids) return kNone;
  return h.lid_to_port[lid].load(std::memory_order_relaxed) - 1u;
}

/// Every rail is a subnet.
bool in_one_subnet(uint32_t a, uint32_t b) {
  return port_device(a) == port_device(b) && port_number(a) == port_number(b);
}

/// Fills in the record that `mad` asks for. 0 or the status that says why there is none.
uint16_t find_path(const FabricHeader& h, uint8_t* mad) {
  constexpr uint8_t kExactly = 2 << 6;
  constexpr uint8_t kMtu4096 = 5;
  constexpr uint8_t k100Gbit = 16;
  constexpr uint8_t kLife1s = 18;  // 4.096 us * 2^18
  if (get(mad + kAttribute, 2) != kPathRecord) return kNotSupported;
  if ((get(mad + kComponentMask, 8) & kBothLids) != kBothLids) return kInvalidRequest;
  const uint32_t to = port_of(h, get(mad + kDlid, 2));
  const uint32_t from = port_of(h, get(mad + kSlid, 2));
  if (h.path_level == kPathRefused || to == kNone || from == kNone || !in_one_subnet(from, to))
    return kNoRecords;
  make_gid(h, to, 0, mad + kDgid);
  make_gid(h, from, 0, mad + kSgid);
  mad[kNumbPath] = 0x80 | 1;  // reversible
  put16(mad + kPkey, h.ports_table[to].pkey[0].load(std::memory_order_relaxed));
  mad[kServiceLevel] = static_cast<uint8_t>(h.path_level);
  mad[kMtu] = kExactly | kMtu4096;
  mad[kRate] = kExactly | k100Gbit;
  mad[kLifetime] = kExactly | kLife1s;
  return 0;
}

}  // namespace

bool is_for_administrator(const FabricHeader& h, const QpEntry& qp, const Wqe& wqe) {
  return qp.type == IBV_QPT_UD && wqe.dst_qpn == kGsiQpn && wqe.dlid == manager_lid(h);
}

bool administrate(Fabric& fabric, QpEntry& qp, const Wqe& wqe, const uint8_t* request, uint32_t length,
                  DeferredActions& deferred) {
  constexpr uint8_t kHeader[] = {1, 3, 2, kGet};  // base version, class, class version, method
  const FabricHeader& h = fabric.header();
  const uint32_t qkey = (wqe.qkey & 0x80000000u) != 0 ? qp.attr.qkey : wqe.qkey;
  if (is_ethernet(h) || qkey != kGsiQkey || length != kMadBytes ||
      std::memcmp(request, kHeader, sizeof kHeader) != 0) {
    return false;
  }
  uint8_t mad[kMadBytes];
  std::memcpy(mad, request, sizeof mad);
  mad[kMethod] = kGetResponse;
  put16(mad + kStatus, find_path(h, mad));
  // The interface of the manager's port sends it.
  QpEntry from{};
  from.type = IBV_QPT_UD;
  from.qpn.store(kGsiQpn);
  from.attr.qkey = kGsiQkey;
  const uint32_t manager = port_of(h, manager_lid(h));
  from.port_index = manager != kNone ? manager : qp.port_index;
  Wqe answer{};
  answer.opcode = static_cast<uint8_t>(Opcode::kSend);
  answer.length = kMadBytes;
  answer.packets = 1;
  answer.qkey = kGsiQkey;
  answer.sl = wqe.sl;
  const Sge bytes{reinterpret_cast<uint64_t>(mad), kMadBytes, 0};
  respond(fabric, from, answer, qp.qpn.load(std::memory_order_relaxed), qp.port_index, &bytes, 1, kWhole,
          deferred);
  return true;
}

}  // namespace bfo::softhca
