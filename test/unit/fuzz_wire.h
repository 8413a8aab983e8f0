// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_wire.h: arbitrary bytes as messages to an engine with requests in every phase. Must never crash, never
// write outside a receive buffer, never complete a request twice. Used by the libFuzzer target and by a unit
// test.
#pragma once

#include <cstdint>
#include <vector>

#include "test/unit/fake_world.h"

namespace bfo::test {

/// A world in the middle of traffic: unmatched, receiving, granted and reading requests on rank 1.
class FuzzTarget {
 public:
  FuzzTarget() : world_(options()) {
    for (int i = 0; i < 4; ++i) world_.isend(0, 1, 100 + i, std::vector<uint8_t>(i % 2 ? 6000 : 40, 1));
    for (int i = 0; i < 4; ++i) {
      world_.irecv(1, 0, i, 6000);
      world_.isend(0, 1, i, std::vector<uint8_t>(6000, 2), xfer::SendMode::kStandard);
      world_.irecv(0, 1, i, 6000);
      world_.isend(1, 0, i, std::vector<uint8_t>(6000, 3), xfer::SendMode::kStandard);
    }
    for (auto& e : world_.engines) e->keep_alive();  // questions about the window, and their answers
  }

  static World::Options options() {
    World::Options o;
    o.put = true;
    o.get = false;
    return o;
  }

  /// Records what honest traffic looks like, as seeds for mutation.
  std::vector<std::vector<uint8_t>> step(int n) {
    std::vector<std::vector<uint8_t>> seen;
    for (int i = 0; i < n && !world_.flights.empty(); ++i) {
      if (!world_.flights[0].bytes.empty()) seen.push_back(world_.flights[0].bytes);
      world_.take();
    }
    return seen;
  }

  /// Both ranks get one message, of any tag. RDMA that a forged header would start is posted with addresses
  /// from the wire; a real HCA refuses them, the test drops such flights.
  void message(uint8_t tag, const uint8_t* data, size_t size) {
    for (int rank = 0; rank < 2; ++rank) {
      const size_t before = world_.flights.size();
      world_.engines[rank]->on_message(world_.rail(rank, 1 - rank, size & 1), 1, tag, data, size);
      for (size_t i = before; i < world_.flights.size();) {
        Flight& f = world_.flights[i];
        if (f.kind == Flight::Kind::kSend) {
          ++i;
          continue;
        }
        const Flight dropped = f;
        world_.flights.erase(world_.flights.begin() + static_cast<ptrdiff_t>(i));
        world_.end(dropped, Fate::kNeverSent);
      }
    }
  }

  World& world() { return world_; }

 private:
  World world_;
};

/// Any number of messages, after a byte that says how far honest traffic has come: each a length byte, a byte
/// with the bits in which its tag differs from its type, and as many bytes as the length says, of which the
/// first is the type.
inline void wire_input(const uint8_t* data, size_t size) {
  FuzzTarget target;
  if (size == 0) return;
  target.step(data[0] % 40);
  ++data;
  --size;
  while (size > 1) {
    size_t n = data[0];
    const uint8_t differs = data[1];
    data += 2;
    size -= 2;
    if (n > size) n = size;
    target.message(n != 0 ? static_cast<uint8_t>(data[0] ^ differs) : differs, data, n);
    data += n;
    size -= n;
  }
}

}  // namespace bfo::test
