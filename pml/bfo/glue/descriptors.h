// SPDX-License-Identifier: BSD-3-Clause
//
// descriptors.h: what all that is handed to a BTL in a descriptor has in common.
#pragma once

#include "pml/bfo/glue/port_types.h"

namespace bfo::glue {

/// The BTL frees the descriptor after the callback, or after a send that returned 1 without one.
inline constexpr uint32_t kQuiet = MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
/// The BTL always calls back: the engine counts every end.
inline constexpr uint32_t kDesFlags = kQuiet | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;

/// A descriptor was sent over the rail. Relaxed: read only after the connection has broken.
inline void note_carried(RailHandle& rail) {
  __atomic_store_n(&rail.carried, true, __ATOMIC_RELAXED);
}

}  // namespace bfo::glue
