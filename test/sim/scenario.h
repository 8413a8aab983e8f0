// SPDX-License-Identifier: BSD-3-Clause
//
// scenario.h: one run as data: the machine, the program of every process, and the faults. A seed and the name
// of a configuration make one (generate()); it can be printed, cut down and read back (print(), parse()).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bfo::sim {

inline constexpr unsigned kMaxProcs = 16;
inline constexpr unsigned kMaxSimRails = 4;
inline constexpr uint32_t kMaxPacket = 1280;  ///< bytes of header and payload of one packet

/// The machine and the tuning of the component, one for the whole run. Times in virtual nanoseconds.
struct Machine {
  uint64_t seed = 1;  ///< of all dice thrown while the scenario runs
  uint32_t procs = 4;
  uint32_t rails = 2;
  uint32_t eager_limit = 256;  ///< header included
  uint32_t rndv_eager = 192;
  uint32_t blocking_limit = 0;  ///< longest message that an inline send offers, if more than eager_limit
  uint32_t max_send = 512;
  uint32_t put_limit = 1024;  ///< 0: rails cannot put
  uint32_t get_limit = 1024;  ///< 0: rails cannot get
  uint32_t get_alignment = 1;
  uint32_t min_rdma = 0;
  uint32_t rdma_frag = 1024;
  uint32_t send_depth = 4;
  uint32_t rdma_depth = 4;
  uint32_t use_get = 1;
  uint32_t use_put = 1;
  uint32_t sq_depth = 32;    ///< work requests per queue pair
  uint32_t srq_depth = 64;   ///< messages a receiver holds before it answers RNR
  uint32_t frags = 4096;     ///< fragment records per process
  uint32_t retained = 1024;  ///< completed sends per rail that can still be handed back (H4)
  uint32_t latency_ns = 1500;
  uint32_t retry_ns = 200000;     ///< a queue pair gives up this long after a loss
  uint32_t suspect_ns = 40000;    ///< progress clock
  uint32_t drain_ns = 20000;      ///< longest time from ERR to a destroyed queue pair
  uint32_t late_ns = 400000;      ///< longest life of a packet in a dying fabric
  uint32_t backoff_ns = 20000;    ///< first wait before a handshake
  uint32_t uneven = 0;            ///< rail 1 has half the limits
  uint32_t lazy = 0;              ///< peers and connections appear on first use
  uint32_t fresh_conn = 0;        ///< a reconnection gets a new nonce pair
  uint64_t park_ns = 300000000;   ///< pml_bfo_park_timeout
  uint64_t limit_ns = 700000000;  ///< a run that is not finished by then hangs
  uint32_t unfenceable = 0;       ///< a lost device cannot prove that its accesses ended (H12)
  uint32_t may_lose_peer = 0;     ///< outages may be longer than the park time
};

/// One communicator: all processes, in an order rotated by `shift`. With `after`, it is made when every
/// process has freed that one, and has the same context id (H6).
struct CommPlan {
  uint32_t ctx = 0;
  uint32_t shift = 0;
  int32_t after = -1;
  uint32_t skew_ns = 0;  ///< processes make it this far apart at most
};

enum class SendStyle : uint8_t { kStandard, kSync, kReady, kBuffered, kInline, kCount };
enum class RecvStyle : uint8_t { kPlain, kProbe, kMprobe, kCancel, kCount };

/// One message and one receive of the same group: receives of a group accept any of its messages. `at` counts
/// from the communicator's start in this process. A kCancel pair has no message.
struct PairPlan {
  uint32_t comm = 0;
  uint32_t src = 0;  ///< process of the message
  uint32_t dst = 0;  ///< process of both
  int32_t tag = 0;
  uint32_t length = 0;
  SendStyle send_style = SendStyle::kStandard;
  bool contiguous = true;
  uint64_t send_at = 0;
  RecvStyle recv_style = RecvStyle::kPlain;
  bool any_source = false;
  bool any_tag = false;
  bool recv_contiguous = true;
  uint32_t capacity = 0;
  uint64_t recv_at = 0;
};

enum class FaultKind : uint8_t {
  // one packet: the n-th of a class from p to q on rail r
  kDrop,
  kNoAck,
  kHold,  ///< it and all behind it stay in the fabric for d
  kErrorNow,
  kErrorDone,
  // by time t
  kPortDown,    ///< port of p on rail r for d, with an event
  kSilent,      ///< the same without an event
  kOneWay,      ///< nothing from p to q on rail r for d
  kBreak,       ///< p's queue pair to q on rail r goes to ERR
  kPause,       ///< p takes no steps for d
  kNoResource,  ///< p's posts on rail r are refused for d
  kRailDown,    ///< all ports of rail r for d, with events
  kAllDown,     ///< all ports of all rails for d, with events
  kDevice,      ///< p's device of rail r is lost, with what it had acknowledged but not handed over
  kDeath,       ///< p dies
  kForge,       ///< p receives a forged or stale header, n = which, as if from q on rail r
  kEcho,    ///< from t on, when a request of p with q is in the phase of cell n, p gets a header it ignores
  kLinger,  ///< p's queue pair to q on rail r, when it dies within d, is destroyed at t + d only
  kCount
};
inline constexpr bool by_packet(FaultKind k) {
  return k <= FaultKind::kErrorDone;
}

/// Which packets a fault counts: a wire type (0x41..0x57), or one of these.
inline constexpr uint32_t kAnyPacket = 0;
inline constexpr uint32_t kWritePacket = 1;
inline constexpr uint32_t kReadPacket = 2;
inline constexpr uint32_t kRestartPacket = 3;  ///< any of NOTIFY, RESTARTACK, NACK, RECVERR, SENDDONE
inline constexpr uint32_t kDataPacket = 4;     ///< FRAG, write or read

struct Fault {
  FaultKind kind = FaultKind::kDrop;
  uint64_t t = 0;
  uint32_t p = 0;
  uint32_t q = 0;
  uint32_t r = 0;
  uint32_t cls = kAnyPacket;
  uint32_t n = 1;
  uint64_t d = 0;
};

struct Scenario {
  std::string config;
  Machine machine;
  std::vector<CommPlan> comms;
  std::vector<PairPlan> pairs;
  std::vector<Fault> faults;
};

/// The names of the configurations, "default" first.
const std::vector<std::string>& config_names();
/// False: no such configuration.
bool generate(uint64_t seed, const std::string& config, Scenario& out);

std::string print(const Scenario& s);
std::string print(const Fault& f);
/// False: `error` says which line and why.
bool parse(const std::string& text, Scenario& out, std::string& error);

}  // namespace bfo::sim
