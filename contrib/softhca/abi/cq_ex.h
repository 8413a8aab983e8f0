// SPDX-License-Identifier: BSD-3-Clause
//
// Creating completion queues: what the plain and the extended call share.
#pragma once

#include "contrib/softhca/abi/objects.h"

namespace bfo::softhca {

/// A CQ in the fabric and its local object; nullptr with errno on failure.
Cq* new_cq(ibv_context* context, uint32_t entries, void* user, ibv_comp_channel* channel, int vector);

}  // namespace bfo::softhca
