// SPDX-License-Identifier: BSD-3-Clause
//
// The processes of a fabric: joining, liveness, and clearing up after one that died at any instruction.
//
// A living process holds a POSIX record lock on byte `slot` of the fabric file. The kernel drops it when the
// process dies in whatever way, children of fork do not inherit it, and asking costs one system call.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "contrib/softhca/fabric/fabric.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kRecheckNs = 4'000'000;

uint64_t coarse_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

std::atomic<uint64_t> next_serial{1};

/// State letter of a thread from /proc, 0 when it does not exist.
char thread_state(int pid, int tid) {
  char path[64], text[512];
  std::snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (bytes <= 0) return 0;
  text[bytes] = 0;
  const char* end = std::strrchr(text, ')');
  return end != nullptr && end[1] == ' ' ? end[2] : 0;
}

/// Start of this process in clock ticks since boot, field 22 of its stat; 0 when /proc does not tell.
uint64_t own_start_time() {
  char text[1024];
  int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (bytes <= 0) return 0;
  text[bytes] = 0;
  const char* at = std::strrchr(text, ')');  // ends field 2, which may hold blanks
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

bool is_stopped(char state) {
  return state == 'T' || state == 't';
}

/// Frees a thread's lease when the thread ends.
struct LeaseHolder {
  std::atomic<uint64_t>* map = nullptr;
  uint64_t bit = 0;
  uint64_t serial = 0;
  int pid = 0;
  void drop() {
    if (map != nullptr && pid == getpid()) map->fetch_and(~bit);
    map = nullptr;
  }
  ~LeaseHolder() { drop(); }
};
thread_local LeaseHolder lease_holder;

}  // namespace

constinit thread_local uint64_t Fabric::cached_for_ = 0;
constinit thread_local OwnerTag Fabric::cached_tag_ = 0;

