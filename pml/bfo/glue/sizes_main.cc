// SPDX-License-Identifier: BSD-3-Clause
//
// sizes_main.cc: prints the bytes the PML keeps per process, request and communicator.
#include "pml/bfo/glue/sizes.h"

#include <cstdio>

int main() {
  for (const bfo::glue::Size& s : bfo::glue::kSizes) std::printf("%s\t%zu\t%zu\n", s.what, s.bytes, s.limit);
  return 0;
}
