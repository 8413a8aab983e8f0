// SPDX-License-Identifier: BSD-3-Clause
//
// The pool: free lists by power-of-two capacity, used first in first out so that a buffer rests as long as
// possible between two uses while the memory stays bounded and every buffer is reused often.
#include "test/integration/checker/pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <thread>

namespace bfo::checker {
namespace {
constexpr size_t kGuard = 64;
constexpr size_t kPage = 4096;
constexpr size_t kHeldBuffers = 50000;
}  // namespace

Pool::~Pool() {
  for (uint8_t* p : allocations_) std::free(p);
}

Buffer Pool::take(size_t bytes, size_t shift) {
  Buffer b;
  b.capacity = std::bit_ceil(std::max<size_t>(bytes + shift, 256));
  b.shift = shift;
  b.length = bytes;
  const size_t align = b.capacity < kPage ? kGuard : kPage;
  const size_t total = (b.capacity + 2 * kGuard + align - 1) / align * align;
  b.base = static_cast<uint8_t*>(std::aligned_alloc(align, total));
  if (!b.base) throw std::bad_alloc();
  allocations_.push_back(b.base);
  poison(b.base, b.capacity + 2 * kGuard, kRecvPoison);
  return b;
}

Buffer Pool::take_recv(size_t bytes, size_t shift) {
  auto& list = free_recv_[std::bit_ceil(std::max<size_t>(bytes + shift, 256))];
  if (list.empty()) return take(bytes, shift);
  Buffer b = list.front();
  list.pop_front();
  b.length = b.capacity;  // verify the whole of small buffers, the part in use of large ones
  if (b.capacity > 65536) b.length = bytes + shift;
  b.shift = 0;
  verify_poison(b, "free receive buffer was written to");
  b.shift = shift;
  b.length = bytes;
  return b;
}

Buffer Pool::take_send(size_t bytes, size_t shift) {
  auto& list = free_send_[std::bit_ceil(std::max<size_t>(bytes + shift, 256))];
  if (list.empty()) return take(bytes, shift);
  Buffer b = list.front();
  list.pop_front();
  b.shift = shift;
  b.length = bytes;
  return b;
}

void Pool::verify_poison(const Buffer& b, const char* when) {
  const size_t all = kGuard + b.length + kGuard;
  const size_t at = first_unpoisoned(b.base, all, kRecvPoison);
  if (at == all) return;
  report_.add(phase_, Kind::kLateWrite,
              std::string(when) + ": byte " +
                  std::to_string(static_cast<long>(at) - static_cast<long>(kGuard)) + " of a buffer of " +
                  std::to_string(b.capacity));
  poison(b.base, b.capacity + 2 * kGuard, kRecvPoison);
}

void Pool::check_outside(const Buffer& b, size_t written, const Message& m) {
  const size_t lead = kGuard + b.shift;
  size_t at = first_unpoisoned(b.base, lead, kRecvPoison);
  if (at != lead) {
    report_.add(phase_, Kind::kOverrun,
                describe(m) + ": byte " + std::to_string(lead - at) + " before the buffer");
    return;
  }
  const size_t behind = b.length + kGuard - written;
  at = first_unpoisoned(b.data() + written, behind, kRecvPoison);
  if (at != behind)
    report_.add(phase_, Kind::kOverrun,
                describe(m) + ": byte " + std::to_string(written + at) + " behind the message");
}

void Pool::hold(Buffer b, const Message& m) {
  held_.push_back({b, m, Clock::now() + hold_});
  held_bytes_ += b.capacity;
  while (!held_.empty() && (held_bytes_ > held_limit_ || held_.size() > kHeldBuffers)) release_oldest();
}

void Pool::release_oldest() {
  Held h = held_.front();
  held_.pop_front();
  held_bytes_ -= h.buffer.capacity;
  Finding f = stamp_.verify(h.buffer.data(), h.message);
  if (!f.ok()) {
    f.text = std::string("changed after the receive was complete (") + name_of(f.kind) + "): " + f.text;
    f.kind = Kind::kLateWrite;
    report_.add(phase_, f, h.message, "second look at");
  }
  check_outside(h.buffer, h.message.bytes, h.message);
  report_.rechecked(h.message.bytes);
  give_recv(h.buffer);
}

void Pool::give_recv(Buffer b) {
  poison(b.base, kGuard + b.shift + b.length + kGuard, kRecvPoison);
  free_recv_[b.capacity].push_back(b);
}

void Pool::give_send(Buffer b) {
  poison(b.data(), b.length, kSendPoison);
  free_send_[b.capacity].push_back(b);
}

void Pool::tick() {
  const auto now = Clock::now();
  while (!held_.empty() && held_.front().due <= now) release_oldest();
}

void Pool::drain() {
  if (!held_.empty()) std::this_thread::sleep_until(held_.back().due);
  while (!held_.empty()) release_oldest();
  for (auto& [capacity, list] : free_recv_) {
    for (Buffer b : list) {
      b.shift = 0;
      b.length = capacity;
      verify_poison(b, "free receive buffer was written to");
    }
  }
}

Buffer Pool::any_free() {
  for (auto& [capacity, list] : free_recv_)
    if (!list.empty()) return list.back();
  return {};
}

}  // namespace bfo::checker
