// SPDX-License-Identifier: BSD-3-Clause
//
// The fabric: one mapping of the shared-memory file plus this process's place in it. Everything that touches
// shared memory goes through a Fabric; several may exist in one OS process (unit tests do that).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "contrib/softhca/fabric/layout.h"
#include "contrib/softhca/fault/rule.h"
#include "contrib/softhca/fault/trace.h"

namespace bfo::softhca {

/// The GID tables that ports have in the beginning.
struct GidPlan {
  /// Of the ports of a node or a device, or of both; kNone: of all.
  struct Part {
    uint32_t node = kNone;
    uint32_t device = kNone;
    GidList list;
  };
  GidList all;
  std::vector<Part> parts;  ///< later ones count
};

/// What a fabric is created with; a process that joins an existing one takes over its values.
struct FabricConfig {
  uint32_t devices = 2;
  uint32_t ports = 1;
  uint64_t rate = 0;        ///< bytes per second per port and direction, 0 = unlimited
  uint64_t latency_ns = 0;  ///< one way
  double timescale = 1.0;   ///< factor on ACK and RNR timers
  GidPlan gids;
  uint32_t path_level = 0;  ///< as FabricHeader::path_level
  uint32_t lmc = 0;         ///< as FabricHeader::lmc
  std::string faults;       ///< path of a fault file, empty = none
};

struct FabricHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  std::atomic<uint32_t> ready;
  uint32_t devices;            ///< per node
  uint32_t ports;              ///< per device
  std::atomic<uint32_t> keep;  ///< stays when the last process leaves
  double timescale;
  uint64_t created_ns;
  uint32_t ethernet;    ///< 1: the ports are RoCE
  uint32_t path_level;  ///< service level in path records, or kPathRefused: there are none
  uint32_t lmc;         ///< LID mask control of every port: it has 2^lmc LIDs
  uint64_t pid_space;   ///< inode of the PID name space in which the pids of this fabric mean something
  std::atomic<uint32_t> hooks;             ///< kHook*; 0 = nothing armed
  std::atomic<uint32_t> topology_acting;   ///< processes that carry out timed rules now
  std::atomic<uint64_t> next_topology_ns;  ///< earliest timed event of the fabric
  Lock registry_lock, reap_lock, atomic_lock, late_write_lock, limit_lock;
  std::atomic<uint32_t> full_fences;  ///< a process of this fabric could not be told of by membarrier(2)
  HeapState heap;
  /// Queue pair slots below it were used, later ones never: walks stop there, as below.
  std::atomic<uint32_t> qp_fresh;
  uint32_t qp_free_head, qp_free_tail, qp_free_count;
  std::atomic<uint32_t> mr_fresh;  ///< the same for memory regions
  uint32_t mr_free_head, mr_free_tail, mr_free_count;
  std::atomic<uint32_t> next_pd;
  std::atomic<uint64_t> no_room_ns;  ///< when a process last said that the file system is full
  /// Slots ever used: walks stop there, because looking at a slot takes memory from /dev/shm.
  std::atomic<uint32_t> processes_used, contexts_used, cqs_used, srqs_used;
  ProcessEntry processes[kMaxProcesses];
  DeviceEntry devices_table[kMaxNodes * kMaxDevices];
  PortEntry ports_table[kMaxPorts];
  std::atomic<uint64_t> memlock[kMaxNodes];     ///< bytes a process may register, plus 1; 0 = no limit
  std::atomic<uint16_t> lid_to_port[kMaxLids];  ///< port index + 1
  ContextEntry contexts[kMaxContexts];
  CqEntry cqs[kMaxCqs];
  SrqEntry srqs[kMaxSrqs];
  QpEntry qps[1u << kQpSlotBits];  ///< every number has an entry, used or not
  MrEntry mrs[kMaxMrs];
  LateWrite late_writes[kMaxLateWrites];
  Resume resume[kMaxResumes];
  McastGroup mcast[kMaxMcast];
  FaultTable faults;
  TraceRing trace;
};

/// Of the subnet manager, in every subnet: the first LID of the first port.
inline uint16_t manager_lid(const FabricHeader& h) {
  return static_cast<uint16_t>(1u << h.lmc);
}
/// The part of `lid` that tells the LIDs of one port apart.
inline uint8_t path_bits(const FabricHeader& h, uint16_t lid) {
  return static_cast<uint8_t>(lid & ((1u << h.lmc) - 1));
}
/// Gives the LIDs from `lid` on to port `index`, or to none.
void assign_lids(FabricHeader& h, uint16_t lid, uint32_t index);

