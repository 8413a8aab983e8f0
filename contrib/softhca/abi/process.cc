// SPDX-License-Identifier: BSD-3-Clause
//
// The process: joining the fabric, the timer thread, fork and exit.
#include "contrib/softhca/abi/process.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/abi/sysfs.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/environment.h"
#include "contrib/softhca/fabric/tables.h"
#include "contrib/softhca/engine/snapshot.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kTimerSlackNs = 500'000;   // while the program polls, the timer leaves the work to it
constexpr uint64_t kTimerFarNs = 1'000'000;   // new work interrupts a sleep that is longer than this
constexpr uint64_t kTimedPollNs = 2'000'000;  // a new rule may be due earlier than those known before
constexpr uint64_t kBusyRetryNs = 200'000;

Process* current = nullptr;
pthread_mutex_t current_mutex = PTHREAD_MUTEX_INITIALIZER;

void before_fork() {
  pthread_mutex_lock(&current_mutex);
}
void after_fork_parent() {
  pthread_mutex_unlock(&current_mutex);
}
void after_fork_child() {
  // The objects belong to the parent. The child joins the fabric anew when it opens a device.
  if (current != nullptr && current->is_open()) current->fabric().disown();
  current = nullptr;
  pthread_mutex_init(&current_mutex, nullptr);
}

/// The software HCA was asked for and cannot be had: a program that went on would report something else, or
/// nothing. Empty: another process has said it.
[[noreturn]] void refuse(const std::string& error) {
  std::fflush(stdout);
  if (!error.empty()) std::fprintf(stderr, "softhca: %s\n", error.c_str());
  _exit(2);  // not exit(): other threads may be at work in what it takes down
}

/// The processes of a job usually fail alike, and mpirun ends the others when the first one of the host has
/// spoken.
void let_first_rank_speak() {
  constexpr useconds_t kFirstSpeaksUs = 2'000'000;
  const char* rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (rank != nullptr && std::strcmp(rank, "0") != 0) usleep(kFirstSpeaksUs);
}

}  // namespace

Process& Process::instance() {
  Process* process = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
  if (process != nullptr) [[likely]]
    return *process;
  static std::once_flag hooked;
  std::call_once(hooked, [] { pthread_atfork(before_fork, after_fork_parent, after_fork_child); });
  pthread_mutex_lock(&current_mutex);
  if (current == nullptr) __atomic_store_n(&current, new Process(), __ATOMIC_RELEASE);
  process = current;
  pthread_mutex_unlock(&current_mutex);
  return *process;
}

void Process::open() {
  std::lock_guard<std::mutex> guard(open_mutex_);
  if (fabric_ != nullptr) return;
  std::string error;
  Environment environment;
  std::unique_ptr<Fabric> fabric;
  if (read_environment(getenv, environment, error))
    fabric = Fabric::open(environment.fabric, environment.config, environment.node, error);
  if (!fabric) {
    if (!error.empty()) let_first_rank_speak();
    refuse(error);
  }
  fabric->on_no_room(refuse);
  spin_ = environment.spin;
  strict_pages_ = environment.strict_pages;
  FabricHeader& h = fabric->header();
  devices_.resize(h.devices);
  for (uint32_t i = 0; i < h.devices; ++i) {
    ibv_device& device = devices_[i];
    std::memset(&device, 0, sizeof(device));
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    std::snprintf(device.name, sizeof(device.name), "softhca%u", i);
    std::snprintf(device.dev_name, sizeof(device.dev_name), "uverbs%u", i);
    std::snprintf(device.dev_path, sizeof(device.dev_path), "%s/class/infiniband_verbs/uverbs%u",
                  sysfs_path(), i);
    std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%s/class/infiniband/softhca%u", sysfs_path(),
                  i);
  }
  pending_ = &fabric->self().pending;
  fabric_ = std::move(fabric);
  // Timed rules that are due are carried out before the program sees a device: so a port can be down when the
  // program starts.
  topology_settle(*fabric_, fabric_->now());
}

void Process::add(Qp& qp) {
  uint32_t slot = index_of(*fabric_, *qp.entry);
  {
    std::lock_guard<std::mutex> guard(objects_mutex_);
    qps_[slot] = &qp;
  }
  std::lock_guard<std::mutex> guard(progress_mutex_);
  qp_slots_.push_back(slot);
}

void Process::remove(Qp& qp) {
  uint32_t slot = index_of(*fabric_, *qp.entry);
  {
    std::lock_guard<std::mutex> guard(objects_mutex_);
    qps_.erase(slot);
  }
  std::lock_guard<std::mutex> guard(progress_mutex_);
  std::erase(qp_slots_, slot);
}

void Process::add(Cq& cq) {
  std::lock_guard<std::mutex> guard(objects_mutex_);
  cqs_[index_of(*fabric_, *cq.entry)] = &cq;
}
void Process::remove(Cq& cq) {
  std::lock_guard<std::mutex> guard(objects_mutex_);
  cqs_.erase(index_of(*fabric_, *cq.entry));
}
void Process::add(Srq& srq) {
  std::lock_guard<std::mutex> guard(objects_mutex_);
  srqs_[index_of(*fabric_, *srq.entry)] = &srq;
}
void Process::remove(Srq& srq) {
  std::lock_guard<std::mutex> guard(objects_mutex_);
  srqs_.erase(index_of(*fabric_, *srq.entry));
}

