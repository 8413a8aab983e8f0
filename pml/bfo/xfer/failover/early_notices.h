// SPDX-License-Identifier: BSD-3-Clause
//
// early_notices.h: RAILDOWN and EPOCHCLOSED of peers that have no record here yet. A rail can come up and die
// before this process has anything to do with the peer, and both are sent only once. They take effect when
// the record is made. The newest epoch of a connection counts. Their number is bounded: a process that makes
// up connections fills no memory, and of one that is dropped the BTL learns later, by its own means. Owns its
// records, whose memory is the port's: free_all() gives it back. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/base/by_key.h"

namespace bfo::xfer {

class EarlyNotices {
 public:
  static constexpr size_t kMost = 1024;  ///< connections

  /// `h` is a RAILDOWN or an EPOCHCLOSED. False: there are too many, or there is no memory.
  template <class Port>
  bool keep(Port& port, const core::RailHdr& h) {
    Record* r = all_.find(h.conn);
    if (!r && !(r = make(port, h.conn))) return false;
    core::RailHdr& of_its_kind =
        h.type == static_cast<uint8_t>(core::MsgType::kRailDown) ? r->down : r->closed;
    if (of_its_kind.type == 0 || of_its_kind.epoch <= h.epoch) of_its_kind = h;
    return true;
  }

  /// Calls f(notice) for those of connection `conn`, RAILDOWN first, and forgets them.
  template <class Port, class F>
  void take(Port& port, uint64_t conn, F f) {
    Record* const r = all_.find(conn);
    if (!r) [[likely]]
      return;
    all_.remove(r);
    const Record kept = *r;
    port.free(r);
    if (all_.empty()) all_.drop(port);
    for (const core::RailHdr& h : {kept.down, kept.closed})
      if (h.type != 0) f(h);
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
    core::RailHdr down{};  ///< type 0: none came
    core::RailHdr closed{};
  };
  struct Conn {
    static uint64_t of(const Record* r) { return r->conn; }
  };

  template <class Port>
  Record* make(Port& port, uint64_t conn) {
    void* const memory = all_.size() < kMost ? port.alloc(sizeof(Record)) : nullptr;
    if (!memory) return nullptr;
    auto* const r = ::new (memory) Record{conn, {}, {}};
    if (all_.add(port, r)) return r;
    port.free(r);
    return nullptr;
  }

  ByKey<Record, Conn> all_;
};

}  // namespace bfo::xfer
