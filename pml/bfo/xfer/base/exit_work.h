// SPDX-License-Identifier: BSD-3-Clause
//
// exit_work.h: what has to be done when the engine is left: callbacks that came while it was inside a port
// function, peers that have to be declared failed, and requests that are complete. Completions are last and
// run without the lock, because they may run user code (entry.h). Owns the records of messages that wait,
// whose memory is the port's; fragments and requests belong to the port. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "common/check.h"
#include "common/status.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/list.h"

namespace bfo::xfer {

template <class P>
class ExitWork {
 public:
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using Frag = typename P::Frag;

  /// A message that came, or came back, while the engine was inside a port function. Its bytes follow.
  struct Deferred {
    Deferred* next = nullptr;
    Deferred* prev = nullptr;
    bool linked = false;
    Rail<P>* rail;
    uint32_t epoch;
    uint8_t tag;
    bool failed;  ///< a message of this process that a rail has returned
    size_t size;
    const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(this + 1); }
  };
  /// Complete requests, the oldest first. Only the link forward is used: nothing is taken out of the middle.
  /// They are marked as linked, so that nobody else links them.
  template <class Request>
  class Chain {
   public:
    void push_back(Request* r) {
      BFO_DCHECK(!r->xfer.linked);
      r->xfer.linked = true;
      r->xfer.next = nullptr;
      (first_ ? last_->xfer.next : first_) = r;
      last_ = r;
    }
    Request* pop_front() {
      Request* const r = first_;
      if (!r) return nullptr;
      first_ = r->xfer.next;
      r->xfer.linked = false;
      return r;
    }

   private:
    Request* first_ = nullptr;
    Request* last_ = nullptr;  ///< only while there is a first one
  };
  struct Completed {
    Chain<SendRequest> sends;
    Chain<RecvRequest> recvs;
  };

  /// Is there anything to do?
  bool any() const { return any_ != 0; }
  /// Somebody has something to do then that is not kept here.
  void wake() { any_ |= kCallbacks; }

  /// Is there anything but completions?
  bool has_deferred() const {
    return any_ != kCompletions && (failures_ || !done_.empty() || !messages_.empty());
  }

  // ---- callbacks
  void add_done(Frag* f) {
    done_.push_back(f);
    any_ |= kCallbacks;
  }
  Frag* take_done() { return done_.pop_front(); }
  /// False: no memory.
  template <class Port>
  bool add_message(Port& port, Rail<P>* rail, uint32_t epoch, uint8_t tag, const void* data, size_t size,
                   bool failed) {
    void* const memory = port.alloc(sizeof(Deferred) + size);
    if (!memory) return false;
    auto* a = ::new (memory) Deferred;
    a->rail = rail;
    a->epoch = epoch;
    a->tag = tag;
    a->failed = failed;
    a->size = size;
    std::memcpy(static_cast<void*>(a + 1), data, size);
    messages_.push_back(a);
    any_ |= kCallbacks;
    return true;
  }
  bool has_message() const { return !messages_.empty(); }
  /// The oldest; the caller frees it.
  Deferred* take_message() { return messages_.pop_front(); }

  // ---- peers
  void add_failure() {
    failures_ = true;
    any_ |= kCallbacks;
  }
  bool has_failure() const { return failures_; }
  void forget_failures() { failures_ = false; }

  // ---- requests
  void add_complete(SendRequest& r) {
    completed_.sends.push_back(&r);
    any_ |= kCompletions;
  }
  void add_complete(RecvRequest& r) {
    completed_.recvs.push_back(&r);
    any_ |= kCompletions;
  }
  /// Everything else is done.
  Completed take_completed() {
    any_ = 0;
    const Completed all = completed_;
    completed_ = {};
    return all;
  }

 private:
  enum : uint8_t { kCompletions = 1, kCallbacks = 2 };
  uint8_t any_ = 0;
  bool failures_ = false;
  List<Deferred> messages_;
  List<Frag, XferLink> done_;
  Completed completed_;
};

}  // namespace bfo::xfer