namespace {
template <class T>
T* look_up(const std::unordered_map<uint32_t, T*>& map, uint32_t slot) {
  auto found = map.find(slot);
  return found == map.end() ? nullptr : found->second;
}
}  // namespace

Qp* Process::qp(uint32_t slot) {
  return look_up(qps_, slot);
}
Cq* Process::cq(uint32_t slot) {
  return look_up(cqs_, slot);
}
Srq* Process::srq(uint32_t slot) {
  return look_up(srqs_, slot);
}

uint64_t Process::progress_all() {
  std::unique_lock<std::mutex> lock(progress_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  uint64_t next = progress_pending(*fabric_, qp_slots_.data(), static_cast<uint32_t>(qp_slots_.size()));
  next_ns_.store(next, std::memory_order_relaxed);
  return next;
}

void Process::progress_now() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  if (fabric_->now() < next_ns_.load(std::memory_order_relaxed)) return;
  progress_all();
}

void Process::idle() {
  sched_yield();
  FabricHeader& h = fabric_->header();
  if ((h.hooks.load(std::memory_order_relaxed) & kHookTimed) != 0) [[unlikely]] {
    uint64_t now = fabric_->now();
    uint64_t next = std::min(h.next_topology_ns.load(std::memory_order_relaxed), next_due_ns(h.faults));
    if (now >= next) topology_tick(*fabric_, now);
    kick();
  }
}

bool Process::start_timer() {
  // The timer thread may sleep until a later time than that of the new work.
  next_ns_.store(0, std::memory_order_relaxed);
  if (timer_running_.load(std::memory_order_acquire)) {
    uint64_t target = timer_target_.load(std::memory_order_relaxed);
    if (target > fabric_->now() + kTimerFarNs) {
      std::lock_guard<std::mutex> guard(timer_mutex_);
      timer_target_.store(0, std::memory_order_relaxed);
      timer_wake_.notify_one();
    }
    return true;
  }
  std::lock_guard<std::mutex> guard(timer_mutex_);
  if (timer_running_.load() || stop_) return true;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  timer_running_.store(true, std::memory_order_release);
  pthread_t thread;
  const int rc = pthread_create(&thread, nullptr, timer_main, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (rc == 0) {
    pthread_detach(thread);
  } else {
    timer_running_.store(false, std::memory_order_release);
    errno = rc;
  }
  return rc == 0;
}

void* Process::timer_main(void* process) {
  static_cast<Process*>(process)->timer_loop();
  return nullptr;
}

void Process::timer_loop() {
  prctl(PR_SET_NAME, "softhca-timer");
  prctl(PR_SET_TIMERSLACK, 1000);
  uint32_t seen_polls = polls_.load();
  std::unique_lock<std::mutex> lock(timer_mutex_);
  while (!stop_) {
    timer_target_.store(0, std::memory_order_relaxed);
    lock.unlock();
    uint64_t now = fabric_->now();
    uint64_t next = kNever;
    bool timed = (fabric_->header().hooks.load() & kHookTimed) != 0;
    if (waiting()) next = progress_all();
    if (next == 0) next = now + kBusyRetryNs;
    if (timed) {
      uint64_t due = topology_tick(*fabric_, now);
      if (due > now + kTimedPollNs) due = now + kTimedPollNs;
      if (due < next) next = due;
    }
    bool polled = polls_.load(std::memory_order_relaxed) != seen_polls;
    seen_polls = polls_.load(std::memory_order_relaxed);
    if (polled && next != kNever) next += kTimerSlackNs;
    lock.lock();
    if (stop_) break;
    timer_target_.store(next, std::memory_order_relaxed);
    if (next == kNever) {
      // No deadline is known: start_timer() wakes this thread for new work, and it looks once a second
      // anyway.
      timer_wake_.wait_for(lock, std::chrono::seconds(1));
    } else {
      now = fabric_->now();
      if (next > now) timer_wake_.wait_for(lock, std::chrono::nanoseconds(next - now));
    }
  }
  timer_running_.store(false);
}

void Process::leave() {
  if (fabric_ == nullptr) return;
  {
    std::lock_guard<std::mutex> guard(timer_mutex_);
    stop_ = true;
    timer_wake_.notify_one();
  }
  for (int i = 0; i < 100 && timer_running_.load(); ++i) usleep(1000);
  snapshot_exit(*fabric_);
  if (fabric_->leave()) snapshot_end(*fabric_);
  if (!timer_running_.load()) fabric_->hide_from_valgrind();
}

}  // namespace bfo::softhca

/// Runs at exit, after everything that depends on this library.
__attribute__((destructor)) static void softhca_at_exit() {
  using bfo::softhca::Process;
  Process* process = __atomic_load_n(&bfo::softhca::current, __ATOMIC_ACQUIRE);
  if (process != nullptr) process->leave();
}
