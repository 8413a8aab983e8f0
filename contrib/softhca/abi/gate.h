// SPDX-License-Identifier: BSD-3-Clause
//
// The gate: where a control verb asks the fault rules before it does anything. A rule may put the calling
// thread to sleep, as a kernel does that resolves a neighbour or waits for firmware, and may make the call
// fail.
#pragma once

#include <cerrno>

#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/fabric/limits.h"
#include "contrib/softhca/fault/control_verb.h"

namespace bfo::softhca {

/// Sleeps as long as a rule says. Returns the errno with which the verb must fail without having done
/// anything, 0 when it goes on. The caller holds no lock. Costs one load while no rule is about verbs.
int pass_gate_slow(VerbCall& call);

inline bool gate_is_open() {
  return !verbs_armed(fabric().header().faults);
}

/// `call` says what the verb has beside its place, which is that of `context`.
inline int pass_gate(ControlVerb verb, ibv_context* context, VerbCall call = {}) {
  if (gate_is_open()) [[likely]]
    return 0;
  call.verb = verb;
  call.device = static_cast<uint16_t>(of(context)->device);
  return pass_gate_slow(call);
}

/// The call is about a port.
inline VerbCall at_port(unsigned port) {
  VerbCall call;
  call.port = static_cast<uint16_t>(port);
  return call;
}

/// The call is about so many bytes or entries.
inline VerbCall of_size(uint64_t size) {
  VerbCall call;
  call.size = size;
  return call;
}

/// The call is about a queue pair of that type.
inline VerbCall of_type(ibv_qp_type type) {
  VerbCall call;
  const Service service = type == IBV_QPT_RC ? Service::Rc : type == IBV_QPT_UC ? Service::Uc : Service::Ud;
  call.service_mask = static_cast<uint8_t>(1u << static_cast<unsigned>(service));
  return call;
}

/// The call is about that queue pair.
inline VerbCall of_qp(const ibv_qp* qp) {
  VerbCall call = of_type(qp->qp_type);
  call.qpn = qp->qp_num;
  return call;
}

/// Notes in `call`, which leaves by `port`, to where that address leads.
void aim(VerbCall& call, ibv_context* context, unsigned port, const AddressVector& address);

/// Room for one more object of a device: taken here, and given back unless keep() is called.
class Room {
 public:
  Room(ibv_context* context, ObjectKind kind)
      : device_(of(context)->device), kind_(kind), taken_(take_object(fabric(), device_, kind)) {
    if (!taken_) errno = ENOMEM;
  }
  ~Room() {
    if (taken_) give_object(fabric(), device_, kind_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  bool taken() const { return taken_; }
  void keep() { taken_ = false; }

 private:
  uint32_t device_;
  ObjectKind kind_;
  bool taken_;
};

/// The object is gone.
inline void give_room(ibv_context* context, ObjectKind kind) {
  give_object(fabric(), of(context)->device, kind);
}

/// pass_gate for verbs that return a pointer: true, with errno, when the call fails.
inline bool gate_refuses(ControlVerb verb, ibv_context* context, const VerbCall& call = {}) {
  const int why = pass_gate(verb, context, call);
  if (why == 0) [[likely]]
    return false;
  errno = why;
  return true;
}

}  // namespace bfo::softhca
