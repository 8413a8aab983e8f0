// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_wire_main.cc: libFuzzer target for every header parser of pml/bfo, through the engine's dispatch;
// built and run by test/build/fuzz_soak.
#include "test/unit/fuzz_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bfo::test::wire_input(data, size);
  return 0;
}
