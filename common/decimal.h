// SPDX-License-Identifier: BSD-3-Clause
//
// decimal.h: a number as text. Not std::to_string(): its table of digits is a symbol that every shared object
// with it exports, and the components export nothing but what Open MPI looks for.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace bfo {

inline std::string decimal(uint64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%" PRIu64, number);
  return digits;
}

}  // namespace bfo
