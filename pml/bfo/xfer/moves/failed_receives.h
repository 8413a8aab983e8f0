// SPDX-License-Identifier: BSD-3-Clause
//
// failed_receives.h: the messages of a peer whose receive ended with an error (failed.h). Owns its records,
// whose memory is the port's: free_all() gives it back. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "common/ids.h"
#include "pml/bfo/xfer/base/by_key.h"

namespace bfo::xfer {

class FailedReceives {
 public:
  bool has(Name sender) const { return all_.find(sender.request()) != nullptr; }

  /// False: no memory.
  template <class Port>
  bool add(Port& port, Name sender) {
    if (has(sender)) return true;
    void* const memory = port.alloc(sizeof(Record));
    if (!memory) return false;
    auto* const r = ::new (memory) Record{sender};
    if (all_.add(port, r)) return true;
    port.free(r);
    return false;
  }
  static constexpr size_t record_size() { return sizeof(Record); }

  template <class Port>
  void free_all(Port& port) {
    uint32_t next = 0;
    while (Record* const r = all_.each(next)) port.free(r);
    all_.drop(port);
  }

 private:
  struct Record {
    Name sender;
  };
  struct Sender {
    static uint64_t of(const Record* r) { return r->sender.request(); }
  };
  ByKey<Record, Sender> all_;
};

}  // namespace bfo::xfer
