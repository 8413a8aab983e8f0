// SPDX-License-Identifier: BSD-3-Clause
//
// The pool: guarded, poisoned buffers. A received buffer is not reused at once: it stays in quarantine with
// its verified content and is looked at again later, which shows a write that arrives after the receive was
// complete. Afterwards it is poisoned, and the poison is looked at when the buffer is taken again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "test/integration/checker/report.h"
#include "test/integration/checker/stamp.h"

namespace bfo::checker {

/// A piece of memory with 64 guard bytes on both sides. Owned by the pool; users hold it between take and
/// give.
struct Buffer {
  uint8_t* base = nullptr;  ///< start of the allocation
  size_t capacity = 0;      ///< usable bytes behind the leading guard
  size_t shift = 0;         ///< misalignment of data() against the allocation
  size_t length = 0;        ///< bytes asked for
  uint8_t* data() const { return base + 64 + shift; }
  explicit operator bool() const { return base != nullptr; }
};

/// Not thread-safe: each worker has its own.
class Pool {
 public:
  using Clock = std::chrono::steady_clock;
  Pool(const Stamp& stamp, Report& report, std::chrono::milliseconds hold, size_t held_limit_bytes)
      : stamp_(stamp), report_(report), hold_(hold), held_limit_(held_limit_bytes) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void set_phase(const char* phase) { phase_ = phase; }
  /// A buffer full of receive poison (verified). `shift` < 64 misaligns it.
  Buffer take_recv(size_t bytes, size_t shift = 0);
  /// A buffer with unspecified content for a send.
  Buffer take_send(size_t bytes, size_t shift = 0);
  /// Bytes [0, written) belong to the message, everything else must still be poison.
  void check_outside(const Buffer& buffer, size_t written, const Message& message);
  /// The content was verified as `message`; keep it and verify it again later.
  void hold(Buffer buffer, const Message& message);
  /// A completed send: overwrite the buffer with the send poison so that a late read shows at the receiver.
  void give_send(Buffer buffer);
  /// A receive buffer whose content is of no interest (cancelled, truncated).
  void give_recv(Buffer buffer);
  /// Looks again at buffers whose time is over. Cheap when none is due.
  void tick();
  /// Waits until every held buffer has had its time, verifies all of them and all free buffers.
  void drain();
  /// Buffers in quarantine, oldest first: only for the self-test, which damages them.
  struct Held {
    Buffer buffer;
    Message message;
    Clock::time_point due;
  };
  std::deque<Held>& held() { return held_; }
  Buffer any_free();

 private:
  Buffer take(size_t bytes, size_t shift);
  void release_oldest();
  void verify_poison(const Buffer& buffer, const char* when);
  const Stamp& stamp_;
  Report& report_;
  std::chrono::milliseconds hold_;
  size_t held_limit_;
  const char* phase_ = "?";
  size_t held_bytes_ = 0;
  std::deque<Held> held_;
  std::map<size_t, std::deque<Buffer>> free_recv_, free_send_;
  std::vector<uint8_t*> allocations_;
};

}  // namespace bfo::checker
