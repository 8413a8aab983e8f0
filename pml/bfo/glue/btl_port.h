// SPDX-License-Identifier: BSD-3-Clause
//
// btl_port.h: the Port of the transfer engine on Open MPI's BTLs.
#pragma once

#include <atomic>

#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/glue/layout.h"
#include "pml/bfo/glue/lock.h"
#include "pml/bfo/glue/params.h"
#include "pml/bfo/glue/port_types.h"
#include "pml/bfo/glue/stock_send.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::glue {

class BtlPort : public xfer::NoHooks {
 public:
  using SendRequest = glue::SendRequest;
  using RecvRequest = glue::RecvRequest;
  using InlineSource = glue::InlineSource;
  using Frag = glue::FragRecord;
  using RailHandle = glue::RailHandle;
  using PeerHandle = glue::PeerHandle;
  using CommHandle = glue::CommHandle;
  using Registration = glue::Registration;
  using Lock = glue::Lock;

  explicit BtlPort(Module& module) : module_(module) {}
  ~BtlPort();
  BtlPort(const BtlPort&) = delete;
  BtlPort& operator=(const BtlPort&) = delete;

  /// Allocates free lists and the allocator for unexpected messages. False after a message on the terminal.
  bool init(const Params& params, bool threads);

  // ---- fragments and memory (see xfer/port.h for the contract of everything below)
  Frag* frag_alloc();
  void frag_free(Frag& frag);
  void* alloc(size_t size);
  void free(void* memory);

  // ---- posting
  bool sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
             size_t length);
  bool sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
             const InlineSource& source, size_t length);
  /// sendi of a payload that a convertor describes. `source` by value, as below.
  static bool send_converted(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                             InlineSource source, size_t length);
  /// sendi of a payload that is not one piece. `source` is passed by value: the caller then keeps it in
  /// registers for the other ones.
  static bool send_scattered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                             InlineSource source, size_t length);
  /// sendi of a payload in the memory of a device.
  bool send_staged(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                   const Layout& layout, size_t length);
  /// Short messages over BTLs without the contract.
  StockSend& stock() { return stock_; }
  uint64_t copies_out() const { return stock_.copies_out(); }
  /// Is `frag` the READ that get() is posting? Then get() returns that it is over, and nobody else hears of
  /// it. Any thread: it may have ended in another one that reads the rail.
  bool ends_while_posted(const FragRecord* frag) {
    if (reading_.load(std::memory_order_relaxed) != frag) [[likely]]
      return false;
    return reading_.compare_exchange_strong(frag, nullptr, std::memory_order_acq_rel);
  }
  Post send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
            uint64_t offset, size_t& length, Frag& frag);
  Post send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, const void* bytes,
                  size_t length, Frag& frag);
  Post put(const RailHandle& rail, SendRequest& req, uint64_t offset, size_t length, uint64_t remote_address,
           const xfer::HandleBytes& handle, Frag& frag);
  Post get(const RailHandle& rail, RecvRequest& req, uint64_t offset, size_t length, uint64_t remote_address,
           const xfer::HandleBytes& handle, Frag& frag);

  // ---- data
  void* contiguous(SendRequest& req);
  void* contiguous(RecvRequest& req);
  bool register_send(SendRequest& req, size_t size, Registration& out, const RailHandle* only);
  bool register_recv(RecvRequest& req, size_t size, Registration& out, const RailHandle* only);
  void deregister(Registration& registration);
  bool handle(const Registration& registration, const RailHandle& rail, xfer::HandleBytes& out);
  void matched(RecvRequest& req, int32_t source, int32_t tag, uint64_t length);
  void unpack(RecvRequest& req, uint64_t offset, const void* bytes, size_t length);
  void copy(SendRequest& from, RecvRequest& to, size_t length);
  void copy(InlineSource& from, RecvRequest& to, size_t length);
  bool gather(SendRequest& from, void* to, size_t length);
  bool gather(InlineSource& from, void* to, size_t length);

  // ---- MPI
  void complete_send(SendRequest& req, Outcome outcome);
  void complete_recv(RecvRequest& req, const xfer::RecvStatus& status);
  void* resolve(const CommHandle& comm, int32_t rank);
  void* known(const CommHandle& comm, int32_t rank) const;
  void peer_failed(const PeerHandle& peer, const xfer::PeerLoss& loss);
  /// pml_bfo_verbose: a restart message goes to `peer`.
  void trace_sent(const PeerHandle& peer, const void* bytes, size_t size);
  /// The same: what was planned for a long message.
  void trace_plan(const PeerHandle& peer, const xfer::PlanTrace& plan);

  // ---- rails
  void fence(const RailHandle& rail, uint32_t epoch);
  void connect(const RailHandle& rail);
  void peer_down(const RailHandle& rail, const RailName& name, int32_t cause);
  void peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered);
  xfer::WorkCount work(const RailHandle& rail);

  // ---- clock and log
  uint64_t now_ns() const;
  void emit(const FailoverEvent& event);
  void tell(const DegradedEvent& event);

 private:
  void copy_piece(const void* bytes, RecvRequest& to, size_t length);
  static bool copy_staged(const Layout& from, const Layout& to, size_t length);
  void copy_scattered(const Layout& from, RecvRequest& to, size_t length);
  void unpack_scattered(RecvRequest& req, uint64_t offset, const void* bytes, size_t length);
  Post send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
                     uint64_t offset, size_t length, Frag& frag);
  /// Made for the first fragment that is not at the start of its message. nullptr: there is no memory; then
  /// each fragment is found by walking from the start.
  Trail* make_trail(const Layout& layout);
  void drop_trail(Trail*& trail);
  /// Drops the trail of a receive that ends with `error`. Returns the error that it ends with.
  int end_trail(RecvRequest& req, int error);
  /// In place of a receive's trail: its message could not be unpacked; it ends with an error.
  static Trail* not_unpacked() { return reinterpret_cast<Trail*>(alignof(Trail)); }
  /// `staged`: because the accelerator framework could not copy, else because there was no memory.
  void unpack_failed(RecvRequest& req, bool staged);
  bool register_rails(const Peer* peer, const RailHandle* only, void* base, size_t size, uint32_t flags,
                      Registration& out);
  Post posted(const RailHandle& rail, mca_btl_base_descriptor_t* des, uint8_t tag, uint32_t flags);

  Module& module_;
  opal_free_list_t frags_;
  opal_free_list_t small_;  ///< records of short unexpected messages
  size_t small_size_ = 0;
  mca_allocator_base_module_t* allocator_ = nullptr;
  bool ready_ = false;
  StockSend stock_;
  std::atomic<const FragRecord*> reading_{nullptr};  ///< under the engine's lock: what get() is posting
  /// Payloads that are not one piece and no longer are gathered on the stack for sendi.
  static constexpr size_t kGathered = 512;
  /// Payloads of a device that are no longer are staged on the stack for sendi: all that are sent without a
  /// request, unless a parameter says otherwise.
  static constexpr size_t kStaged = 18432;
};

}  // namespace bfo::glue
