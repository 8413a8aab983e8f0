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
  /// Without any rail a message gets nowhere, but its BTL can keep it.
  static constexpr uint64_t kFirstRailNs = 1'000'000'000;
  static constexpr uint64_t kOthersNs = 50'000'000;  ///< from the first rail on, for the others
  static constexpr uint64_t kInVainNs = 2'000'000;   ///< the same, after a wait in vain

  /// No message waits any more.
  bool over() const { return over_; }
  /// Has one waited?
  bool waited() const { return waited_; }
  /// A rail is up.
  void met(uint64_t now_ns) {
    if (!met_) met_ns_ = now_ns;
    met_ = true;
  }
  /// Does a message that is there now wait? `up` of its rails are, `coming` may be soon.
  bool waits(unsigned up, unsigned coming, uint64_t now_ns, Patience& patience) {
    if (over_) return false;
    const bool waited = waited_;
    if (!waited) since_ns_ = now_ns;
    if (coming != 0 && up + coming > 1) {
      const uint64_t from = up != 0 ? met_ns_ : since_ns_;
      const uint64_t most = up == 0 ? kFirstRailNs : patience.in_vain ? kInVainNs : kOthersNs;
      if (now_ns - from < most) return waited_ = true;
    }
    if (waited) patience.in_vain = coming != 0;
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
