// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_wire_main.cc: libFuzzer target for every header parser of pml/bfo, through the engine's dispatch;
// built and run by test/build/fuzz_soak. Input: any number of messages, each a length byte and that many
// bytes; the first byte of a message is its type.
#include "test/unit/fuzz_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bfo::test::FuzzTarget target;
  if (size == 0) return 0;
  target.step(data[0] % 40);
  ++data;
  --size;
  while (size > 1) {
    std::size_t n = data[0];
    ++data;
    --size;
    if (n > size) n = size;
    target.message(data, n);
    data += n;
    size -= n;
  }
  return 0;
}
