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

#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

class EarlyLosses {
 public:
  enum class Kept : uint8_t { kYes, kFull, kNoMemory };
  static constexpr size_t kMost = 4096;

  bool empty() const { return first_ == nullptr; }

  /// The first one of a connection counts.
  template <class Port>
  Kept keep(Port& port, uint64_t conn, const PeerLoss& loss) {
    size_t kept = 0;
    for (Record* r = first_; r; r = r->next, ++kept)
      if (r->conn == conn) return Kept::kYes;
    if (kept == kMost) return Kept::kFull;
    void* const memory = port.alloc(sizeof(Record));
    if (!memory) return Kept::kNoMemory;
    first_ = ::new (memory) Record{first_, conn, loss};
    return Kept::kYes;
  }
  static constexpr size_t record_size() { return sizeof(Record); }

  /// False: there is none of connection `conn`. It is removed.
  template <class Port>
  bool take(Port& port, uint64_t conn, PeerLoss& loss) {
    for (Record** at = &first_; *at && conn != 0; at = &(*at)->next) {
      Record* const r = *at;
      if (r->conn != conn) continue;
      loss = r->loss;
      *at = r->next;
      port.free(r);
      return true;
    }
    return false;
  }

  template <class Port>
  void free_all(Port& port) {
    while (Record* const r = first_) {
      first_ = r->next;
      port.free(r);
    }
  }

 private:
  struct Record {
    Record* next = nullptr;
    uint64_t conn = 0;
    PeerLoss loss;
  };
  Record* first_ = nullptr;
};

}  // namespace bfo::xfer
