// SPDX-License-Identifier: BSD-3-Clause
//
// module.h: one instance of the PML: the transfer engine, its port, and the table of entry points libmpi
// calls.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/compat/ompi_includes.h"
#include "pml/bfo/glue/btl_port.h"
#include "pml/bfo/glue/buffered.h"
#include "pml/bfo/glue/builds.h"
#include "pml/bfo/glue/console.h"
#include "pml/bfo/glue/deaths.h"
#include "pml/bfo/glue/event_log.h"
#include "pml/bfo/glue/host_page.h"
#include "pml/bfo/glue/params.h"
#include "pml/bfo/glue/rail_check.h"
#include "pml/bfo/glue/request.h"
#include "pml/bfo/glue/summary.h"
#include "pml/bfo/glue/waits.h"
#include "pml/bfo/xfer/engine.h"

/// Instantiated once, in engine.cc. What the compiler shall inline elsewhere is declared inline.
extern template class bfo::xfer::Engine<bfo::glue::BtlPort>;

namespace bfo::glue {

using Engine = xfer::Engine<BtlPort>;

class Module {
 public:
  /// Makes the module of this process, or returns nullptr after a message on the terminal. `threads`:
  /// MPI_THREAD_MULTIPLE was granted.
  static Module* create(const Params& params, bool threads);
  /// After del_procs: no BTL calls back any more when this returns.
  static int destroy(Module* module);

  mca_pml_base_module_t& table() { return table_; }
  Engine& engine() { return engine_; }
  BtlPort& port() { return port_; }
  EventLog& events() { return events_; }
  Console& console() { return console_; }
  Summary& summary() { return summary_; }
  Buffered& buffered() { return buffered_; }
  const Params& params() const { return params_; }
  /// The contract a bound BTL module speaks, nullptr for others.
  const bfo_failover_btl_t* contract(const mca_btl_base_module_t* btl) const {
    for (const auto& [known, contract] : bound_) {
      if (known == btl) return contract;
    }
    return nullptr;
  }

  /// Bytes given so far to the ports of the failover BTLs, headers and READs included, one value per BTL
  /// module; the last of `n` values takes those that are left.
  void rail_bytes(unsigned long long* out, unsigned n) const;
  /// Mbit/s that the same ports were measured to move; 0: not measured.
  void port_rates(unsigned long long* out, unsigned n);

  /// A port of a failover BTL has another rate.
  void port_speed(const mca_btl_base_module_t* btl, const bfo_port_speed_t& speed);
  /// One loses packets, or does not any more.
  void port_loss(const mca_btl_base_module_t* btl, const bfo_port_loss_t& loss);

  /// Downcalls of libmpi about processes; see ompi/mca/pml/pml.h.
  int add_procs(ompi_proc_t** procs, size_t count);
  int del_procs(ompi_proc_t** procs, size_t count);
  int enable();
  /// del_procs is removing processes in order: that a BTL loses them is no failure.
  bool leaving() const { return leaving_; }

  /// A communicator was made.
  void at_comm() { rail_check_.at_comm(); }
  /// A message of one-sided communication was lost; see RailCheck.
  void at_lost_window(opal_proc_t& proc) const { rail_check_.at_lost_window(proc); }

  /// The engine's record of a process, made on first use from what the BML knows; nullptr when no BTL reaches
  /// it.
  Peer* peer(ompi_proc_t* proc);

  /// A BTL without the contract reports that it lost `proc` (nullptr: all processes). It is only recorded,
  /// because the call can come from inside the engine.
  void note_broken(mca_btl_base_module_t* btl, opal_proc_t* proc, const char* info);
  /// Acts on what was recorded. Called by every progress().
  void handle_broken() {
    if (broken_any_.load(std::memory_order_acquire)) [[unlikely]]
      handle_broken_now();
  }

