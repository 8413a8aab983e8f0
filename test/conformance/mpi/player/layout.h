// SPDX-License-Identifier: BSD-3-Clause
// Layouts by name: how `n` elements of a base type lie in memory, drawn from a seed.
#pragma once

#include "test/conformance/mpi/player/shape.h"

#include <cstdint>
#include <string>

namespace player {

/// The shape of layout `kind` ("vector", "darray", ..) with exactly `n` elements of `base`. `receiving`: no
/// byte is covered twice. Ends the job for an unknown kind. "bottom" is a shape like others; its holder makes
/// the addresses absolute.
Shape make_layout(const std::string& kind, const Base& base, size_t n, uint64_t seed, bool receiving);

}  // namespace player
