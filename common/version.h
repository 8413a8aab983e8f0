// SPDX-License-Identifier: BSD-3-Clause
//
// version.h: which build this is. The text is made by contrib/version when the product is built.
#pragma once

namespace bfo {

/// The release, or the release with the commit: "0.1.0", "0.1.0+g84288fe0a1".
extern const char kBuild[];

/// Number `part` of the release `text`: 0 the major one, 1 the minor one, 2 the one behind it.
constexpr int version_part(const char* text, int part) {
  for (; part > 0 && *text != '\0'; ++text) part -= *text == '.' ? 1 : 0;
  int number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return number;
}
static_assert(version_part("3.14.15", 0) == 3 && version_part("3.14.15", 1) == 14 &&
              version_part("3.14.15", 2) == 15);

}  // namespace bfo
