// SPDX-License-Identifier: BSD-3-Clause
//
// offer.h: the sender's half of the get protocol (rget.h): RGET, with the key of each rail that the receiver
// may read over, or the one that is enough, and the FIN that ends the send.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/moves/plan.h"
#include "pml/bfo/xfer/moves/registering.h"
#include "pml/bfo/xfer/moves/trace_plan.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

template <class P>
struct Offer {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;

  static bool can_get(const Rail<P>& r, uint64_t length) {
    return r.limits.get_limit != 0 && length >= r.limits.min_rdma_size;
  }

  static bool any_rail(const Peer<P>& p, uint64_t length) {
    for (unsigned i = 0; i < p.choice.size(); ++i)
      if (can_get(p.choice[i], length)) return true;
    return false;
  }

  /// Post RGET if this message can be read. `refused`: it can be, but no rail takes the header now. The
  /// header is short, so it takes the rail of short messages first.
  [[gnu::always_inline]] static bool open(E& e, SendRequest& r, bool& refused) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    Peer<P>& p = *x.proc->peer;
    refused = false;
    if (!e.base_.config.use_get || d.no_rdma || x.length == 0) return false;
    Rail<P>* reader = reader_of(p.choice, x.length, d.opened);
    if (e.base_.config.trace_plans) [[unlikely]]
      trace_plan(e.base_, p, PlanTrace::What::kKeys, Moving{.length = x.length, .left = x.length}, reader,
                 x.length);
    if (reader && !can_get(*reader, x.length)) [[unlikely]]
      reader = nullptr;
    if (!reader && !any_rail(p, x.length)) return false;
    void* const buffer = e.base_.port.contiguous(r);
    if (!buffer) return false;
    core::RgetHdr h;  // only the keys that are sent are filled in
    h.rndv.match = x.identity();
    h.rndv.match.type = static_cast<uint8_t>(core::MsgType::kRget);
    const bool put = e.base_.config.use_put && Rput<P>::any_rail(p, x.length);
    h.rndv.match.flags = static_cast<uint8_t>(d.open_flags() | (put ? core::kFlagContig : 0));
    h.rndv.length = x.length;
    h.rndv.sender = d.name.value;
    h.rndv.receiver = d.restarts != 0 ? d.peer_name.value : 0;
    h.address = reinterpret_cast<uintptr_t>(buffer);
    h.reserved = 0;
    if (reader) [[likely]] {
      if (open_with_one_key(e, r, h, *reader)) [[likely]]
        return true;
      if (p.choice.size() == 1 && !p.choice.leaves_out()) {
        refused = h.n_keys != 0;
        return false;
      }
    }
    return open_with_keys(e, r, h, refused);
  }

  /// The same with the key of each rail, as far as they fit.
  [[gnu::noinline]] static bool open_with_keys(E& e, SendRequest& r, core::RgetHdr& h, bool& refused) {
    Peer<P>& p = *r.xfer.proc->peer;
    Rail<P>* carrier = p.choice.preferred();
    unsigned others = 0;
    if (!carrier) {
      others = e.rails_.for_user(p);
      refused = others == 0;
    }
    for (bool preferred = carrier != nullptr; preferred || others != 0; preferred = false) {
      if (!preferred) {
        carrier = e.rails_.next_for_user(p);
        --others;
      }
      const unsigned exposed = fill_keys(e, r, h, *carrier);
      if (exposed != 0) {
        refused = true;
        if (post(e, r, h, *carrier, exposed)) {
          refused = false;
          return true;
        }
      }
      if (preferred) others = e.rails_.for_user(p);
    }
    return false;
  }

  /// The peer reads a message of this length whole over the rail that brings the header, as the only one or
  /// while that keeps up: its key is enough. If that READ is lost, R asks for a new round, and a header that
  /// is posted again brings all keys. False: it was not posted; with a key in `h` the rail did not take it.
  [[gnu::always_inline]] static bool open_with_one_key(E& e, SendRequest& r, core::RgetHdr& h,
                                                       Rail<P>& rail) {
    const auto& d = *r.xfer.rndv;
    h.n_keys = Registering<P>::registered_for(e, r, rail) && Registering<P>::key_of(e, d.reg, rail, h.keys[0])
                   ? 1
                   : 0;
    return h.n_keys != 0 && post(e, r, h, rail, 1u << rail.index);
  }

  /// The keys that `carrier` has room for. Returns their rails, one bit each.
  [[gnu::always_inline]] static unsigned fill_keys(E& e, SendRequest& r, core::RgetHdr& h,
                                                   const Rail<P>& carrier) {
    const auto& x = r.xfer;
    const Peer<P>& p = *x.proc->peer;
    unsigned exposed = 0;
    unsigned n = 0;
    const size_t fit = entries_that_fit(carrier.limits, core::rget_size(0u), sizeof h.keys[0]);
    const auto offer = [&](const Rail<P>& rail) {
      if (n >= fit || !can_get(rail, x.length)) return;
      // a rail without a connection name is known by where the header arrives
      if (rail.name.conn == 0 && &rail != &carrier) return;
      if (!Registering<P>::registered_for(e, r, rail) ||
          !Registering<P>::key_of(e, x.rndv->reg, rail, h.keys[n]))
        return;
      ++n;
      exposed |= 1u << rail.index;
    };
    for (unsigned k = 0; k < p.choice.size(); ++k) offer(p.choice[k]);
    // What this side suspects the peer has found faster than the others: it chooses.
    for (unsigned k = 0; k < p.n_rails && p.choice.leaves_out(); ++k)
      if (p.rails[k].state == RailState::kSuspect && !p.choice.has(&p.rails[k])) offer(p.rails[k]);
    h.n_keys = static_cast<uint8_t>(n);
    return exposed;
  }

  [[gnu::always_inline]] static bool post(E& e, SendRequest& r, const core::RgetHdr& h, Rail<P>& carrier,
                                          unsigned exposed) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    const uint16_t exposed_before = d.exposed;
    const Protocol protocol_before = x.protocol;
    const uint64_t open_len_before = d.open_len;
    // What the rail says of the header inside the call finds a state that is complete.
    d.exposed = static_cast<uint16_t>(exposed_before | exposed);
    x.protocol = Protocol::kGet;
    d.open_len = 0;
    const size_t size = core::rget_size(h);
    if (e.rails_.post_brief(carrier, &h, size, r) ||
        e.rails_.post_on(carrier, &h, size, FragKind::kOpen, d.name, false, header_number(h.rndv.match)))
        [[likely]]
      return true;
    d.exposed = exposed_before;
    x.protocol = protocol_before;
    d.open_len = open_len_before;
    return false;
  }

  /// FIN of a message whose header was sent once, and of which nothing else was sent: the send is complete.
  /// Other FINs go through the table, with the same result.
  static bool ends_in_first_round(E& e, SendRequest& r) {
    auto& x = r.xfer;
    if (x.phase != core::SendPhase::kOpening || x.protocol != Protocol::kGet) return false;
    if (x.rndv->restarts != 0 || !x.rndv->sent_once.empty() || !e.gate_clear(x)) return false;
    Machine<P>::template finish_directly<kReadEntirely>(x);
    e.send_over(r);
    return true;
  }

  /// R does not read what it was offered.
  static void declined(SendRequest& r) {
    if (r.xfer.protocol == Protocol::kGet) r.xfer.proc->peer->choice.set_keeps_up(false);
  }
};

}  // namespace bfo::xfer
