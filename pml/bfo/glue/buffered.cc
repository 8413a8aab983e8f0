// SPDX-License-Identifier: BSD-3-Clause
//
// buffered.cc: space in the user's buffer for MPI_Bsend.
#include "pml/bfo/glue/buffered.h"

#include <ctime>

#include "pml/bfo/glue/help.h"

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

// `to`: a part of the user's buffer for such messages. From 5.0 on the convertor leaves out the padding of
// long doubles, and that of 5.0.7 takes other bytes than those of some types of complex numbers.
bool pack(SendRequest& req, void* to, size_t length) {
  opal_convertor_t& conv = req.base.req_base.req_convertor;
  const bool staged = is_staged(req);
  if (staged || opal_convertor_need_buffers(&conv) != 0) {
    Cursor cursor;
    if (cursor.gather(Layout(conv, staged), to, length)) return true;
    if (staged && cursor.ok())
      show_help("device-not-buffered", accelerator_name(), static_cast<unsigned long>(length));
    return false;
  }
  iovec iov{to, length};
  uint32_t count = 1;
  return opal_convertor_pack(&conv, &iov, &count, &length) >= 0;
}

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
  if (!pack(req, const_cast<void*>(req.base.req_addr), length)) {
    mca_pml_base_bsend_request_fini(&base.req_ompi);
    base.req_pml_complete = true;
    return OMPI_ERROR;
  }
  base.req_convertor.flags |= kDeviceKnown;
  opal_convertor_prepare_for_send(&base.req_convertor, &ompi_mpi_byte.dt.super, req.base.req_bytes_packed,
                                  req.base.req_addr);
  req.staged = false;
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