OwnerTag Fabric::tag_slow() {
  // One thread may use several fabrics (tests): leases are per fabric, the holder keeps only the last one.
  ProcessEntry& me = self();
  if (lease_holder.serial != serial_) lease_holder.drop();
  for (;;) {
    uint64_t map = me.lease_map.load();
    if (~map == 0) {
      timespec nap{0, 100'000};
      nanosleep(&nap, nullptr);
      continue;
    }
    uint32_t index = static_cast<uint32_t>(std::countr_one(map));
    if (!me.lease_map.compare_exchange_strong(map, map | uint64_t{1} << index)) continue;
    lease_holder = {};
    lease_holder.map = &me.lease_map;
    lease_holder.bit = uint64_t{1} << index;
    lease_holder.serial = serial_;
    lease_holder.pid = pid_;
    Lease& lease = me.leases[index];
    lease.active.store(0);
    lease.tid.store(gettid());
    cached_tag_ = make_owner(slot_, me.generation.load(), index);
    cached_for_ = serial_;
    return cached_tag_;
  }
}

void Fabric::identify() {
  pid_ = getpid();
  register_for_fences();  // may sleep for milliseconds: not while the file is locked
  start_time_ = own_start_time();
  seen_ = std::make_unique<std::atomic<uint64_t>[]>(kMaxProcesses);
}

bool Fabric::attach_process(uint32_t node, std::string& error) {
  serial_ = next_serial.fetch_add(1);
  node_ = node;
  for (uint32_t pass = 0; pass < 2; ++pass) {
    for (uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
      ProcessEntry& entry = header_->processes[slot];
      ProcessState expected = ProcessState::kFree;
      if (!reserve_slot(header_->processes_used, slot, entry)) {
        error = no_room(sizeof(entry));
        return false;
      }
      if (!entry.state.compare_exchange_strong(expected, ProcessState::kDead)) continue;
      // Marked dead until it is filled: no process takes it for a living one, or takes the slot.
      struct flock range {};
      range.l_type = F_WRLCK;
      range.l_whence = SEEK_SET;
      range.l_start = slot;
      range.l_len = 1;
      if (fcntl(fd_, F_SETLK, &range) != 0) continue;
      slot_ = slot;
      entry.generation.fetch_add(1);
      entry.pid.store(pid_);
      entry.start_time.store(start_time_);
      entry.node = node;
      entry.pending.store(0);
      entry.qps.store(0);
      entry.lease_map.store(0);
      entry.pinned.store(0);
      entry.room.store(sizeof(entry));
      entry.observes.store(observer_ ? 1 : 0);
      forget_resume(slot);
      for (auto& device : entry.objects) {
        for (auto& count : device) count.store(0);
      }
      std::memset(entry.command, 0, sizeof(entry.command));
      prctl(PR_GET_NAME, entry.command);
      if (!expedited()) forgo_membarrier();
      cover(header_->processes_used, slot);
      entry.state.store(ProcessState::kLive);
      return true;
    }
    slot_ = kNone;
    uint32_t reaped = 0;
    for (uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
      ProcessEntry& entry = header_->processes[slot];
      if (!dead_by_kernel(slot)) continue;
      entry.state.store(ProcessState::kFree);
      ++reaped;
    }
    if (reaped == 0) break;
  }
  error = "fabric '" + name_ + "' already has " + std::to_string(kMaxProcesses) + " processes";
  return false;
}

namespace {

/// Is the process stopped (proc(5), /proc/PID/stat)?
bool is_stopped(pid_t pid) {
  char text[512] = {};
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return false;
  const size_t n = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  text[n] = 0;
  const char* const name_end = std::strrchr(text, ')');  // the name may have any byte in it
  return name_end != nullptr && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

bool is_pending(uint64_t at_ns) {
  return at_ns != 0 && at_ns != kNever;
}

}  // namespace

bool Fabric::others_run() {
  FabricHeader& h = *header_;
  const auto to_be_continued = [&h](uint32_t slot) {
    for (const Resume& resume : h.resume)
      if (is_pending(resume.at_ns.load()) && resume.process == slot) return true;
    return false;
  };
  for (uint32_t slot = 0; slot < h.processes_used.load(); ++slot) {
    if (slot == slot_ || to_be_continued(slot) || !alive(slot, true)) continue;
    const ProcessEntry& entry = h.processes[slot];
    if (entry.observes.load() == 0 && !is_stopped(entry.pid.load())) return true;
  }
  return false;
}

void Fabric::forget_resume(uint32_t slot) {
  for (Resume& resume : header_->resume) {
    uint64_t at = resume.at_ns.load();
    if (is_pending(at) && resume.process == slot) resume.at_ns.compare_exchange_strong(at, 0);
  }
}

/// SIGCONT to those that a rule has stopped for a while: topology_tick() of any process sends it, and no
/// other one is left that could call it. One that only observes waits until it is time.
void Fabric::continue_stopped() {
  for (Resume& resume : header_->resume) {
    uint64_t at = resume.at_ns.load();
    if (!is_pending(at)) continue;
    while (observer_ && now() < at && !others_run()) usleep(1000);
    const uint32_t slot = resume.process;
    if (resume.at_ns.compare_exchange_strong(at, 0) && alive(slot, true))
      kill(header_->processes[slot].pid.load(), SIGCONT);
  }
}

void Fabric::detach_process() {
  forget_resume(slot_);
  ProcessEntry& me = self();
  reap_process(slot_);
  if (lease_holder.serial == serial_) lease_holder.map = nullptr;
  cached_for_ = 0;
  me.state.store(ProcessState::kFree);
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = slot_;
  range.l_len = 1;
  fcntl(fd_, F_SETLK, &range);
  // Of two that leave at once the second one finds itself the last.
  if (!others_run()) continue_stopped();
  left_ = true;
}

bool Fabric::is_here(uint32_t slot) const {
  if (slot == slot_) return true;
  const ProcessEntry& entry = header_->processes[slot];
  return entry.pid.load(std::memory_order_relaxed) == pid_ &&
         entry.start_time.load(std::memory_order_relaxed) == start_time_;
}

bool Fabric::dead_by_kernel(uint32_t slot) {
  // The kernel does not tell of locks that the own process holds.
  if (pid_ == getpid() && is_here(slot)) return false;
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = slot;
  range.l_len = 1;
  return fcntl(fd_, F_GETLK, &range) == 0 && range.l_type == F_UNLCK;
}

bool Fabric::alive(uint32_t slot, bool exact) {
  ProcessEntry& entry = header_->processes[slot];
  if (entry.state.load(std::memory_order_relaxed) != ProcessState::kLive) return false;
  if (slot == slot_) return true;
  uint64_t now = coarse_ns();
  if (!exact && now - seen_[slot].load(std::memory_order_relaxed) < kRecheckNs) return true;
  seen_[slot].store(now, std::memory_order_relaxed);
  if (!dead_by_kernel(slot)) return true;
  entry.state.store(ProcessState::kDead);
  return false;
}

bool Fabric::may_take_over(OwnerTag owner) {
  uint32_t slot = owner_slot(owner);
  ProcessEntry& entry = header_->processes[slot];
  if ((entry.generation.load() & kOwnerGenerationMask) != owner_generation(owner)) return true;
  if (entry.state.load() == ProcessState::kFree || !alive(slot, true)) return true;
  if (slot == slot_) return false;
  Lease& lease = entry.leases[owner_lease(owner)];
  if (lease.active.load() != 1 || !is_stopped(thread_state(entry.pid.load(), lease.tid.load()))) return false;
  // Stopped around its copy. Take the segments away; if it is still stopped after that, it can only find
  // them empty when it goes on, because the kernel reads them at the entry of the system call.
  lease.revoked.store(1);
  for (iovec& segment : lease.iov) segment.iov_len = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return is_stopped(thread_state(entry.pid.load(), lease.tid.load())) && lease.active.load() == 1;
}

void Fabric::reap() {
  for (uint32_t slot = 0; slot < header_->processes_used.load(); ++slot) {
    ProcessEntry& entry = header_->processes[slot];
    if (slot == slot_ || entry.state.load() == ProcessState::kFree) continue;
    if (!dead_by_kernel(slot)) continue;
    ProcessState live = ProcessState::kLive;
    entry.state.compare_exchange_strong(live, ProcessState::kDead);
    {
      // One reaper at a time; the flag doubles as the claim.
      Guard guard(header_->reap_lock, tag(), *this);
      if (entry.state.load() != ProcessState::kDead || !dead_by_kernel(slot)) continue;
      reap_process(slot);
      entry.state.store(ProcessState::kFree);
    }
  }
}

void Fabric::reap_process(uint32_t slot) {
  FabricHeader& h = *header_;
  // With hundreds of processes the table has tens of thousands of entries, and each process that leaves would
  // have all of them mapped.
  const uint32_t qps = h.processes[slot].qps.load() == 0 ? 0 : h.qp_fresh.load();
  for (uint32_t i = 0; i < qps; ++i) {
    QpEntry& qp = h.qps[i];
    if (qp.process != slot || qp.qpn.load() == 0) continue;
    qp.state.store(0);
    {
      Guard requester(qp.sq_lock, tag(), *this);
      Guard responder(qp.resp_lock, tag(), *this);
      qp.qpn.store(0);
    }
    free_qp(*this, qp);
  }
  for (uint32_t i = 0; i < h.cqs_used.load(); ++i) {
    CqEntry& cq = h.cqs[i];
    if (cq.used.load() != 0 && cq.process == slot) free_cq(*this, cq);
  }
  for (uint32_t i = 0; i < h.srqs_used.load(); ++i) {
    SrqEntry& srq = h.srqs[i];
    if (srq.used.load() != 0 && srq.process == slot) free_srq(*this, srq);
  }
  for (uint32_t i = 0; i < h.mr_fresh; ++i) {
    MrEntry& mr = h.mrs[i];
    if (mr.process == slot && mr.key.load() != 0) free_mr(*this, mr);
  }
  for (uint32_t i = 0; i < h.contexts_used.load(); ++i) {
    ContextEntry& context = h.contexts[i];
    if (context.used.load() != kContextFree && context.process.load() == slot) free_context(*this, context);
  }
}

}  // namespace bfo::softhca
