// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_packet_main.cc: libFuzzer target for the datagrams of btl/verbs: connection manager and heartbeat;
// built and run by test/build/fuzz_soak. Input: one byte for the state of the connection, then records
// (fuzz_packet.h).
#include <cstdlib>

#include "test/unit/fuzz_packet.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!bfo::test::packet_input(data, size)) abort();
  if (testing::Test::HasFailure()) abort();  // the books
  return 0;
}