constexpr uint32_t port_index(uint32_t node, uint32_t device, uint32_t port) {
  return (node * kMaxDevices + device) * kMaxPortsPerDevice + (port - 1);
}
constexpr uint32_t port_node(uint32_t index) {
  return index / (kMaxDevices * kMaxPortsPerDevice);
}
constexpr uint32_t port_device(uint32_t index) {
  return index / kMaxPortsPerDevice % kMaxDevices;
}
constexpr uint32_t port_number(uint32_t index) {
  return index % kMaxPortsPerDevice + 1;
}

constexpr uint32_t qp_slot(uint32_t qpn) {
  return qpn & ((1u << kQpSlotBits) - 1);
}
constexpr uint32_t mr_slot(uint32_t key) {
  return key >> 8;
}

/// True when the wire leads from one port to the other, whatever their state.
inline bool in_one_segment(const PortEntry& a, const PortEntry& b) {
  return a.segment.load(std::memory_order_relaxed) == b.segment.load(std::memory_order_relaxed);
}

/// Raises a count of used slots so that it covers `index`.
inline void cover(std::atomic<uint32_t>& used, uint32_t index) {
  uint32_t old = used.load();
  while (old <= index && !used.compare_exchange_weak(old, index + 1)) {
  }
}

/// CLOCK_MONOTONIC in ns. The engine itself never reads a clock; it asks Fabric::now(), which tests replace.
uint64_t monotonic_ns();

class Fabric final : public OwnerOracle {
 public:
  using Clock = uint64_t (*)(void*);

  /// Joins the fabric `name` of this user, creating it when it does not exist. nullptr and a sentence on
  /// failure. `node` is the emulated host this process belongs to.
  static std::unique_ptr<Fabric> open(const std::string& name, const FabricConfig& config, uint32_t node,
                                      std::string& error);
  /// Maps an existing fabric without becoming one of its processes (softhcactl).
  static std::unique_ptr<Fabric> observe(const std::string& name, std::string& error);
  /// A private fabric backed by anonymous memory; `share` makes another process entry on the same memory.
  static std::unique_ptr<Fabric> anonymous(const FabricConfig& config, uint32_t node);
  static std::unique_ptr<Fabric> share(const Fabric& other, uint32_t node);

  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  FabricHeader& header() { return *header_; }
  const std::string& name() const { return name_; }
  uint32_t node() const { return node_; }
  uint32_t process() const { return slot_; }
  int pid() const { return pid_; }
  ProcessEntry& self() { return header_->processes[slot_]; }
  double timescale() const { return header_->timescale; }

