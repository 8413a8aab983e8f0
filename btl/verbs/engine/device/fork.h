// SPDX-License-Identifier: BSD-3-Clause
//
// fork.h: whether ibv_fork_init() is to be called. Before Linux 5.12 a fork moves registered pages away from
// under the device as soon as the parent writes to them, unless the library keeps them from the child.
#pragma once

#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

enum class ForkPlan : uint8_t { kNothing, kTry, kMust };

/// `wanted`: -1 where it is needed, 0 never, 1 always. `status`: what ibv_is_fork_initialized() says;
/// `known`: it exists (rdma-core 35). Where nobody tells, it is taken to be needed.
constexpr ForkPlan fork_plan(int wanted, bool known, ibv_fork_status status) {
  if (wanted == 0) return ForkPlan::kNothing;
  if (known && status != IBV_FORK_DISABLED) return ForkPlan::kNothing;
  return wanted == 1 ? ForkPlan::kMust : ForkPlan::kTry;
}

}  // namespace bfo::engine
