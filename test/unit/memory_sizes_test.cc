// SPDX-License-Identifier: BSD-3-Clause
//
// memory_sizes_test.cc: the component's memory per process, request and communicator stays within its limits.
#include <gtest/gtest.h>

#include "pml/bfo/glue/sizes.h"

namespace bfo::glue {
namespace {

TEST(MemorySizes, NothingOutgrowsItsLimit) {
  for (const Size& s : kSizes) EXPECT_LE(s.bytes, s.limit) << s.what;
}

/// What Open MPI's own part leaves: a rendezvous, a rail and its record are elsewhere.
TEST(MemorySizes, RequestsAddLittleToOpenMpis) {
  EXPECT_LE(sizeof(SendRequest) - sizeof(mca_pml_base_send_request_t), 120u);
  EXPECT_LE(sizeof(RecvRequest) - sizeof(mca_pml_base_recv_request_t), 152u);
}

}  // namespace
}  // namespace bfo::glue
