// SPDX-License-Identifier: BSD-3-Clause
//
// stock.h: registered memory for the rings and fragments of a port. A kernel fills it with zeros and pins its
// pages, which takes time, so a control thread registers more of it. Who finds none asks, and goes on without
// until it is there: a handshake begins later, a message waits for a fragment that comes back.
#pragma once

#include <atomic>
#include <cstddef>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/mr.h"

namespace bfo::engine {

class Stock;

/// Registers a chunk of memory.
struct StockStep : Command {
  Stock* stock = nullptr;
  ChunkMaker maker;
  size_t wish = 0;
  size_t least = 0;
  Chunk* chunk = nullptr;
  int error = 0;  ///< errno, when there is no chunk or a smaller one
};

/// So much is wanted, and so much is needed at least: 0 for nothing.
struct StockNeed {
  size_t wish = 0;
  size_t least = 0;
};

class Stock {
 public:
  /// Commands go to `lane`; `service_needed` is set when the progress function has to ask for more.
  void open(Arena& arena, ControlLane& lane, std::atomic<bool>& service_needed);
  /// True when take() has an answer for this. False: it is being registered; its end makes the port need
  /// service. Progress function only.
  bool ready(const StockNeed& need);
  /// A piece of `bytes`. Empty with errno: EAGAIN when more is on its way, enough for `least`; or what the
  /// device said when it refused more; asked once more it is tried again. Any thread.
  Region take(size_t bytes, size_t least);
  Region take(size_t bytes) { return take(bytes, bytes); }
  /// A step of registrations for what take() did not find. Progress function only.
  void service();

 private:
  void grow(const StockNeed& need);
  void grown(const StockStep& step);

  Arena* arena_ = nullptr;
  ControlLane* lane_ = nullptr;
  std::atomic<bool>* service_needed_ = nullptr;
  bool growing_ = false;
  std::atomic<size_t> missed_{0};  ///< bytes of a piece that was not there
  std::atomic<size_t> least_{0};   ///< bytes that are needed at least
  std::atomic<int> error_{0};      ///< errno of the last refusal, until somebody was told
};

}  // namespace bfo::engine
