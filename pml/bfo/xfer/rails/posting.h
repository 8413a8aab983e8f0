// SPDX-License-Identifier: BSD-3-Clause
//
// posting.h: records of fragments, and control messages whose bytes follow from the state of a request: what
// a rail does not deliver is asked of the request again.
#pragma once

#include "pml/bfo/xfer/rails/rails.h"

namespace bfo::xfer {

template <class P>
[[gnu::always_inline]] inline typename P::Frag* Rails<P>::new_frag(FragKind kind, RailT& rail, PeerT& peer) {
  Frag* const f = base_.port.frag_alloc();
  if (!f) [[unlikely]]
    return nullptr;
  auto& x = f->xfer;
  x.next = x.prev = nullptr;
  x.linked = false;
  x.kind = kind;
  x.type = 0;
  x.to_sender = false;
  x.counted = false;
  x.pinned = false;
  x.rail = &rail;
  x.epoch = rail.name.epoch;
  x.name = Name();
  x.send = nullptr;
  x.peer = &peer;
  x.offset = 0;
  x.length = 0;
  x.grant = 0;
  x.stored_len = 0;
  x.posted_ns = 0;
  x.buffer = nullptr;
  ++frags_out_;
  return f;
}

/// Accounting for the end of a fragment. The record itself stays.
template <class P>
void Rails<P>::ended(Frag& f) {
  auto& x = f.xfer;
  --frags_out_;
  if (x.counted) {
    x.counted = false;
    --x.rail->control_out;
  }
  if (x.kind == FragKind::kFrag || x.kind == FragKind::kWrite || x.kind == FragKind::kRead ||
      x.kind == FragKind::kOpen)
    x.rail->inflight_bytes -= x.length;
}

/// Send, over `rail`, a control message that the state of request `own` requires. False: the rail does not
/// take it now.
template <class P>
bool Rails<P>::post_on(RailT& rail, const void* hdr, size_t len, FragKind kind, Name own, bool to_sender,
                       uint32_t grant) {
  if (!rail.takes_control()) return false;
  Frag* const f = new_frag(kind, rail, *rail.peer);
  if (!f) return false;
  f->xfer.name = own;
  f->xfer.to_sender = to_sender;
  f->xfer.grant = grant;
  f->xfer.type = *static_cast<const uint8_t*>(hdr);
  count(*f);
  const Post post = base_.port.send_bytes(rail.handle, f->xfer.type, hdr, len, nullptr, 0, *f);
  if (post != Post::kAccepted) {
    ended(*f);
    base_.port.frag_free(*f);
  }
  if (!taken(post)) return false;
  ++base_.counters.control_sent;
  base_.counters.bytes_headers += len;
  return true;
}

/// Send a control message without a fragment record: the rail keeps the bytes and hands them to
/// on_sendi_failed() if it fails. False: nothing happened.
template <class P>
template <class Source>
[[gnu::always_inline]] inline bool Rails<P>::post_brief(RailT& rail, const void* hdr, size_t len,
                                                        Source& source) {
  const bool sent =
      base_.port.sendi(rail.handle, *static_cast<const uint8_t*>(hdr), hdr, len, source, size_t{0});
  if (!sent) return false;
  ++base_.counters.control_sent;
  base_.counters.bytes_headers += len;
  return true;
}

/// The same as post_on(), over any usable rail.
template <class P>
bool Rails<P>::post_control(PeerT& p, const void* hdr, size_t len, FragKind kind, Name own, bool to_sender,
                            uint32_t grant) {
  for (unsigned i = 0; i < p.choice.size(); ++i)
    if (post_on(*p.choice.next(), hdr, len, kind, own, to_sender, grant)) return true;
  return false;
}

/// The same, over `rail` if that carries short messages now and takes it; nullptr: over any.
template <class P>
bool Rails<P>::post_back(PeerT& p, RailT* rail, const void* hdr, size_t len, FragKind kind, Name own,
                         bool to_sender) {
  if (rail && p.choice.swift(*rail) && post_on(*rail, hdr, len, kind, own, to_sender, 0)) return true;
  return post_control(p, hdr, len, kind, own, to_sender, 0);
}

/// This process's rail with that connection name, if it is usable in that epoch. conn 0 stands for
/// `without_conn`.
template <class P>
Rail<P>* Rails<P>::named(PeerT& p, uint64_t conn, uint32_t epoch, RailT* without_conn) const {
  if (conn == 0) {
    if (!without_conn || without_conn->peer != &p || without_conn->name.conn != 0) return nullptr;
    return without_conn->usable(without_conn->name.epoch) ? without_conn : nullptr;
  }
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].name.conn == conn) return p.rails[i].usable(epoch) ? &p.rails[i] : nullptr;
  return nullptr;
}

}  // namespace bfo::xfer
