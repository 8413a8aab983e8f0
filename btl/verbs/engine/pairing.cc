// SPDX-License-Identifier: BSD-3-Clause
//
// pairing.cc: which port of a process meets which port of its peer.
#include "btl/verbs/engine/pairing.h"

#include <algorithm>

namespace bfo::engine {
namespace {

constexpr uint16_t kPartition = 0x7fff;  // the top bit of a P_Key is its membership

/// The port of `ports` in the fabric of `like` with this ordinal, or kNoPort.
size_t same_ordinal(const PortPlace* ports, size_t count, const PortPlace& like) {
  for (size_t i = 0; i < count; ++i) {
    if (ports[i].ordinal == like.ordinal && same_fabric(ports[i], like)) return i;
  }
  return kNoPort;
}

/// The port in the fabric of ours[which] that it meets there.
size_t meet_in_fabric(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                      size_t their_count) {
  const PortPlace& self = ours[which];
  if (const size_t equal = same_ordinal(theirs, their_count, self); equal != kNoPort) return equal;
  size_t before = 0;  // ports of ours before this one without an equal
  for (size_t i = 0; i < which; ++i) {
    if (same_fabric(ours[i], self) && same_ordinal(theirs, their_count, ours[i]) == kNoPort) ++before;
  }
  for (size_t i = 0; i < their_count; ++i) {
    if (!same_fabric(theirs[i], self) || same_ordinal(ours, our_count, theirs[i]) != kNoPort) continue;
    if (before-- == 0) return i;
  }
  return kNoPort;
}

bool ethernet(const PortPlace& place) {
  return place.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/// The pairs of two processes while they are being found.
class Pairs {
 public:
  Pairs(const PortPlace* ours, size_t our_count, const PortPlace* theirs, size_t their_count)
      : ours_(ours),
        theirs_(theirs),
        our_count_(std::min(our_count, kMaxPlaces)),
        their_count_(std::min(their_count, kMaxPlaces)) {
    std::fill_n(met_, kMaxPlaces, kNoPort);
  }

  size_t of(size_t which) const { return which < kMaxPlaces ? met_[which] : kNoPort; }

  void by_fabric() {
    for (size_t i = 0; i < our_count_; ++i) {
      const size_t other = meet_in_fabric(ours_, our_count_, i, theirs_, their_count_);
      if (other == kNoPort) continue;
      pair(i, other);
      common_ = common_ || ethernet(ours_[i]);
    }
  }

  void by_position() {
    for (size_t i = 0; i < our_count_; ++i) {
      for (size_t k = 0; k < their_count_; ++k) {
        if (ours_[i].position == theirs_[k].position && may_meet(i, k)) pair(i, k);
      }
    }
  }

  /// What is left, by the sum of the two indices: seen from the other side that is the same order.
  void by_order() {
    for (size_t sum = 0; sum < our_count_ + their_count_; ++sum) {
      for (size_t low = 0; 2 * low <= sum; ++low) {
        if (may_meet(low, sum - low)) pair(low, sum - low);
        if (may_meet(sum - low, low)) pair(sum - low, low);
      }
    }
  }

 private:
  void pair(size_t our, size_t their) {
    met_[our] = their;
    taken_[their] = true;
  }

  bool may_meet(size_t our, size_t their) const {
    if (our >= our_count_ || their >= their_count_ || met_[our] != kNoPort || taken_[their]) return false;
    const PortPlace& a = ours_[our];
    const PortPlace& b = theirs_[their];
    if (!ethernet(a) || !ethernet(b) || ((a.pkey ^ b.pkey) & kPartition) != 0) return false;
    if (a.subnet_bits == 0 || b.subnet_bits == 0) return true;
    return !common_ && a.routable && b.routable && gid_kind(a.gid) == gid_kind(b.gid);
  }

  const PortPlace* ours_;
  const PortPlace* theirs_;
  size_t our_count_;
  size_t their_count_;
  size_t met_[kMaxPlaces];
  bool taken_[kMaxPlaces] = {};
  bool common_ = false;  // some Ethernet subnet is on both sides
};

}  // namespace

bool same_fabric(const PortPlace& a, const PortPlace& b) {
  if (a.link_layer != b.link_layer || ((a.pkey ^ b.pkey) & kPartition) != 0) return false;
  if (!ethernet(a)) return a.gid.global.subnet_prefix == b.gid.global.subnet_prefix;
  return a.subnet_bits != 0 && same_subnet(a.gid, a.subnet_bits, b.gid, b.subnet_bits);
}

size_t meeting_port(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                    size_t their_count) {
  Pairs pairs(ours, our_count, theirs, their_count);
  pairs.by_fabric();
  pairs.by_position();
  pairs.by_order();
  return pairs.of(which);
}

}  // namespace bfo::engine
