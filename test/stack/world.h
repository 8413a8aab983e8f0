// SPDX-License-Identifier: BSD-3-Clause
//
// world.h: one run: the fabric, the processes, the threads that are not theirs (control threads, event
// threads), faults, and what must hold.
//
// Safety is checked whenever something happens. Liveness is another matter: after the last fault has ended
// the fabric heals, and everything must end within Machine::heal_ns of virtual time; what has not is a
// numbered failure (L1 the programs, L2 the PML, L3 the BTL) with the state of all rails.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/book.h"
#include "test/sim/cell_changes.h"
#include "test/sim/context.h"
#include "test/stack/device.h"
#include "test/stack/process.h"
#include "test/stack/scenario.h"
#include "test/stack/timeline.h"
#include "test/stack/traffic.h"

namespace bfo::stack {

/// What came of a run.
struct Result {
  bool failed = false;
  std::string violation;
  uint64_t trace_hash = 0;
  uint64_t virtual_ns = 0;
  uint64_t healed_ns = 0;  // from the last fault to the end
  uint64_t events = 0;
  uint64_t packets = 0;
  uint64_t messages = 0;
  uint64_t failovers = 0;
  uint64_t restarts = 0;
  uint64_t late_landed = 0;
  uint64_t words = 0;      // of events
  uint64_t degraded = 0;   // words that a rail is
  uint64_t recovered = 0;  // .. and that it is not any more
  uint64_t by_clock = 0;   // failovers on the watchdog's word
  uint64_t down_ns = 0;    // the first failover, since the start of the run
  uint64_t closed = 0;     // epochs, also such that never came up
  uint64_t forged = 0;     // headers that no correct peer sends
  uint64_t faults = 0;     // of single packets, that happened
};

class World : public Observer {
 public:
  explicit World(const Scenario& scenario, bool tracing = false);
  ~World() override;

  Result run();

  // ---- Observer
  void wake(uint32_t process) override;
  void wake_events(uint32_t process, int fd) override;
  void accessed(uint32_t process, uint64_t address, uint32_t length, uint32_t key, bool write) override;
  void broken(const char* what) override { ctx.fail("the BTL's engine: %s", what); }
  void thrown_away(const Qp& qp, const char* what) override;
  void blocked(uint32_t process, uint64_t ns) override;

  // ---- for the processes
  uint64_t now() const { return time.now(); }
  uint64_t start_ns() const { return start_ns_; }
  /// Are these two connected? Of many processes only those that have messages for each other.
  bool talk(uint32_t p, uint32_t q) const;
  /// A clock may end a rail only if another one is up at both ends (H15).
  void rail_ended(const Link& l, int cause);
  bool begun() const { return begun_; }
  bool dead(uint32_t process) const { return actors_[process].dead; }
  /// A process has freed communicator `i`; what comes after it begins when all have.
  void freed(uint32_t i);
  void watch(uint32_t key, const Buffer& buffer);
  const Scenario& scenario;
  Timeline time;
  sim::Context ctx;
  Fabric fabric;
  sim::Book book;
  Traffic traffic;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<StreamCounts> streams;
  Result result;

  // ---- for those who look at the PML's state tables
  const cells::Tables* tables = nullptr;          // or others than the product's
  std::function<void(const Engine& pml)> on_end;  // for each process

 private:
  struct Actor {
    uint64_t wake_ns = ~uint64_t{0};  // the step in the queue that counts
    uint64_t asleep_until = 0;
    uint64_t events_until = 0;
    uint64_t slow_until = 0;
    bool events_due = false;
    bool dead = false;
    std::vector<size_t> commands;  // under way, by lane
  };
  struct Watched {
    const Buffer* buffer = nullptr;
    uint32_t use = 0;
  };

  static uint64_t environment_now();
  static uint64_t environment_random();
  static bool environment_secret(uint64_t* bits);
  friend const engine::Environment& environment();

  void open();
  void connect_all();
  void die(uint32_t process);
  void schedule(uint32_t process, uint64_t t);
  void step(uint32_t process);
  void events(uint32_t process);
  void command(uint32_t process, uint32_t lane);
  void look_for_commands(uint32_t process);
  uint64_t command_ns(uint32_t process, uint32_t lane) const;
  void begin_fault(const Fault& f);
  void end_fault(const Fault& f);
  bool over();
  bool only_unmatched();
  void fail_liveness();
  void check_traffic();
  void finish();

  std::vector<Actor> actors_;
  std::vector<Watched> watched_;  // by key
  std::vector<bool> talk_;        // by both, of many processes
  std::vector<uint32_t> freed_;   // how many processes have freed a communicator
  uint64_t start_ns_ = 0;
  bool begun_ = true;        // the program
  bool closing_ = false;     // the run is over, and virtual time stands
  uint64_t closing_ns_ = 0;  // what the clock that processes read has advanced since
  sim::Prng dice_;
};

/// Virtual time and the run's dice, of the world that runs.
const engine::Environment& environment();

}  // namespace bfo::stack
