// SPDX-License-Identifier: BSD-3-Clause
//
// kept.h: messages that no rail takes now, until one does. Nobody above sends them again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bfo::verbs {

/// A copy of one, with its bytes behind it.
struct KeptMessage {
  KeptMessage* next;
  uint64_t peer;
  size_t length;
  uint8_t tag;
  const char* data() const { return reinterpret_cast<const char*>(this + 1); }
};

/// In the order in which they came. Zero-initialised it is empty. Under the lock of progress, but for
/// count().
class KeptMessages {
 public:
  /// A rail that had no room has some soon; one that comes up takes longer than that.
  static constexpr uint64_t kRetryNs = 100'000;

  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  bool has(uint64_t peer) const {
    for (const KeptMessage* m = first_; m != nullptr; m = m->next)
      if (m->peer == peer) return true;
    return false;
  }
  /// False: there is no memory.
  bool keep(uint64_t peer, uint8_t tag, const void* data, size_t length) {
    auto* const message = static_cast<KeptMessage*>(malloc(sizeof(KeptMessage) + length));
    if (message == nullptr) return false;
    *message = {.next = nullptr, .peer = peer, .length = length, .tag = tag};
    memcpy(message + 1, data, length);
    KeptMessage** end = &first_;
    while (*end != nullptr) end = &(*end)->next;
    *end = message;
    count_.fetch_add(1, std::memory_order_relaxed);
    next_ns_ = 0;
    return true;
  }
  /// Shows each to `settled`, which returns whether it is over: sent, or for nobody. What is behind one for
  /// the same peer that stays is not shown: a rail may have room for it and not for that one. Not before the
  /// pause after the last time has passed. `settled` keeps none.
  template <class Settled>
  void offer(uint64_t now, Settled settled) {
    if (now < next_ns_) return;
    next_ns_ = now + kRetryNs;
    for (KeptMessage** at = &first_; *at != nullptr;) {
      KeptMessage* const message = *at;
      if (is_behind(*message) || !settled(static_cast<const KeptMessage&>(*message))) {
        at = &message->next;
        continue;
      }
      *at = message->next;
      free(message);
      count_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  void drop() {
    next_ns_ = 0;
    offer(0, [](const KeptMessage&) { return true; });
    next_ns_ = 0;
  }

 private:
  bool is_behind(const KeptMessage& message) const {
    const KeptMessage* m = first_;
    while (m->peer != message.peer) m = m->next;
    return m != &message;
  }

  KeptMessage* first_;
  std::atomic<uint64_t> count_;
  uint64_t next_ns_;
};

}  // namespace bfo::verbs
