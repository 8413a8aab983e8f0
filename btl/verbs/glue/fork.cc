// SPDX-License-Identifier: BSD-3-Clause
//
// fork.cc: keeps registered memory with this process when it forks.
#include "btl/verbs/engine/device/fork.h"

#include <dlfcn.h>

#include "btl/verbs/glue/component.h"

namespace bfo::verbs {

bool prepare_fork(const Params& params) {
  using Status = ibv_fork_status (*)();
  // Of rdma-core 35 and later; looked up, so that the component loads with older ones.
  const auto status = reinterpret_cast<Status>(dlsym(RTLD_DEFAULT, "ibv_is_fork_initialized"));
  const bool known = status != nullptr;
  const engine::ForkPlan plan =
      engine::fork_plan(params.want_fork_support, known, known ? status() : IBV_FORK_DISABLED);
  if (plan == engine::ForkPlan::kNothing) return true;
  const int rc = ibv_fork_init();
  if (rc == 0 || plan == engine::ForkPlan::kTry) return true;
  char why[160];
  snprintf(why, sizeof why, "is 1, but ibv_fork_init() fails (%s): set it to -1 to go on without",
           strerror(rc));
  say(true, "bad-parameter", "want_fork_support", why);
  return false;
}

}  // namespace bfo::verbs
