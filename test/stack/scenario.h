// SPDX-License-Identifier: BSD-3-Clause
//
// scenario.h: one run of the whole stack as data: machine, programs, faults. A configuration's name and a
// seed make one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pml/bfo/xfer/counters.h"
#include "test/sim/program.h"
#include "test/stack/device.h"
#include "test/stack/rates.h"

namespace bfo::stack {

inline constexpr uint64_t kUs = 1000;
inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

enum class FaultKind : uint8_t {
  kPortDown,    // port of p on rail r for d, with events
  kRailDown,    // all ports of rail r for d, with events
  kSilent,      // packets from and to port of p on rail r are lost for d, without an event
  kAllSilent,   // the same for all ports of all rails
  kOneWay,      // nothing from p to q on rail r for d
  kBreak,       // the connection from p to q on rail r fails with a completion error
  kSleep,       // p makes no MPI call for d
  kDevice,      // p's device of rail r dies
  kCqError,     // its completion queues overrun
  kRefuse,      // verbs that make something fail at p for d
  kLateEvents,  // p's event thread does not run for d
  kSlowVerbs,   // p's control threads are held up for d
  // the n-th packet of class `packets` that p sends to q on rail r from t on, see PacketFault
  kLose,
  kNoAnswer,
  kErrorNow,
  kErrorDone,
  kHold,    // for d
  kUnread,  // it is acknowledged, and then q's completion queues overrun
  // what is not of the fabric
  kEcho,    // from t on, when a request of p with q is in the phase of cell n, p gets a header it ignores
  kForge,   // p receives a forged or stale header, n = which, as if from q on rail r
  kDeath,   // p dies; its peers hear of it later
  kFatal,   // the connection from p to q on rail r, idle or not, fails with QP_FATAL
  kNoRoom,  // p's posts on rail r are refused for d
  kCount
};
inline constexpr unsigned kTimedFaults = static_cast<unsigned>(FaultKind::kLose);
inline constexpr bool by_packet(FaultKind k) {
  return k >= FaultKind::kLose && k <= FaultKind::kUnread;
}

struct Fault {
  FaultKind kind = FaultKind::kBreak;
  uint64_t t = 0;  // since the start of the run, as all times of a scenario
  uint32_t p = 0;
  uint32_t q = 0;
  uint32_t r = 0;
  uint64_t d = 0;
  uint32_t packets = 0;
  uint32_t n = 1;
};

/// Messages from one process to another for a time (streams.h).
struct Stream {
  uint32_t src = 0;
  uint32_t dst = 0;
  uint32_t length = 0;
  uint32_t window = 1;   // messages sent and not received
  bool batch = false;    // the next window begins when all of this one is received
  uint64_t from_ns = 0;  // nothing is sent before
  bool ordered = false;  // a message that is received before an earlier one still counts to the window
  uint32_t least = 0;    // bytes: messages have from there to `length`; 0: all have `length`
};

/// What the processor of a process does beside its work. Without it everything is done at once.
struct Processor {
  uint64_t poll_ns = 0;     // from one call of progress to the next, at least: what it computes meanwhile
  uint64_t handled_ns = 0;  // each completion and message that it handles
  uint64_t copy_rate = 0;   // bytes per second that it packs and unpacks; 0: no limit
};

struct Machine {
  uint64_t seed = 1;
  uint32_t procs = 2;
  uint32_t rails = 1;
  // the PML
  uint32_t eager_limit = 1024;
  uint32_t max_send = 2048;
  uint32_t blocking_limit = 0;  // of an inline send, if more than eager_limit
  uint32_t rndv_eager = 0;      // first bytes of a rendezvous; 0: eager_limit
  uint32_t min_rdma = 0;        // 0: eager_limit
  uint32_t get_alignment = 1;
  uint32_t piece = 1;    // a type that is not contiguous can be cut between pieces of so many bytes
  uint32_t frags = ~0u;  // fragment records of a process
  bool uneven = false;   // rail 1 has half the limits, and rails have different weights
  bool use_get = true;
  bool use_put = true;
  bool lazy = false;  // the PML meets a peer with its first message
  uint32_t short_limit = 256;
  uint32_t pipeline = 4;
  uint32_t rdma_frag = 4096;
  uint64_t park_ns = 300 * kSecond;
  uint64_t degraded_ns = kSecond;
  uint64_t connect_wait_ns = 0;
  // the BTL
  uint32_t send_depth = 32;
  uint32_t receive_depth = 64;
  uint32_t receive_first = 16;  // buffers
  uint32_t slot_bytes = 512;
  uint32_t signal_interval = 16;
  uint32_t cq_entries = 256;
  uint64_t poll_gap_ns = 0;  // see Moderation
  uint32_t inline_bytes = 128;
  uint8_t timeout = 9;  // 2.1 ms
  uint8_t retry_count = 3;
  bool control_threads = true;
  uint64_t control_ns = 30 * kUs;  // a control thread takes up to so long for a command
  uint64_t events_ns = 20 * kUs;   // and the event thread to run
  uint64_t stop_ns = 0;            // as control_ns, for the commands that stop queue pairs ..
  uint64_t queue_pair_ns = 0;      // .. and for those that make and destroy them, if not 0 ..
  uint32_t slow_process = ~0u;     // .. in one process
  uint32_t late_ports = 0;         // one bit per rail of process 0: down at the start ..
  uint64_t late_ns = 0;            // .. and for so long
  uint64_t dies_at_call = 0;       // the device of process 0 and the last rail dies in this verb
  uint64_t memory_at = 0;          // the PML's n-th request for memory in each process fails ..
  uint32_t memory_for = 0;         // .. and so many after it
  uint8_t reads_in_time = 255;     // at most, until a rail counts as one that keeps up
  uint16_t seq_step = 1;           // of the sequence numbers: 256 makes a window of 64 messages
  bool may_fail = false;           // requests may end with an error: a device died
  bool any_source_waits = false;   // a receive from any source goes on after the loss of a peer
  bool connected = false;          // the run begins when all rails are up
  bool free_comms = false;         // a process frees a communicator when nothing of it is open
  bool clocks_only = false;        // nothing ends a rail but a clock: one rail must stay up
  uint32_t polls = 33;             // between two moments of virtual time; 33: the clock is looked at
  uint64_t idle_ns = kMs;          // at most, between two calls of progress of a process that waits
  bool late_data = false;          // see add_late_data()
  bool absences = false;           // see add_absences()
  bool one_way = false;            // messages go from lower to higher processes only
  bool ports_stay_down = false;    // a port that goes down does not come back
  bool slow_copies = false;        // see add_slow_copies()
  bool early_faults = false;       // see add_early_faults()
  bool fins_lost = false;          // see add_lost_fins()
  bool last_words = false;         // see add_last_words()
  bool deaths = false;             // see add_death()
  bool no_gate = false;            // requests complete whatever their ledger says
  FabricTraits fabric;
  Processor processor;
  std::vector<PortRate> rates;      // of the ports that have one ..
  uint64_t rates_end_ns = 0;        // .. which do not change any more, nor lose anything, from then on
  uint32_t weight = 100;            // of every rail: its nominal rate in Mbit/s
  xfer::Weights weights{};          // what counts when rails share messages ..
  std::vector<uint32_t> shares;     // .. of each rail, if that is not what was measured
  uint32_t send_pipeline = 0;       // FRAGs under way, if not `pipeline`
  uint64_t heal_ns = 30 * kSecond;  // everything ends so soon after the last fault
};

struct Scenario {
  std::string config;
  Machine machine;
  sim::Program program;         // comms and pairs
  std::vector<Stream> streams;  // instead of pairs, or beside them
  uint64_t streams_ns = 0;      // so long
  uint64_t cut_ns = 0;          // the run ends so, whatever is under way; 0: it does not
  std::vector<Fault> faults;
  uint64_t last_ns = 0;  // when the last fault ends and the last operation begins
};

/// How many seeds of it a short test runs; 0: it takes too long.
uint64_t short_runs(const std::string& config);
/// The names of the configurations.
const std::vector<std::string>& config_names();
/// False: no such configuration.
bool generate(uint64_t seed, const std::string& config, Scenario& out);
/// Works out last_ns, after the program or the faults have changed.
void settle(Scenario& s);
const char* name_of(FaultKind k);
std::string print(const Fault& f);
std::string print(const Machine& m);

}  // namespace bfo::stack
