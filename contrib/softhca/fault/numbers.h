// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers of the fault language: counts, sizes, times and fractions, read strictly and written back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bfo::softhca {

/// Decimal or 0x hexadecimal without a sign; nothing may follow. Empty when it is not that or exceeds 64
/// bits.
std::optional<uint64_t> read_number(std::string_view text);

/// A number of bytes with an optional K, M or G (1024).
std::optional<uint64_t> read_size(std::string_view text);

/// A number with its unit us, ms or s; result in ns, less than 2^62.
std::optional<uint64_t> read_time_ns(std::string_view text);

/// 0.25 or 25%, as a fraction of 2^64; 1 gives all ones.
std::optional<uint64_t> read_fraction(std::string_view text);

std::string write_time(uint64_t ns);  ///< largest unit that keeps it exact; ns must be whole microseconds
std::string write_size(uint64_t bytes);
std::string write_fraction(uint64_t fraction);  ///< reads back as the same value

}  // namespace bfo::softhca
