// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fake_verbs.h: what the engine is given in a test: the verbs of the fake fabric, virtual time and a
// repeatable random source.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/device/verbs_api.h"
#include "test/unit/btl_fake_fabric.h"

namespace bfo::test {

/// The verbs table of the current FakeFabric.
const engine::VerbsApi& fake_verbs();

/// Virtual time; only tests move it.
uint64_t& fake_now();
/// What the process has waited for a processor so far; UINT64_MAX: nobody knows.
uint64_t& fake_starved();
const engine::Environment& fake_environment();

}  // namespace bfo::test
