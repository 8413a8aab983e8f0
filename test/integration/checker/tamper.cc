// SPDX-License-Identifier: BSD-3-Clause
//
// The tamper: each way in which a failover could damage a message, done on purpose.
#include "test/integration/checker/tamper.h"

#include <cstring>
#include <vector>

namespace bfo::checker {

const char* Tamper::name(Mode mode) {
  static constexpr const char* kNames[] = {
      "off",       "corrupt",      "torn",    "stale",     "early",           "doubled",
      "reordered", "misdelivered", "shifted", "late-read", "late-write-held", "late-write-free",
      "overrun",   "underrun",     "status",  "tiny-swap"};
  static_assert(std::size(kNames) == static_cast<size_t>(Mode::kCount));
  return kNames[static_cast<size_t>(mode)];
}

Kind Tamper::expected(Mode mode) {
  switch (mode) {
    case Mode::kCorrupt:
      return Kind::kCorrupt;
    case Mode::kTorn:
      return Kind::kTorn;
    case Mode::kStale:
      return Kind::kStale;
    case Mode::kEarly:
      return Kind::kEarly;
    case Mode::kDoubled:
      return Kind::kDoubled;
    case Mode::kReordered:
      return Kind::kReordered;
    case Mode::kMisdelivered:
      return Kind::kMisdelivered;
    case Mode::kShifted:
      return Kind::kShifted;
    case Mode::kLateRead:
      return Kind::kLateRead;
    case Mode::kLateWriteHeld:
    case Mode::kLateWriteFree:
      return Kind::kLateWrite;
    case Mode::kOverrun:
    case Mode::kUnderrun:
      return Kind::kOverrun;
    case Mode::kStatus:
      return Kind::kStatus;
    case Mode::kTinySwap:
      return Kind::kReordered;
    case Mode::kOff:
    case Mode::kCount:
      break;
  }
  return Kind::kOk;
}

void Tamper::before_verify(const Stamp& stamp, Buffer& b, const Message& due, int* count) {
  if (mode_ == Mode::kOff || fired_ || due.seq == 0) return;
  const bool wants_tiny = mode_ == Mode::kTinySwap;
  if (wants_tiny ? (due.bytes < 5 || due.bytes > 63) : due.bytes < 256) return;
  Message other = due;
  std::vector<uint8_t> bytes(due.bytes);
  auto replace = [&](size_t from) {
    stamp.fill(bytes.data(), other);
    std::memcpy(b.data() + from, bytes.data() + from, due.bytes - from);
  };
  fired_ = true;
  const size_t half = due.bytes / 2;
  switch (mode_) {
    case Mode::kCorrupt:
      b.data()[half] ^= 0x10;
      break;
    case Mode::kTorn:
      poison(b.data() + half, due.bytes - half, kRecvPoison);
      break;
    case Mode::kStale:
      other.seq = due.seq - 1;
      replace(half);
      break;
    case Mode::kEarly:
      other.seq = due.seq + 1;
      replace(half);
      break;
    case Mode::kDoubled:
      other.seq = due.seq - 1;
      replace(0);
      break;
    case Mode::kReordered:
    case Mode::kTinySwap:
      other.seq = due.seq + 1;
      replace(0);
      break;
    case Mode::kMisdelivered:
      other.stream.tag ^= 1;
      replace(0);
      break;
    case Mode::kShifted:
      std::memmove(b.data() + half / 8 * 8, b.data() + half / 8 * 8 - 64, due.bytes / 4);
      break;
    case Mode::kLateRead:
      poison(b.data() + half, due.bytes - half, kSendPoison);
      break;
    case Mode::kOverrun:
      b.data()[b.length] = 0;
      break;
    case Mode::kUnderrun:
      b.data()[-1] = 0;
      break;
    case Mode::kStatus:
      *count -= 1;
      break;
    default:
      fired_ = false;
      break;
  }
}

void Tamper::after_verify(Pool& pool) {
  if (fired_) return;
  if (mode_ == Mode::kLateWriteHeld) {
    for (auto& h : pool.held()) {
      if (h.message.bytes < 256) continue;
      h.buffer.data()[100] ^= 1;
      fired_ = true;
      return;
    }
  } else if (mode_ == Mode::kLateWriteFree) {
    if (Buffer b = pool.any_free()) {
      b.data()[10] ^= 1;
      fired_ = true;
    }
  }
}

}  // namespace bfo::checker
