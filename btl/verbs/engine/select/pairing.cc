// SPDX-License-Identifier: BSD-3-Clause
//
// pairing.cc: which port of a process meets which port of its peer.
#include "btl/verbs/engine/select/pairing.h"

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

/// A subnet as an address names it.
struct Subnet {
  GidEntry name;  // of two addresses in it the one that is preferred
  bool holds(const PublishedGid& gid) const {
    return same_type(gid.type, name.type) && gid_kind(gid.gid) == gid_kind(name.gid) &&
           same_subnet(gid.gid, gid.subnet_bits, name.gid, name.subnet_bits);
  }
  /// The address that `port` has in it, or nullptr.
  const PublishedGid* in(const PortPlace& port) const {
    for (size_t i = 0; i < port.gid_count; ++i) {
      if (holds(port.gids[i])) return &port.gids[i];
    }
    return nullptr;
  }
};

bool link_local(const PublishedGid& gid) {
  return gid_kind(gid.gid) == GidKind::kLinkLocal;
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
      if (ethernet(ours_[i])) continue;
      const size_t other = meet_in_fabric(ours_, our_count_, i, theirs_, their_count_);
      if (other != kNoPort) pair(i, other);
    }
  }

  /// One subnet after the other, the preferred one first: that is the same order on both sides.
  void by_subnet() {
    Subnet last;
    Subnet next;
    for (bool any = next_subnet(nullptr, &next); any; any = next_subnet(&last, &next)) {
      meet([&](const PortPlace& port) { return next.in(port); },
           [&](const PortPlace&, const PortPlace&) { return true; });
      last = next;
    }
  }

  void by_link_local() {
    for (const GidType type : {GidType::kRoceV2, GidType::kRoceV1}) {
      const auto address = [type](const PortPlace& port) -> const PublishedGid* {
        for (size_t i = 0; i < port.gid_count; ++i) {
          if (link_local(port.gids[i]) && same_type(port.gids[i].type, type)) return &port.gids[i];
        }
        return nullptr;
      };
      meet(address, [](const PortPlace& a, const PortPlace& b) {
        return !relation_of(a.gids, a.gid_count, b.gids, b.gid_count).apart;
      });
    }
  }

  /// What is left.
  void by_place() {
    const auto may = [this](const PortPlace& a, const PortPlace& b) {
      if (a.gid_count == 0 || b.gid_count == 0) return true;
      return !common_ && choose_pair(a.gids, a.gid_count, b.gids, b.gid_count).found();
    };
    for (size_t i = 0; i < our_count_; ++i) {
      for (size_t k = 0; k < their_count_; ++k) {
        if (free(i, k) && ours_[i].position == theirs_[k].position && may(ours_[i], theirs_[k])) pair(i, k);
      }
    }
    by_order(may);
  }

 private:
  void pair(size_t our, size_t their) {
    met_[our] = their;
    taken_[their] = true;
  }

  bool free(size_t our, size_t their) const {
    if (our >= our_count_ || their >= their_count_ || met_[our] != kNoPort || taken_[their]) return false;
    const PortPlace& a = ours_[our];
    const PortPlace& b = theirs_[their];
    return ethernet(a) && ethernet(b) && ((a.pkey ^ b.pkey) & kPartition) == 0;
  }

  /// Pairs ports that have an `address` each and `may` meet: of equal ordinals, then in their order.
  template <class Address, class May>
  void meet(Address address, May may) {
    const auto both = [&](size_t i, size_t k) {
      return free(i, k) && address(ours_[i]) != nullptr && address(theirs_[k]) != nullptr &&
             may(ours_[i], theirs_[k]);
    };
    for (size_t i = 0; i < our_count_; ++i) {
      for (size_t k = 0; k < their_count_; ++k) {
        if (!both(i, k) || address(ours_[i])->ordinal != address(theirs_[k])->ordinal) continue;
        pair(i, k);
        common_ = true;
      }
    }
    common_ = by_order([&](const PortPlace& a, const PortPlace& b) {
                return address(a) != nullptr && address(b) != nullptr && may(a, b);
              }) ||
              common_;
  }

  /// By the sum of the two indices: seen from the other side that is the same order. True when some met.
  template <class May>
  bool by_order(May may) {
    bool any = false;
    const auto meet_if = [&](size_t our, size_t their) {
      if (!free(our, their) || !may(ours_[our], theirs_[their])) return;
      pair(our, their);
      any = true;
    };
    for (size_t sum = 0; sum < our_count_ + their_count_; ++sum) {
      for (size_t low = 0; 2 * low <= sum; ++low) {
        meet_if(low, sum - low);
        meet_if(sum - low, low);
      }
    }
    return any;
  }

  /// The subnet behind `last` in the order of both processes' addresses, or the first one. Link-local ones
  /// are none.
  bool next_subnet(const Subnet* last, Subnet* next) const {
    bool any = false;
    const auto look = [&](const PortPlace* ports, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        for (size_t k = 0; ethernet(ports[i]) && k < ports[i].gid_count; ++k) {
          const PublishedGid& gid = ports[i].gids[k];
          if (link_local(gid)) continue;
          GidEntry entry;
          entry.type = gid.type;
          entry.subnet_bits = gid.subnet_bits;
          entry.gid = gid.gid;
          if (last != nullptr && (last->holds(gid) || !better_gid(last->name, entry))) continue;
          if (!any || better_gid(entry, next->name)) next->name = entry;
          any = true;
        }
      }
    };
    look(ours_, our_count_);
    look(theirs_, their_count_);
    return any;
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
  if (a.gid_count == 0 || b.gid_count == 0) return false;
  const PublishedGid& x = a.gids[0];
  const PublishedGid& y = b.gids[0];
  return x.type == y.type && same_subnet(x.gid, x.subnet_bits, y.gid, y.subnet_bits);
}

size_t meeting_port(const PortPlace* ours, size_t our_count, size_t which, const PortPlace* theirs,
                    size_t their_count) {
  Pairs pairs(ours, our_count, theirs, their_count);
  pairs.by_fabric();
  pairs.by_subnet();
  pairs.by_link_local();
  pairs.by_place();
  return pairs.of(which);
}

}  // namespace bfo::engine
