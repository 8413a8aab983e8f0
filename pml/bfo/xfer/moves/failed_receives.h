// SPDX-License-Identifier: BSD-3-Clause
//
// failed_receives.h: the messages of a peer whose receive ended with an error (failed.h). Owns its records,
// whose memory is the port's: free_all() gives it back. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <new>

#include "common/ids.h"

namespace bfo::xfer {

class FailedReceives {
 public:
  bool has(Name sender) const {
    const Record* f = first_;
    while (f && !f->sender.same_request(sender)) f = f->next;
    return f != nullptr;
  }

  /// False: no memory.
  template <class Port>
  bool add(Port& port, Name sender) {
    void* const memory = port.alloc(sizeof(Record));
    if (!memory) return false;
    first_ = ::new (memory) Record{first_, sender};
    return true;
  }
  static constexpr size_t record_size() { return sizeof(Record); }

  template <class Port>
  void free_all(Port& port) {
    while (Record* const f = first_) {
      first_ = f->next;
      port.free(f);
    }
  }

 private:
  struct Record {
    Record* next = nullptr;
    Name sender;
  };
  Record* first_ = nullptr;
};

}  // namespace bfo::xfer
