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
  uint8_t* base = nullptr;
  uint64_t length = 0;
  uint32_t owner = 0;      ///< process
  uint32_t next = 0;       ///< next region of the same request
  bool over = false;       ///< its request is complete
  bool undefined = false;  ///< .. with an error on a rail nobody could fence: its bytes are undefined (H12)
  bool deregistered = false;  ///< given back; the cache below keeps the key alive all the same
};

enum class Access : uint8_t { kOk, kLate, kOutside, kUndefined };

class Memory {
 public:
  void clear() {
    regions_.clear();
    regions_.emplace_back();  // key 0 names nothing
  }
  uint32_t add(uint32_t owner, uint8_t* base, uint64_t length) {
    Region r;
    r.base = base;
    r.length = length;
    r.owner = owner;
    regions_.push_back(r);
    return static_cast<uint32_t>(regions_.size() - 1);
  }
  Region& at(uint32_t key) { return regions_[key]; }
  bool known(uint32_t key) const { return key != 0 && key < regions_.size(); }
  /// May `owner`'s memory [address, address+length) be accessed with `key` now?
  Access check(uint32_t key, uint32_t owner, uint64_t address, uint64_t length) const {
    if (!known(key)) return Access::kOutside;
    const Region& r = regions_[key];
    const uint64_t begin = reinterpret_cast<uint64_t>(r.base);
    if (r.owner != owner) return Access::kOutside;
    if (address < begin || address + length > begin + r.length) return Access::kOutside;
    if (r.over) return r.undefined ? Access::kUndefined : Access::kLate;
    return Access::kOk;
  }

 private:
  std::vector<Region> regions_;
};

}  // namespace bfo::sim
