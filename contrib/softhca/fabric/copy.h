// SPDX-License-Identifier: BSD-3-Clause
//
// The copy: moving payload between this process and another one, under a lease the other one can revoke.
//
// How the owner of the memory gets a barrier (deregistering a region, moving a queue pair to ERR, destroying
// it): the copier publishes the remote segments in its lease, then validates key and state, then copies. The
// owner first invalidates key or state, then waits for leases that touch its memory. A copier that was
// stopped by a signal cannot block the owner for ever. The kernel reads the segments from the lease when the
// system call is entered. So the owner sets their lengths to zero, and goes on when it has seen the copier
// stopped after that.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

enum class CopyResult : uint8_t {
  kDone,
  kPeerGone,     ///< the process is dead, or this one may not access its memory
  kRemoteFault,  ///< its memory is not mapped
  kLocalFault,   ///< our memory is not mapped
  kRevoked,      ///< the owner has revoked the lease; nothing was copied after that
};

/// One copy between local segments and memory of process `target`. Construct, validate keys, then run once.
class Copy {
 public:
  /// Publishes the first `length` bytes of `remote` in the calling thread's lease. With `firm` the lease
  /// cannot be revoked while this process is stopped (an atomic operation consists of two copies).
  Copy(Fabric& fabric, uint32_t target, const Sge* remote, uint32_t remote_count, uint64_t length,
       bool firm = false);
  ~Copy();
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  /// Local memory -> target. `local` segments must hold at least `length` bytes in all.
  CopyResult put(const Sge* local, uint32_t local_count) { return run(local, local_count, true); }
  /// Target -> local memory.
  CopyResult get(const Sge* local, uint32_t local_count) { return run(local, local_count, false); }

 private:
  CopyResult run(const Sge* local, uint32_t local_count, bool put);
  CopyResult run_here(const Sge* local, uint32_t local_count, bool put);

  Fabric& fabric_;
  Lease& lease_;
  uint32_t target_;
  uint64_t length_;
  uint32_t count_ = 0;
  iovec remote_[kMaxSge + 4];
};

/// Waits until no copy touches [addr, addr + length) of this process any more. Call after invalidating the
/// key.
void wait_for_copies(Fabric& fabric, uint64_t addr, uint64_t length);

}  // namespace bfo::softhca
