// SPDX-License-Identifier: BSD-3-Clause
//
// stock_send.h: StockSend, short messages over a BTL without common/failover_btl.h: which of them go by its
// sendi and which in a fragment of it, and the copies that such fragments are. Written for vader, whose box
// for short messages fills, and for BTLs without sendi (tcp). Any thread.
//
// A copy may be in this process when its send is complete: the BTL hands it on with progress, when it has
// connected, or the peer has read. From Open MPI 5.0 on a process may wait in the runtime then, without
// progress, for a peer that needs the message first. There are no copies there: a message is taken by sendi,
// or has a request that ends when the BTL calls back (H20).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <atomic>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/glue/layout.h"
#include "pml/bfo/glue/port_types.h"

namespace bfo::glue {

class StockSend {
 public:
  /// Payloads that never need a look at the rail: one piece, or not.
  static constexpr size_t kAlwaysSendi = 256;
  static constexpr size_t kAlwaysScattered = 64;

  /// Is a send complete when its message is in a copy?
  static constexpr bool kCopiesComplete = !kWaitsWithoutProgress;

  /// Longest message, header included, that is sent over this BTL without a request.
  static size_t inline_limit(const mca_btl_base_module_t& btl) {
    if (btl.btl_sendi != nullptr) return SIZE_MAX;
    return kCopiesComplete ? sizeof(core::MatchHdr) + kCopyBytes : 0;
  }
  /// True: the message is to be sent in a fragment rather than by sendi(). Counts it.
  bool wants_fragment(const RailHandle& rail, size_t length);
  /// A message came.
  void note_answer() { unanswered_.store(0, std::memory_order_relaxed); }

  /// In place of a sendi() that is missing, or refused: the descriptor holds the only copy of a short
  /// message. If the descriptor fails, the message is sent again from there. False: too long, too many under
  /// way, or no descriptor; nothing was sent.
  bool send_copy(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                 opal_convertor_t* conv, size_t length);
  /// The same of a payload that is one piece: no convertor.
  bool send_piece(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, const void* bytes,
                  size_t length);
  /// The same of a payload that is not one piece. `source` by value: its caller keeps it in registers.
  bool send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                     InlineSource source, size_t length);
  bool send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                     const Layout& layout, size_t length);
  /// Descriptors of these that have not ended.
  uint64_t copies_out() const { return static_cast<uint64_t>(copies_out_.load(std::memory_order_relaxed)); }
  void copy_ended() { count_copies(-1); }

 private:
  /// Longer messages always take a fragment of a BTL that copies (vader).
  static constexpr size_t kMostBoxed = 1024 - sizeof(core::MatchHdr);
  /// Longer messages of a BTL without sendi keep their request and are not copied.
  static constexpr size_t kCopyBytes = 1024;
  /// Copies under way at once. This bounds what a sender keeps for a slow receiver.
  static constexpr int32_t kCopies = 256;
  /// Messages sent since the last one was received. With more, the sender is ahead of its peer.
  static constexpr uint32_t kAhead = 2;

  mca_btl_base_descriptor_t* descriptor(const RailHandle& rail, size_t size);
  bool send(const RailHandle& rail, uint8_t tag, mca_btl_base_descriptor_t* des);
  /// An atomic addition costs a tenth of a short message: only when Open MPI uses threads.
  void count_copies(int32_t n) {
    if (opal_using_threads()) [[unlikely]]
      copies_out_.fetch_add(n, std::memory_order_relaxed);
    else
      copies_out_.store(copies_out_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  std::atomic<int32_t> copies_out_{0};
  /// Messages longer than kAlwaysSendi sent since the last one was received. A lost update does not matter.
  std::atomic<uint32_t> unanswered_{0};
};

/// That of this process.
StockSend& stock_send();

}  // namespace bfo::glue
