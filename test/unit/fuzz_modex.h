// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_modex.h: arbitrary bytes as the modex record of a peer. Reads nothing outside, and whatever the ports
// say, both processes find the same pairs. Used by the libFuzzer target and by a unit test.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "btl/verbs/engine/select/modex.h"

namespace bfo::test {

constexpr int kModexRoom = 16;

/// The places in a record, at most kModexRoom.
inline std::vector<engine::PortPlace> modex_places(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> exact(data, data + size);  // an access behind its end is seen
  engine::ModexPort ports[kModexRoom];
  const PeerRecord record = read_record(exact.data(), exact.size(), engine::kModexMagic, engine::kFirstRanged,
                                        {engine::kWireVersion, engine::kWireOldest});
  const int count = engine::modex_ports(record, ports, kModexRoom);
  if (count < 0 || count > kModexRoom) std::abort();
  std::vector<engine::PortPlace> places;
  for (int i = 0; i < count; ++i) places.push_back(engine::place_of(ports[i]));
  return places;
}

/// Two records in one input: the first byte says where the second one begins.
inline int modex_pairs(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t cut = 2 + (data[0] | data[1] << 8) % (size - 1);
  const auto ours = modex_places(data + 2, cut - 2);
  const auto theirs = modex_places(data + cut, size - cut);
  int pairs = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const size_t met = engine::meeting_port(ours.data(), ours.size(), i, theirs.data(), theirs.size());
    if (met == engine::kNoPort) continue;
    if (met >= theirs.size()) std::abort();
    const auto& a = ours[i];
    const auto& b = theirs[met];
    const engine::GidPair pair = engine::choose_pair(a.gids, a.gid_count, b.gids, b.gid_count);
    if (pair.found() && (pair.ours >= a.gid_count || pair.theirs >= b.gid_count)) std::abort();
    ++pairs;
  }
  return pairs;
}

}  // namespace bfo::test
