// SPDX-License-Identifier: BSD-3-Clause
//
// early_losses.h: PEERLOST of peers that have no record here yet. It is sent only once, so it is stored:
// otherwise a later receive would wait for ever. It takes effect when the record is made. Each process has
// one to say, so their number is bounded: a process that makes up connections fills no memory. Owns its
// records, whose memory is the port's: free_all() gives it back. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "pml/bfo/xfer/base/by_key.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

class EarlyLosses {
 public:
  enum class Kept : uint8_t { kYes, kFull, kNoMemory };
  static constexpr size_t kMost = 4096;

  bool empty() const { return all_.empty(); }

  /// The first one of a connection counts.
  template <class Port>
  Kept keep(Port& port, uint64_t conn, const PeerLoss& loss) {
    if (all_.find(conn)) return Kept::kYes;
    if (all_.size() == kMost) return Kept::kFull;
    void* const memory = port.alloc(sizeof(Record));
    if (!memory) return Kept::kNoMemory;
    auto* const r = ::new (memory) Record{conn, loss};
    if (all_.add(port, r)) return Kept::kYes;
    port.free(r);
    return Kept::kNoMemory;
  }
  static constexpr size_t record_size() { return sizeof(Record); }

  /// False: there is none of connection `conn`. It is removed.
  template <class Port>
  bool take(Port& port, uint64_t conn, PeerLoss& loss) {
    Record* const r = conn != 0 ? all_.find(conn) : nullptr;
    if (!r) return false;
    loss = r->loss;
    all_.remove(r);
    port.free(r);
    if (all_.empty()) all_.drop(port);
    return true;
  }

  template <class Port>
  void free_all(Port& port) {
    uint32_t next = 0;
    while (Record* const r = all_.each(next)) port.free(r);
    all_.drop(port);
  }

 private:
  struct Record {
    uint64_t conn = 0;
    PeerLoss loss;
  };
  struct Conn {
    static uint64_t of(const Record* r) { return r->conn; }
  };
  ByKey<Record, Conn> all_;
};

}  // namespace bfo::xfer
