// SPDX-License-Identifier: BSD-3-Clause
//
// The control verb: one call of a verb that is not posting or polling, as the fault rules see it. On a real
// device these calls go through the kernel, so they can block and run out of resources. A rule with verb=
// makes a call do so.
#pragma once

#include <cstdint>

#include "contrib/softhca/fault/packet.h"

namespace bfo::softhca {

/// Every control verb of the ABI. An extended form counts as its plain one.
enum class ControlVerb : uint8_t {
  kGetDeviceList,
  kOpenDevice,
  kCloseDevice,
  kQueryDevice,
  kQueryPort,
  kQueryGid,
  kQueryPkey,
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kReregMr,
  kDeregMr,
  kAllocMw,
  kDeallocMw,
  kCreateCompChannel,
  kDestroyCompChannel,
  kCreateCq,
  kResizeCq,
  kDestroyCq,
  kCreateSrq,
  kModifySrq,
  kQuerySrq,
  kDestroySrq,
  kCreateQp,
  kModifyQp,
  kQueryQp,
  kDestroyQp,
  kCreateAh,
  kDestroyAh,
  kAttachMcast,
  kDetachMcast,
  kQueryPortSpeed,
};
inline constexpr unsigned kControlVerbCount = static_cast<unsigned>(ControlVerb::kQueryPortSpeed) + 1;
static_assert(kControlVerbCount <= 32, "a mask has a bit for each");
inline constexpr uint32_t kEveryVerb = ~uint32_t{0} >> (32 - kControlVerbCount);

constexpr uint32_t bit_of(ControlVerb verb) {
  return uint32_t{1} << static_cast<unsigned>(verb);
}

/// Whether the port of the call and its destination are both ACTIVE and in one segment. Any: not asked, or
/// there is no destination.
enum class Reach : uint8_t { kAny = 0, kYes = 1, kNo = 2 };

/// One call, before it does anything. What a verb does not have stays at its default and matches only rules
/// that do not ask for it.
struct VerbCall {
  ControlVerb verb = ControlVerb::kGetDeviceList;
  uint8_t service_mask = 0;  ///< bit of Service of the queue pair
  uint8_t state_mask = 0;    ///< bit of ibv_qp_state asked for (modify_qp)
  uint16_t node = kAnyId;
  uint16_t device = kAnyId;
  uint16_t port = kAnyId;
  uint16_t peer_node = kAnyId;  ///< node of the destination (create_ah, modify_qp with an address)
  uint32_t qpn = 0;
  Reach reach = Reach::kAny;  ///< of the destination, when the call has one
  uint64_t size = 0;          ///< bytes of the region, entries of the completion queue
  uint64_t time_ns = 0;
};

}  // namespace bfo::softhca
