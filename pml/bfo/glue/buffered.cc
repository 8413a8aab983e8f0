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

// Copies the payload into the user's buffer; from there the message goes on. Open MPI's own function for
// this, mca_pml_base_bsend_request_start, counts the message after it has released its lock: of two threads
// one could be lost, and MPI_Buffer_detach waits until the count is 0 (4.1.4).
// mca_pml_base_bsend_request_alloc counts under the lock. Sets req_pml_complete when it fails. Any thread.
int put_in_buffer(SendRequest& req) {
  size_t length = req.base.req_bytes_packed;
  if (length == 0) return OMPI_SUCCESS;
  mca_pml_base_request_t& base = req.base.req_base;
  const int rc = mca_pml_base_bsend_request_alloc(&base.req_ompi);
  if (rc != OMPI_SUCCESS) return rc;
  iovec iov{const_cast<void*>(req.base.req_addr), length};  // a part of the user's buffer for such messages
  uint32_t count = 1;
  if (opal_convertor_pack(&base.req_convertor, &iov, &count, &length) < 0) {
    mca_pml_base_bsend_request_fini(&base.req_ompi);
    base.req_pml_complete = true;
    return OMPI_ERROR;
  }
  opal_convertor_prepare_for_send(&base.req_convertor, &ompi_mpi_byte.dt.super, req.base.req_bytes_packed,
                                  req.base.req_addr);
  return OMPI_SUCCESS;
}

}  // namespace

int Buffered::take(SendRequest& req, int wait_ms) {
  int rc = put_in_buffer(req);
  if (rc != OMPI_SUCCESS) [[unlikely]] {
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
      rc = put_in_buffer(req);
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
