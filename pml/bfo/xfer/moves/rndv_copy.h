// SPDX-License-Identifier: BSD-3-Clause
//
// rndv_copy.h: the copy protocol: RNDV, ACK, FRAG over all rails.
//
//   S: RNDV (with the first bytes)  ->  R matches
//   R: ACK (names its request)      ->  S
//   S: FRAG FRAG FRAG ... striped over all usable rails; complete when all were delivered
//   R: complete when the union of what arrived covers what fits
//
// Every FRAG carries the round in the receiver's name, so a FRAG of an earlier round is dropped before it
// touches the buffer. The payload passes through the BTL's buffers, so no fence is needed.
#pragma once

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/moves/plan.h"
#include "pml/bfo/xfer/moves/trace_plan.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/moves/transfer.h"

namespace bfo::xfer {

template <class P>
struct RndvCopy {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  /// Two rails are compared by when they would have moved a FRAG of this size.
  static constexpr uint64_t kMostCompared = 65536;
  /// At least as long as any element of a predefined data type.
  static constexpr uint64_t kMinSegment = 64;

  /// ACK: determine what to send in this round, unless RESTARTACK did.
  static void start(E& e, SendRequest& r) {
    auto& x = r.xfer;
    x.protocol = Protocol::kCopy;
    x.rndv->exposed = 0;  // ACK certifies that the receiver does not read in this round
    if (x.rndv->restarts == 0) {
      x.rndv->todo.clear();
      x.rndv->todo.add(x.rndv->open_len, x.length);
    }
    x.rndv->undelivered = x.rndv->todo.bytes();
    if (x.rndv->undelivered == 0)
      return e.send_check(r);  // its end must not wait for what other requests have to post
    x.pending |= kPendingData;
    e.ready(r);
  }

  /// Post FRAGs on the least loaded rail that takes them, up to the depth.
  static bool serve(E& e, SendRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    e.pace_.plan(p);
    uint32_t refused = 0;
    while (!x.rndv->todo.empty()) {
      Rail<P>* const rail = p.choice.lightest(refused, kMostCompared);
      if (!rail) return false;
      const Share share = p.choice.share(*rail);
      // the next completion calls again
      if (enough_out(x.rndv->in_flight, e.base_.config.send_depth, share)) return true;
      auto* const f = e.rails_.new_frag(FragKind::kFrag, *rail, p);
      if (!f) return false;
      const Range want = x.rndv->todo.front();
      // A data type that cannot be cut inside an element yields nothing for a short range: ask for at least a
      // whole element. The receiver drops what it has already.
      const uint64_t ask = want.size() < kMinSegment ? kMinSegment : want.size();
      size_t n = next_frag(*rail, std::min(ask, x.length - want.begin), p.choice.size(), share);
      if (e.base_.config.trace_plans) [[unlikely]]
        trace_plan(e.base_, p, PlanTrace::What::kFrag,
                   Moving{.length = x.length, .left = want.size(), .pieces_out = x.rndv->in_flight}, rail, n);
      const core::FragHdr h{static_cast<uint8_t>(core::MsgType::kFrag), 0, 0, x.rndv->peer_name.value,
                            want.begin};
      f->xfer.name = x.rndv->name;
      f->xfer.type = h.type;
      f->xfer.length = n;
      e.pace_.begin(*f);
      const Post post = e.base_.port.send(rail->handle, h.type, &h, sizeof h, r, want.begin, n, *f);
      if (!taken(post)) {
        e.rails_.drop(*f);
        refused |= 1u << rail->index;
        continue;
      }
      BFO_DCHECK(n > 0);
      // Bytes outside the range are extra: `undelivered` counts only what this round has to send.
      x.rndv->undelivered += n - x.rndv->todo.bytes();
      x.rndv->todo.remove(want.begin, want.begin + n);
      x.rndv->undelivered += x.rndv->todo.bytes();
      f->xfer.offset = want.begin;
      f->xfer.length = n;
      rail->inflight_bytes += n;
      ++x.rndv->in_flight;
      e.base_.counters.bytes_sent += n;
      e.base_.counters.bytes_headers += sizeof h;
      e.base_.records.note_segment(r, want.begin, n);
      if (post == Post::kCompleted) {
        --x.rndv->in_flight;
        x.rndv->undelivered -= n;
        ++x.rndv->frags;
        e.rails_.ended(*f);
        e.base_.port.frag_free(*f);
      }
    }
    x.pending &= static_cast<uint8_t>(~kPendingData);
    e.send_check(r);
    return true;
  }

