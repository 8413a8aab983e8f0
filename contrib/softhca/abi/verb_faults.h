// SPDX-License-Identifier: BSD-3-Clause
//
// The faults of control verbs. Each control verb asks the fault rules before it does anything. A rule can put
// the calling thread to sleep, as a kernel does that resolves a neighbour or waits for firmware, and can make
// the call fail.
#pragma once

#include <cerrno>

#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/fabric/limits.h"
#include "contrib/softhca/fault/control_verb.h"

namespace bfo::softhca {

/// Evaluates the rules for `call` and sleeps as long as one of them requires. Returns the errno with which
/// the verb fails without having done anything, or 0. The caller holds no lock.
int apply_verb_faults(VerbCall& call);

/// True while a rule about control verbs is armed. One load.
inline bool verb_faults_armed() {
  return verbs_armed(fabric().header().faults);
}

/// As apply_verb_faults(), for a verb on the device of `context`. `call` has the other properties of the
/// call.
inline int verb_fault(ControlVerb verb, ibv_context* context, VerbCall call = {}) {
  if (!verb_faults_armed()) [[likely]]
    return 0;
  call.verb = verb;
  call.device = static_cast<uint16_t>(of(context)->device);
  return apply_verb_faults(call);
}

/// A call about one port.
inline VerbCall at_port(unsigned port) {
  VerbCall call;
  call.port = static_cast<uint16_t>(port);
  return call;
}

/// A call about `size` bytes or entries.
inline VerbCall of_size(uint64_t size) {
  VerbCall call;
  call.size = size;
  return call;
}

/// A call about a queue pair of that type.
inline VerbCall of_type(ibv_qp_type type) {
  VerbCall call;
  const Service service = type == IBV_QPT_RC   ? Service::kRc
                          : type == IBV_QPT_UC ? Service::kUc
                                               : Service::kUd;
  call.service_mask = static_cast<uint8_t>(1u << static_cast<unsigned>(service));
  return call;
}

/// A call about an existing queue pair.
inline VerbCall of_qp(const ibv_qp* qp) {
  VerbCall call = of_type(qp->qp_type);
  call.qpn = qp->qp_num;
  return call;
}

/// Sets the destination of `call`: the node behind `address`, and whether `port` can reach it.
void aim(VerbCall& call, ibv_context* context, unsigned port, const AddressVector& address);

/// One more object within the limit of a device, while it is made. The constructor counts it; the destructor
/// takes it off again unless keep() was called.
class Reservation {
 public:
  Reservation(ibv_context* context, ObjectKind kind)
      : device_(of(context)->device), kind_(kind), taken_(take_object(fabric(), device_, kind)) {
    if (!taken_) errno = ENOMEM;
  }
  ~Reservation() {
    if (taken_) give_object(fabric(), device_, kind_);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  bool taken() const { return taken_; }
  void keep() { taken_ = false; }

 private:
  uint32_t device_;
  ObjectKind kind_;
  bool taken_;
};

/// Takes a destroyed object off the count of its device.
inline void object_destroyed(ibv_context* context, ObjectKind kind) {
  give_object(fabric(), of(context)->device, kind);
}

/// verb_fault() for verbs that return a pointer: true, with errno, when the call fails.
inline bool verb_fails(ControlVerb verb, ibv_context* context, const VerbCall& call = {}) {
  const int why = verb_fault(verb, context, call);
  if (why == 0) [[likely]]
    return false;
  errno = why;
  return true;
}

}  // namespace bfo::softhca
