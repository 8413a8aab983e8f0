// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_modex_main.cc: libFuzzer target for the modex record; built and run by test/build/fuzz_soak.
#include "test/unit/fuzz_modex.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bfo::test::modex_pairs(data, size);
  return 0;
}
