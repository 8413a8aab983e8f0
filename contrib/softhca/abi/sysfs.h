// SPDX-License-Identifier: BSD-3-Clause
//
// The sysfs stand-in: a folder next to the library with the class folders programs look for.
#pragma once

namespace bfo::softhca {

/// Absolute path without trailing slash. Never null.
const char* sysfs_path();

}  // namespace bfo::softhca
