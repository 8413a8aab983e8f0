// SPDX-License-Identifier: BSD-3-Clause
//
// port_values.h: parameters that may have another value for one device or port: a comma-delimited list of
// VALUE, DEVICE:VALUE and DEVICE:PORT:VALUE, such as "0,mlx5_1:3,mlx5_2:1:5".
#pragma once

#include <cstddef>
#include <cstdint>

namespace bfo::engine {

/// The range of a value and whether the word "auto" is one.
struct ValueRange {
  unsigned low = 0;
  unsigned high = 0;
  bool may_be_auto = false;
};

/// True when `list` is well-formed and all values are in `range`. Otherwise the first wrong entry is copied
/// to `wrong` (NUL-terminated, cut to `size` bytes). Values are decimal, or hexadecimal after 0x. An empty
/// list is well-formed.
bool check_port_values(const char* list, const ValueRange& range, char* wrong, size_t size);

/// The value of the most specific entry for the port: DEVICE:PORT before DEVICE before neither; of equally
/// specific ones the last. False when there is none or it is "auto". `list` must have passed the check.
bool find_port_value(const char* list, const char* device, unsigned port, unsigned* value);

/// True when `list` (comma-delimited DEVICE or DEVICE:PORT) names the port.
bool names_port(const char* list, const char* device, unsigned port);

/// Copies entry number `index` of a comma-delimited list. False when there are fewer.
bool list_entry(const char* list, size_t index, char* entry, size_t size);

}  // namespace bfo::engine
