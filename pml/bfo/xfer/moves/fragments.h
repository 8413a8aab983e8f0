// SPDX-License-Identifier: BSD-3-Clause
//
// fragments.h: what the end of a fragment means for its request. Its name is looked up again, because the
// request may be in another round by now, or over (H17).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "common/check.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// A READ has ended: the usual case first.
template <class P>
[[gnu::always_inline]] inline void Transfers<P>::read_over(Frag& f) {
  RecvRequest* const r = recvs_.find(f.xfer.name);
  if (!r || !Rget<P>::only_read_ended(*this, *r, f)) [[unlikely]]
    Rget<P>::read_done(*this, f);
}

/// Any fragment but a stored message has ended. Its record stays the caller's.
template <class P>
void Transfers<P>::frag_over(Frag& f) {
  const auto& x = f.xfer;
  const bool ok = x.fate == Fate::kDelivered;
  switch (x.kind) {
    case FragKind::kMatch:
      Pace<P>::sample_over(f);
      if (!ok) return Eager<P>::lost(*this, *x.send);
      --eager_out_;
      pace_.sample_ended(f);
      return base_.finish_send(*x.send, Outcome::kOk);
    case FragKind::kSync:
      if (!ok) sync_lost(*x.peer, f);
      return;
    case FragKind::kOpen:
      if (ok) return pace_.frag_ended(f);
      note_header_back(*x.peer, x.grant);
      return control_lost(f);
    case FragKind::kControl:
      if (!ok) control_lost(f);
      return;
    case FragKind::kFrag:
      return frag_done(f);
    case FragKind::kWrite:
      return Writes<P>::write_done(*this, f);
    case FragKind::kRead:
      return Rget<P>::read_done(*this, f);
    case FragKind::kStored:
      return;
  }
}

/// A message that the state of its request gives back was not delivered.
template <class P>
[[gnu::noinline]] void Transfers<P>::control_lost(const Frag& f) {
  const auto& x = f.xfer;
  if (!x.to_sender) {
    SendRequest* const r = sends_.find(x.name);
    if (r && r->xfer.rndv->name == x.name) send_event(*r, SendEvent::kControlLost);
    return;
  }
  RecvRequest* const r = recvs_.find(x.name);
  if (!r || r->xfer.rndv->name != x.name) return;
  if (x.grant != 0) Rput<P>::put_lost(*r, x.grant, x.fate);
  recv_event(*r, RecvEvent::kControlLost);
}

/// A FRAG has ended.
template <class P>
void Transfers<P>::frag_done(const Frag& f) {
  const auto& x = f.xfer;
  SendRequest* const r = sends_.find(x.name);
  BFO_DCHECK(r != nullptr || gate_removed());  // the gate keeps the request while a fragment is in flight
  if (!r) return;
  --r->xfer.rndv->in_flight;
  if (x.fate == Fate::kDelivered) {
    pace_.frag_ended(f);
    r->xfer.rndv->undelivered -= x.length;
    ++r->xfer.rndv->frags;
  } else {
    send_event(*r, SendEvent::kDataLost);
  }
  send_check(*r);
}

}  // namespace bfo::xfer
