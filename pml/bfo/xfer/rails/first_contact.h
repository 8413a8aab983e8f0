// SPDX-License-Identifier: BSD-3-Clause
//
// first_contact.h: FirstContact, whether the long messages to a peer wait until its rails are up. At the
// first contact they are connected one after the other, within milliseconds. The header of a long message
// offers the rails that are up, so a first window that is sent before that would be bound to the first of
// them, however slow it is. A rail that is dead must not cost every peer that time: a wait in vain makes
// those that follow short, until one has found all rails of its peer up. Used under the engine's lock. Needs
// no memory, cannot fail.
#pragma once

#include <cstdint>

namespace bfo::xfer {

/// Common to all peers.
struct Patience {
  bool in_vain = false;  ///< the last wait has ended without all rails
};

class FirstContact {
 public:
  /// Without any rail a message gets nowhere, but its BTL can keep it: it waits so many times as long.
  static constexpr uint64_t kFirstRail = 2;
  static constexpr uint64_t kInVain = 100;  ///< after a wait in vain only this part of the time

  /// No message waits any more.
  bool over() const { return over_; }
  /// Has one waited?
  bool waited() const { return waited_; }
  /// A rail is up.
  void met(uint64_t now_ns) {
    if (!met_) met_ns_ = now_ns;
    met_ = true;
  }
  /// Does a message that is there now wait? `up` of its rails are, `coming` may be soon. `wait_ns`: from the
  /// first rail on, for the others.
  bool waits(unsigned up, unsigned coming, uint64_t now_ns, uint64_t wait_ns, Patience& patience) {
    if (over_) return false;
    if (!waited_) since_ns_ = now_ns;
    if (coming != 0 && up + coming > 1) {
      const uint64_t from = up != 0 ? met_ns_ : since_ns_;
      const uint64_t most = up == 0 ? wait_ns * kFirstRail : patience.in_vain ? wait_ns / kInVain : wait_ns;
      if (now_ns - from < most) return waited_ = true;
    }
    if (waited_) patience.in_vain = coming != 0;
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
