// SPDX-License-Identifier: BSD-3-Clause
//
// shown_text.h: text of a user inside a message of one line.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace bfo {

/// At most `most` bytes of `text`; what is not printable ASCII is \xNN.
inline std::string shown(std::string_view text, size_t most = 60) {
  std::string line;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      line += c;
      continue;
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", byte);
    line += hex;
  }
  return text.size() > most ? line + "..." : line;
}

}  // namespace bfo