  /// Progress, for a caller that only begins sends: the rails that these wait for are not connected else. Not
  /// from inside itself.
  void connect_on();
  /// A process is about to be marked dead, or a communicator was revoked: from anywhere. The next calls of
  /// progress act on it.
  void note_death() { death_.store(kLooksForDead, std::memory_order_release); }
  void handle_death() {
    const uint32_t looks = death_.load(std::memory_order_acquire);
    if (looks == 0) [[likely]]
      return;
    death_.store(looks - 1, std::memory_order_relaxed);
    settle_deaths(*this);
  }

  /// Called by every progress(). Reads the clock at every 64th call, and calls Engine::keep_alive() once a
  /// second.
  void keep_alive() {
    const uint32_t turn = turns_.load(std::memory_order_relaxed) + 1;
    turns_.store(turn, std::memory_order_relaxed);
    if (turn % kTurnsPerLook == 0) [[unlikely]]
      keep_alive_now();
  }

  /// Waits, not for long, until everything that was sent has arrived. Returns when it would have given up.
  uint64_t drain();
  /// Tells processes that this one goes away in order, and waits for their answers, but not beyond `end_ns`.
  void say_goodbye(ompi_proc_t** procs, size_t count, uint64_t end_ns);
  const Waits& waits() const { return waits_; }

  /// The request of blocking receives; nullptr while it is in use.
  RecvRequest* take_cached() { return std::exchange(cached_recv_, nullptr); }
  void give_cached(RecvRequest* req) {
    if (cached_recv_ == nullptr) [[likely]] {
      cached_recv_ = req;
    } else {
      opal_free_list_return(&mca_pml_base_recv_requests, &req->base.req_base.req_ompi.super);
    }
  }

 private:
  Module(const Params& params, const xfer::Config& config);

  bool builds_fit(ompi_proc_t** procs, size_t count) const;
  Peer* make_peer(ompi_proc_t* proc);
  Peer* make_refused(ompi_proc_t* proc);
  static void set_peer(ompi_proc_t* proc, Peer* peer);
  void add_rail(Peer* peer, const mca_bml_base_btl_t& bml_btl, const mca_bml_base_endpoint_t& ep);
  void begin_rail(Rail& rail);
  /// Its place among the ports of failover BTLs, for RailLimits::port.
  uint8_t port_index(const mca_btl_base_module_t* btl) const;
  uint32_t given_weight(const RailHandle& handle) const;
  int check_limits() const;
  int register_callbacks();
  void bind_failover_btls();
  void unbind_failover_btls();
  void keep_alive_now();
  void handle_broken_now();
  void open_page();
  void collect_summary(ompi_proc_t** procs, size_t count);
  void note_never_up(Rail& rail);

  static constexpr uint32_t kTurnsPerLook = 64;
  static constexpr uint32_t kLooksForDead = 64;

  mca_pml_base_module_t table_;
  const Params& params_;
  const GivenWeights weights_;
  BtlPort port_;
  Engine engine_;
  HostPage page_;
  EventLog events_;
  Console console_;
  Summary summary_;
  RailCheck rail_check_;
  Buffered buffered_;
  Waits waits_;
  std::vector<std::pair<mca_btl_base_module_t*, const bfo_failover_btl_t*>> bound_;
  /// Rails without the contract, and what their BTLs have reported. Both lists are small; broken_lock_ is a
  /// leaf.
  struct Broken {
    mca_btl_base_module_t* btl;
    opal_proc_t* proc;
    std::string info;
  };
  Lock broken_lock_;
  std::vector<Rail*> stock_rails_;
  std::vector<Broken> broken_;
  std::atomic<bool> broken_any_{false};
  std::atomic<bool> connecting_on_{false};
  std::atomic<uint32_t> death_{0};  ///< looks that are left
  RecvRequest* cached_recv_ = nullptr;
  std::atomic<uint32_t> turns_{0};  ///< a lost update only delays the look
  Periodic look_{1'000'000'000};    ///< after silent peers
  bool progressing_ = false;
  bool leaving_ = false;
};

/// Calls `f` for each BTL module of the process.
template <class F>
void for_each_btl(F&& f) {
  mca_btl_base_selected_module_t* selected = nullptr;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    f(selected->btl_module);
  }
}

}  // namespace bfo::glue

#include "pml/bfo/glue/hot_path.h"