  /// Receiver: the ACK. It goes back over the rail that the header came over: who receives copies measures
  /// nothing, and its sender has avoided slow rails.
  static bool serve(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    const core::AckHdr h{static_cast<uint8_t>(core::MsgType::kAck), 0, 0, x.rndv->peer_name.value,
                         x.rndv->name.value};
    if (!e.rails_.post_back(*x.proc->peer, x.rndv->key_rail, &h, sizeof h, FragKind::kControl, x.rndv->name,
                            true))
      return false;
    x.pending &= static_cast<uint8_t>(~(kPendingStart | kPendingData));
    return true;
  }

  static void reset(E&, SendRequest& r) {
    auto& x = r.xfer;
    x.protocol = Protocol::kCopy;
    x.rndv->todo.clear();
    x.rndv->undelivered = 0;
    x.pending &= static_cast<uint8_t>(~(kPendingData | kPendingStart));
  }
  static void reset(E&, RecvRequest& r) {
    auto& x = r.xfer;
    x.pending &= static_cast<uint8_t>(~(kPendingData | kPendingStart));
  }
};

// Each handler of a message returns the peer for which something may be posted now; nullptr: nobody.

template <class P>
Peer<P>* Transfers<P>::on_ack(const Arrival& a, Bytes in) {
  core::AckHdr h;
  if (!core::decode(MsgType::kAck, in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  SendRequest* const r = sends_.find_current(Name(h.sender), a);
  if (!r) return nullptr;
  auto& x = r->xfer;
  if (x.phase == SendPhase::kOpening) x.rndv->peer_name = Name(h.receiver);
  Offer<P>::declined(*r);
  send_event(*r, SendEvent::kAck);
  return x.proc->peer;
}

template <class P>
Peer<P>* Transfers<P>::on_frag(const Arrival& a, Bytes in) {
  core::FragHdr h;
  if (!core::decode(MsgType::kFrag, in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  RecvRequest* const r = recvs_.find_current(Name(h.receiver), a);
  if (!r) return nullptr;
  auto& x = r->xfer;
  const Bytes payload = in.from(sizeof h);
  if (h.offset > x.length || payload.size > x.length - h.offset) {
    ++base_.counters.malformed;
    return nullptr;
  }
  ++x.rndv->frags;
  if (x.phase == RecvPhase::kReceiving) [[likely]] {
    x.pending &= static_cast<uint8_t>(~kPendingStart);  // the ACK has arrived
    store_frag(*r, h.offset, payload);
    PeerT& peer = *x.proc->peer;
    recv_check(*r);
    return peer.backlog.any_recorded() ? &peer : nullptr;
  }
  RecvInput input;
  input.payload = payload;
  input.offset = h.offset;
  recv_event(*r, RecvEvent::kFrag, input);
  return x.proc->peer;
}

/// Unpack the bytes that fit and were not there before.
template <class P>
void Transfers<P>::store_frag(RecvRequest& r, uint64_t offset, Bytes payload) {
  auto& x = r.xfer;
  if (offset >= x.rndv->want) return;
  uint64_t end = offset + payload.size;
  if (end > x.rndv->want) end = x.rndv->want;
  if (x.rndv->received.covers(offset, end)) {
    if (end > offset) ++base_.counters.duplicates;
    return;
  }
  base_.port.unpack(r, offset, payload.data, end - offset);
  arrived(r, offset, end, false);
}

}  // namespace bfo::xfer
