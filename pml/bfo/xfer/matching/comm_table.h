// SPDX-License-Identifier: BSD-3-Clause
//
// comm_table.h: the communicators of this process by context id, and the context ids that were freed before.
// Owns the pages of the table, whose memory is the port's; the communicators belong to the engine (comm.h).
// Used under the engine's lock.
#pragma once

#include <cstdint>
#include <cstring>

#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/list.h"

namespace bfo::xfer {

template <class P>
class CommTable {
 public:
  using CommT = Comm<P>;

  /// nullptr: no communicator has this context id.
  CommT* find(uint16_t ctx) const {
    CommT** const page = pages_[ctx / kPage];
    return page ? page[ctx % kPage] : nullptr;
  }
  CommT* front() const { return all_.front(); }
  static CommT* next(CommT* c) { return List<CommT>::next(c); }

  /// Makes room for context id `ctx`. False: no memory.
  template <class Port>
  bool reserve(Port& port, uint16_t ctx) {
    CommT**& page = pages_[ctx / kPage];
    if (page) return true;
    page = static_cast<CommT**>(port.alloc(kPage * sizeof(CommT*)));
    if (!page) return false;
    std::memset(page, 0, kPage * sizeof(CommT*));
    return true;
  }
  /// There is room.
  void add(CommT* c) {
    pages_[c->ctx / kPage][c->ctx % kPage] = c;
    all_.push_back(c);
  }
  void remove(CommT* c) {
    pages_[c->ctx / kPage][c->ctx % kPage] = nullptr;
    all_.remove(c);
  }

  /// A communicator with this context id was freed at least once, so a peer may have its numbering.
  bool was_used(uint16_t ctx) const { return used_[ctx / 64] >> (ctx % 64) & 1; }
  void note_used(uint16_t ctx) { used_[ctx / 64] |= uint64_t{1} << (ctx % 64); }

  /// The table is empty.
  template <class Port>
  void free_pages(Port& port) {
    for (CommT**& page : pages_) {
      if (page) port.free(page);
      page = nullptr;
    }
  }

 private:
  static constexpr unsigned kPage = 256;
  List<CommT> all_;
  uint64_t used_[65536 / 64] = {};
  CommT** pages_[65536 / kPage] = {};
};

}  // namespace bfo::xfer
