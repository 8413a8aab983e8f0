// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_facts_main.cc: libFuzzer target for the files of the line at the end of a job; built and run by
// test/build/fuzz_soak.
#include "test/unit/fuzz_facts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bfo::test::read_and_print(data, size);
  return 0;
}
