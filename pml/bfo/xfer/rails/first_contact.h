// SPDX-License-Identifier: BSD-3-Clause
//
// first_contact.h: FirstContact, whether the long messages to a peer wait until its rails are up. The header
// of a long message offers the rails that are up, so a first window that is sent before that would be bound
// to the first of them, however slow it is. Connecting takes milliseconds. Rails that are dead must not cost
// each of many peers the whole time: what was waited in vain is bounded, for all peers together. Used under
// the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace bfo::xfer {

/// Common to all peers.
class Patience {
 public:
  static constexpr uint64_t kMost = 4;      ///< times the bound, waited in vain by all together
  static constexpr uint64_t kInVain = 100;  ///< then only this part of it

  /// Do messages to any peer wait? Any thread.
  bool any() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  void begin() { waiting_.fetch_add(1, std::memory_order_relaxed); }
  void end() { waiting_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t bound(uint64_t wait_ns) const { return spent_ns_ < kMost * wait_ns ? wait_ns : wait_ns / kInVain; }
  void in_vain(uint64_t ns) { spent_ns_ += ns; }
  /// No rail of a peer is missing after that time.
  void rewarded(uint64_t ns) { spent_ns_ -= spent_ns_ < ns ? spent_ns_ : ns; }

 private:
  std::atomic<uint32_t> waiting_ = 0;
  uint64_t spent_ns_ = 0;
};

class FirstContact {
 public:
  /// Without any rail a message gets nowhere, but its BTL can keep it: it waits so many times as long.
  static constexpr uint64_t kFirstRail = 2;

  /// No message waits any more.
  bool over() const { return over_; }
  /// Has one waited?
  bool waited() const { return waited_; }
  /// A rail is up.
  void met(uint64_t now_ns) {
    if (!met_) met_ns_ = now_ns;
    met_ = true;
  }
  /// The peer is given up.
  void give_up(Patience& patience) {
    if (waited_ && !over_) patience.end();
    over_ = true;
  }
  /// Does a message that is there now wait? `up` of its rails are, `coming` may be soon. `wait_ns`: from the
  /// first rail on, for the others. Before the first message this process may have made no progress.
  bool waits(unsigned up, unsigned coming, uint64_t now_ns, uint64_t wait_ns, Patience& patience) {
    if (over_) return false;
    if (!waited_) since_ns_ = now_ns;
    const uint64_t from = up != 0 && met_ns_ > since_ns_ ? met_ns_ : since_ns_;
    if (coming != 0 && up + coming > 1) {
      const uint64_t most = up != 0 ? patience.bound(wait_ns) : wait_ns * kFirstRail;
      if (now_ns - from < most) {
        if (!waited_) patience.begin();
        return waited_ = true;
      }
    }
    if (waited_) patience.end();
    // Without any rail nothing was lost: the message had no other way.
    if (waited_ && up != 0) coming != 0 ? patience.in_vain(now_ns - from) : patience.rewarded(now_ns - from);
    over_ = true;
    return false;
  }

 private:
  bool over_ = false;
  bool waited_ = false;  ///< a message has
  bool met_ = false;
  uint64_t since_ns_ = 0;  ///< when the first message came
  uint64_t met_ns_ = 0;    ///< when the first rail was up
};

}  // namespace bfo::xfer