  template <class T>
  T* at(uint64_t offset) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(header_) + offset);
  }
  /// The calling thread's owner tag; takes a lease on first use.
  OwnerTag tag() {
    if (cached_for_ == serial_) [[likely]]
      return cached_tag_;
    return tag_slow();
  }
  Lease& lease() { return self().leases[owner_lease(tag())]; }

  uint64_t now() const { return clock_(clock_arg_); }
  void set_clock(Clock clock, void* arg) {
    clock_ = clock;
    clock_arg_ = arg;
  }

  /// An asymmetric pair of fences, for a store and a load that another thread does the other way round: who
  /// does it often calls light_fence() in between, who does it rarely heavy_fence(), and one of the two sees
  /// what the other stored. Threads of any process of the fabric.
  void light_fence() const {
    if (expedited() && header_->full_fences.load(std::memory_order_relaxed) == 0) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  /// A system call of some microseconds. False: the kernel refused it, and writers may have missed what the
  /// caller stored.
  [[nodiscard]] bool heavy_fence();
  /// What a kernel before 4.16, or a container without membarrier(2), leaves: from now on all processes of
  /// the fabric use fence instructions. Before the first completion queue of this process.
  void forgo_membarrier();
  bool expedited() const { return expedited_.load(std::memory_order_relaxed); }

  bool hooked() const { return header_->hooks.load(std::memory_order_relaxed) != 0; }
  /// Recomputes FabricHeader::hooks after rules, trace or shaping changed.
  void update_hooks();

  // --- processes ---
  /// True when that slot belongs to this OS process: the own one, or another Fabric object's in it.
  bool is_here(uint32_t slot) const;
  /// True while process `slot` lives; marks and reaps it when it does not. `exact` asks the kernel, otherwise
  /// an answer up to a few ms old may be given.
  bool alive(uint32_t slot, bool exact = false);
  /// Frees everything dead processes have left. Any process.
  void reap();
  /// Is there another process of the fabric that is not stopped, and not only an observer?
  bool others_run();
  /// Process `slot` is not to be continued by anybody any more.
  void forget_resume(uint32_t slot);
  bool may_take_over(OwnerTag owner) override;
  /// Leaves early: frees everything of this process and removes the file if it was the last one. The mapping
  /// stays, so that a thread still inside does no harm.
  bool leave();
  /// Makes the mapping read-only when the process ends. Valgrind searches all writable memory for pointers
  /// when it looks for leaks. That would take minutes, and allocate gigabytes of /dev/shm for pages never
  /// used.
  void hide_from_valgrind();
  /// After fork in the child: this object is another process's; forget it without touching shared memory.
  void disown() { disowned_ = true; }

  /// Makes a pipe of process `slot` readable. Never blocks.
  void wake(uint32_t slot, WakeName name);
  /// Names descriptor `fd` (the read end of a pipe of this process) for wake(), and opens the pipe for it: no
  /// event of this process waits for that, unless so many pipes were woken since that all were closed. wake()
  /// opens what is not open.
  WakeName wake_name(int fd);
  /// Closes the own descriptor of a pipe, after the one that gave it its name: until then wake() can open it.
  void forget_wake(WakeName name);

  // --- room: the file is sparse, and a page that the file system cannot give ends the process with SIGBUS
  // ---
  /// Has the file system give the pages of `bytes` at `from`, before anything looks at them. False when it is
  /// full, or the caller of on_no_room() was told and does not return.
  bool reserve(const void* from, uint64_t bytes);
  /// As reserve(), for slot `index` of a table of which `used` slots were used before.
  template <class T>
  bool reserve_slot(const std::atomic<uint32_t>& used, uint32_t index, const T& slot) {
    return index < used.load() || reserve(&slot, sizeof(T));
  }
  /// One sentence on how much is there and how much would do; empty when another process has just said it.
  std::string no_room(uint64_t bytes);
  /// Who is told that the file system is full.
  void on_no_room(void (*told)(const std::string& sentence)) { told_no_room_ = told; }

  /// --- heap: blocks of power-of-two size, zeroed, with all their pages ---
  uint64_t allocate(uint64_t bytes);  ///< offset, 0 when full
  void release(uint64_t offset, uint64_t bytes);

  /// Removes the file when no process uses it any more; returns true when it was removed.
  static bool remove_if_unused(const std::string& name);

 private:
  Fabric() = default;
  bool map_file(std::string& error);
  bool reserve_fixed();  ///< what has no table of its own
  /// True when another process lives, as the kernel knows it.
  bool has_others();
  static std::unique_ptr<Fabric> observe_locked(const std::string& name, std::string& error);
  void identify();  ///< notes who this process is; before anything that asks which processes live
  bool shares_pid_space(const std::string& name, std::string& error);
  bool attach_process(uint32_t node, std::string& error);
  void detach_process();
  void continue_stopped();
  void register_for_fences();  ///< of other processes; sets expedited_
  OwnerTag tag_slow();
  void reap_process(uint32_t slot);
  bool dead_by_kernel(uint32_t slot);
  /// Own descriptor of a pipe of process `pid`, opened if it is not cached; -1: there is none. With
  /// wake_mutex_.
  int wake_fd(int pid, WakeName name);

  FabricHeader* header_ = nullptr;
  std::string name_;
  int fd_ = -1;
  int pid_ = 0;
  uint64_t start_time_ = 0;
  uint32_t node_ = 0;
  uint32_t slot_ = kNone;
  uint64_t serial_ = 0;
  bool owns_mapping_ = true;
  bool observer_ = false;
  bool disowned_ = false;
  std::atomic<bool> expedited_{false};  ///< membarrier(2) of any process reaches the threads of this one
  bool left_ = false;
  Clock clock_ = [](void*) { return monotonic_ns(); };
  void* clock_arg_ = nullptr;
  void (*told_no_room_)(const std::string& sentence) = nullptr;
  std::mutex wake_mutex_;
  std::map<WakeName, int> wake_fds_;  ///< own descriptor of a pipe of any process
  std::unique_ptr<std::atomic<uint64_t>[]>
      seen_;  ///< per process slot: coarse time of the last liveness check

  static constinit thread_local uint64_t cached_for_;
  static constinit thread_local OwnerTag cached_tag_;
};

}  // namespace bfo::softhca
