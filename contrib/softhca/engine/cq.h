// SPDX-License-Identifier: BSD-3-Clause
//
// The completion queue: written by whoever executes a message, polled by its owner. An entry is valid when
// its sequence number says so, therefore a producer that dies in the middle leaves nothing half visible.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

inline CqeEntry& cqe_at(Fabric& fabric, CqEntry& cq, uint32_t index) {
  return fabric.at<CqeEntry>(cq.ring)[index & cq.mask];
}

/// Writes one completion: construct (takes push_lock), fill `entry()` unless it is nullptr (overrun or
/// error), then commit. Caller may hold sq_lock or resp_lock, never push_lock.
class CqePush {
 public:
  CqePush(Fabric& fabric, CqEntry& cq, DeferredActions& deferred);
  CqeEntry* entry() { return entry_; }
  /// Makes it visible; `solicited` also for every error.
  void commit(bool solicited);

 private:
  Fabric& fabric_;
  CqEntry& cq_;
  DeferredActions& deferred_;
  Guard guard_;
  CqeEntry* entry_ = nullptr;
};

/// Takes up to `count` completions. Returns how many, or -1 when the CQ is in error. The owner, any thread.
int poll_cq(Fabric& fabric, CqEntry& cq, int count, ibv_wc* completions);

/// Takes one raw entry (extended polling); false when empty. The payload has been placed.
bool poll_entry(Fabric& fabric, CqEntry& cq, CqeEntry& entry);

/// Asks for one event on the completion channel: for the first completion that a poll after this does not
/// find. The owner. Some microseconds.
void arm_cq(Fabric& fabric, CqEntry& cq, bool solicited_only);

/// Voids every completion of `qpn` that was not polled. The owner.
void purge_cq(Fabric& fabric, CqEntry& cq, uint32_t qpn);

/// Moves the entries to a ring for `entries` completions; ENOMEM, or EINVAL when they do not fit.
int resize_cq(Fabric& fabric, CqEntry& cq, uint32_t entries);

/// Places payload that still waits in unpolled completions for region `lkey` (called before it goes away).
void settle_payload(Fabric& fabric, CqEntry& cq, uint32_t lkey);

/// The CQ overflowed or was broken by a rule: CQ_ERR, and ERR plus QP_FATAL for every queue pair on it.
void fail_cq(Fabric& fabric, CqEntry& cq, DeferredActions& deferred);

}  // namespace bfo::softhca
