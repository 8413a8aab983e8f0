// SPDX-License-Identifier: BSD-3-Clause
//
// registering.h: the buffer of a request, registered with the devices of rails, and the key that lets the
// peer reach it over one of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
struct Registering {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  /// Is its buffer registered? It is now, for all rails, unless it cannot be.
  template <class Request>
  [[gnu::always_inline]] static bool registered(E& e, Request& r) {
    Registered& have = r.xfer.rndv->registered;
    if (have != Registered::kAll && register_for(e, r, nullptr)) have = Registered::kAll;
    return have != Registered::kNo;
  }
  /// The same for `rail` alone. Each registration costs, in the usual case in vain for all rails but one, and
  /// a device that has just failed may take long to refuse it: it is asked once.
  template <class Request>
  [[gnu::always_inline]] static bool registered_for(E& e, Request& r, const Rail<P>& rail) {
    auto& d = *r.xfer.rndv;
    if (d.registered != Registered::kNo || d.unregistered != 0) [[unlikely]]
      return also_registered_for(e, r, rail);
    if (!register_for(e, r, &rail.handle)) return refuses(d, rail);
    d.registered = Registered::kSome;
    return true;
  }
  template <class Request>
  static bool also_registered_for(E& e, Request& r, const Rail<P>& rail) {
    auto& d = *r.xfer.rndv;
    HandleBytes unused;
    if (e.base_.port.handle(d.reg, rail.handle, unused)) return true;
    if (d.registered == Registered::kAll || (d.unregistered >> rail.index & 1) != 0) return false;
    if (!register_for(e, r, &rail.handle) || !e.base_.port.handle(d.reg, rail.handle, unused))
      return refuses(d, rail);
    d.registered = Registered::kSome;
    return true;
  }
  /// Notes that the device of `rail` does not register the buffer. False.
  [[gnu::noinline]] static bool refuses(auto& d, const Rail<P>& rail) {
    d.unregistered = static_cast<uint16_t>(d.unregistered | 1u << rail.index);
    return false;
  }
  [[gnu::always_inline]] static bool register_for(E& e, SendRequest& r, const typename P::RailHandle* only) {
    return e.base_.port.contiguous(r) && e.base_.port.register_send(r, r.xfer.length, r.xfer.rndv->reg, only);
  }
  [[gnu::always_inline]] static bool register_for(E& e, RecvRequest& r, const typename P::RailHandle* only) {
    auto& d = *r.xfer.rndv;
    return d.want != 0 && e.base_.port.contiguous(r) && e.base_.port.register_recv(r, d.want, d.reg, only);
  }

  static bool key_of(E& e, const typename P::Registration& reg, const Rail<P>& rail, core::RailKey& k) {
    HandleBytes h;
    if (!e.base_.port.handle(reg, rail.handle, h)) return false;
    k.conn = rail.name.conn;
    k.epoch = rail.name.epoch;
    k.handle_len = h.size;
    std::memset(k.reserved, 0, sizeof k.reserved);
    std::memcpy(k.handle, h.bytes, sizeof k.handle);
    return true;
  }
};

}  // namespace bfo::xfer
