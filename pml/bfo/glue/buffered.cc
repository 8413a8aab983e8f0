// SPDX-License-Identifier: BSD-3-Clause
//
// buffered.cc: space in the user's buffer for MPI_Bsend.
#include "pml/bfo/glue/buffered.h"

#include <ctime>

namespace bfo::glue {
namespace {

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// What ended a message before the word that the program goes by came is with one of the rails by now, and a
/// rail without traffic is read in one turn of progress in many.
constexpr int kTurns = 64;

}  // namespace

int Buffered::take(SendRequest& req, int wait_ms) {
  ompi_request_t* handle = &req.base.req_base.req_ompi;
  int rc = mca_pml_base_bsend_request_start(handle);
  if (OPAL_UNLIKELY(rc != OMPI_SUCCESS)) {
    int32_t held = held_.load(std::memory_order_relaxed);
    int64_t end = now_ms() + wait_ms;
    int turns = 0;
    while (held != 0 && rc != OMPI_SUCCESS) {
      opal_progress();
      const int32_t now_held = held_.load(std::memory_order_relaxed);
      if (now_held == held) {
        if (++turns < kTurns || now_ms() < end) continue;
        break;
      }
      held = now_held;
      turns = 0;
      end = now_ms() + wait_ms;
      rc = mca_pml_base_bsend_request_start(handle);
    }
    if (rc != OMPI_SUCCESS) return rc;
    req.base.req_base.req_pml_complete = false;  // set by the attempt that failed
  }
  held_.fetch_add(1, std::memory_order_relaxed);
  return OMPI_SUCCESS;
}

void Buffered::give(SendRequest& req) {
  mca_pml_base_bsend_request_fini(&req.base.req_base.req_ompi);
  held_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace bfo::glue
