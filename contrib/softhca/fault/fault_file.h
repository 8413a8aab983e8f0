// SPDX-License-Identifier: BSD-3-Clause
//
// The fault file: its text, for whoever reads one: the library at the start of a fabric, softhcactl.
#pragma once

#include <string>

namespace bfo::softhca {

/// Reads a regular file of at most kMaxFaultText bytes. It neither waits, for what is written into a FIFO,
/// nor reads without end. False and one sentence in `error`.
bool read_fault_file(const std::string& path, std::string& text, std::string& error);

}  // namespace bfo::softhca
