// SPDX-License-Identifier: BSD-3-Clause
//
// The copy: process_vm_writev and process_vm_readv under a revocable lease; memcpy within one process.
#include "contrib/softhca/fabric/copy.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bfo::softhca {
namespace {

/// The tail of a message is its own segment: the kernel may store a segment out of order, and programs poll
/// the last bytes of a buffer.
constexpr uint64_t kTailBytes = 8;

bool readable(const iovec* segments, uint32_t count) {
  constexpr uint64_t kPage = 4096;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t at = reinterpret_cast<uint64_t>(segments[i].iov_base);
    uint64_t end = at + segments[i].iov_len;
    for (unsigned pages = 0; at < end && pages < 65536; at = (at | (kPage - 1)) + 1, ++pages) {
      char byte;
      iovec here{&byte, 1}, there{reinterpret_cast<void*>(at), 1};
      if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1) return false;
    }
  }
  return true;
}

/// Drops the first `bytes` of a segment list; returns how many leading segments are used up.
uint32_t advance(iovec* segments, uint32_t count, uint64_t bytes) {
  uint32_t first = 0;
  while (first < count && bytes >= segments[first].iov_len) {
    bytes -= segments[first].iov_len;
    ++first;
  }
  if (first < count && bytes > 0) {
    segments[first].iov_base = static_cast<char*>(segments[first].iov_base) + bytes;
    segments[first].iov_len -= bytes;
  }
  return first;
}

void say_once_not_permitted() {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    std::fprintf(stderr,
                 "softhca: this machine forbids process_vm_writev between processes of one user (yama "
                 "ptrace_scope or seccomp); allow it, the software HCA moves its data that way\n");
  }
}

}  // namespace

Copy::Copy(Fabric& fabric, uint32_t target, const Sge* remote, uint32_t remote_count, uint64_t length,
           bool firm)
    : fabric_(fabric), lease_(fabric.lease()), target_(target), length_(length) {
  uint64_t left = length;
  for (uint32_t i = 0; i < remote_count && left > 0; ++i) {
    uint64_t part = remote[i].length < left ? remote[i].length : left;
    if (part == 0) continue;
    left -= part;
    char* base = reinterpret_cast<char*>(remote[i].addr);
    if (left == 0 && part > kTailBytes) {
      remote_[count_++] = {base, part - kTailBytes};
      remote_[count_++] = {base + part - kTailBytes, kTailBytes};
    } else {
      remote_[count_++] = {base, part};
    }
  }
  for (uint32_t i = 0; i < count_; ++i) lease_.iov[i] = remote_[i];
  lease_.count = count_;
  lease_.target.store(target, std::memory_order_relaxed);
  lease_.revoked.store(0, std::memory_order_relaxed);
  lease_.active.store(firm ? 2 : 1, std::memory_order_seq_cst);
}

Copy::~Copy() {
  lease_.active.store(0, std::memory_order_release);
}

CopyResult Copy::run_here(const Sge* local, uint32_t local_count, bool put) {
  uint32_t mine = 0, theirs = 0;
  uint64_t mine_at = 0, theirs_at = 0, left = length_;
  while (left > 0 && mine < local_count && theirs < count_) {
    uint64_t part = local[mine].length - mine_at;
    if (remote_[theirs].iov_len - theirs_at < part) part = remote_[theirs].iov_len - theirs_at;
    if (left < part) part = left;
    char* here = reinterpret_cast<char*>(local[mine].addr) + mine_at;
    char* there = static_cast<char*>(remote_[theirs].iov_base) + theirs_at;
    if (part > 0) std::memmove(put ? there : here, put ? here : there, part);
    left -= part;
    mine_at += part;
    theirs_at += part;
    if (mine_at == local[mine].length) ++mine, mine_at = 0;
    if (theirs_at == remote_[theirs].iov_len) ++theirs, theirs_at = 0;
  }
  return CopyResult::kDone;
}

CopyResult Copy::run(const Sge* local, uint32_t local_count, bool put) {
  if (length_ == 0) return CopyResult::kDone;
  ProcessEntry& peer = fabric_.header().processes[target_];
  int pid = peer.pid.load(std::memory_order_relaxed);
  if (fabric_.is_here(target_)) return run_here(local, local_count, put);
  iovec mine[kMaxSge + 4];
  uint32_t mine_count = 0;
  uint64_t left = length_;
  for (uint32_t i = 0; i < local_count && left > 0; ++i) {
    uint64_t part = local[i].length < left ? local[i].length : left;
    if (part == 0) continue;
    mine[mine_count++] = {reinterpret_cast<void*>(local[i].addr), part};
    left -= part;
  }
  iovec* from_mine = mine;
  uint32_t first = 0;  // of remote_
  left = length_;
  for (;;) {
    ssize_t moved = put ? process_vm_writev(pid, from_mine, mine_count, lease_.iov, lease_.count, 0)
                        : process_vm_readv(pid, from_mine, mine_count, lease_.iov, lease_.count, 0);
    if (lease_.revoked.load(std::memory_order_seq_cst) != 0) return CopyResult::kRevoked;
    if (moved <= 0) {
      if (moved < 0 && errno == EPERM) say_once_not_permitted();
      if (moved < 0 && (errno == ESRCH || errno == EPERM)) return CopyResult::kPeerGone;
      if (!fabric_.alive(target_, true)) return CopyResult::kPeerGone;
      return readable(from_mine, mine_count) ? CopyResult::kRemoteFault : CopyResult::kLocalFault;
    }
    left -= static_cast<uint64_t>(moved);
    if (left == 0) return CopyResult::kDone;
    uint32_t used = advance(from_mine, mine_count, static_cast<uint64_t>(moved));
    from_mine += used;
    mine_count -= used;
    first += advance(remote_ + first, count_ - first, static_cast<uint64_t>(moved));
    for (uint32_t i = first; i < count_; ++i) lease_.iov[i - first] = remote_[i];
    lease_.count = count_ - first;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (lease_.revoked.load(std::memory_order_seq_cst) != 0) return CopyResult::kRevoked;
  }
}

void wait_for_copies(Fabric& fabric, uint64_t addr, uint64_t length) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  FabricHeader& h = fabric.header();
  for (uint32_t slot = 0; slot < h.processes_used.load(); ++slot) {
    ProcessEntry& entry = h.processes[slot];
    if (entry.state.load() != ProcessState::kLive) continue;
    uint64_t map = entry.lease_map.load();
    for (uint32_t i = 0; map != 0 && i < kLeases; ++i, map >>= 1) {
      Lease& lease = entry.leases[i];
      if ((map & 1) == 0 || (slot == fabric.process() && &lease == &fabric.lease())) continue;
      OwnerTag owner = make_owner(slot, entry.generation.load(), i);
      for (unsigned round = 0; lease.active.load() != 0 && lease.target.load() == fabric.process(); ++round) {
        bool touches = false;
        for (uint32_t s = 0; s < lease.count && s < kMaxSge + 4; ++s) {
          uint64_t base = reinterpret_cast<uint64_t>(lease.iov[s].iov_base);
          if (base < addr + length && addr < base + lease.iov[s].iov_len) touches = true;
        }
        if (!touches) break;
        if (round > 100 && fabric.may_take_over(owner)) break;
        timespec nap{0, 20'000};
        nanosleep(&nap, nullptr);
      }
    }
  }
}

}  // namespace bfo::softhca
