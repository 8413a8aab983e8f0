// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h: the memory of all simulated processes as their HCAs see it. A registration (Region) belongs to
// one request and ends with it: an access of a rail after that is the bug P2 forbids, and is found at
// the moment it happens, whatever the bytes.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <vector>

namespace bfo::sim {

struct Region {
  std::uint8_t* base = nullptr;
  std::uint64_t length = 0;
  std::uint32_t owner = 0;  ///< process
  std::uint32_t next = 0;   ///< next region of the same request
  bool over = false;        ///< its request is complete
  bool undefined = false;   ///< .. with an error on a rail nobody could fence: its bytes are undefined (H12)
  bool deregistered = false;  ///< given back; the cache below keeps the key alive all the same
};

enum class Access : std::uint8_t { kOk, kLate, kOutside, kUndefined };

class Memory {
 public:
  void clear() {
    regions_.clear();
    regions_.emplace_back();  // key 0 names nothing
  }
  std::uint32_t add(std::uint32_t owner, std::uint8_t* base, std::uint64_t length) {
    Region r;
    r.base = base;
    r.length = length;
    r.owner = owner;
    regions_.push_back(r);
    return static_cast<std::uint32_t>(regions_.size() - 1);
  }
  Region& at(std::uint32_t key) { return regions_[key]; }
  bool known(std::uint32_t key) const { return key != 0 && key < regions_.size(); }
  /// May `owner`'s memory [address, address+length) be accessed with `key` now?
  Access check(std::uint32_t key, std::uint32_t owner, std::uint64_t address, std::uint64_t length) const {
    if (!known(key)) return Access::kOutside;
    const Region& r = regions_[key];
    const std::uint64_t begin = reinterpret_cast<std::uint64_t>(r.base);
    if (r.owner != owner) return Access::kOutside;
    if (address < begin || address + length > begin + r.length) return Access::kOutside;
    if (r.over) return r.undefined ? Access::kUndefined : Access::kLate;
    return Access::kOk;
  }

 private:
  std::vector<Region> regions_;
};

}  // namespace bfo::sim
