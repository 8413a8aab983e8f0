// SPDX-License-Identifier: BSD-3-Clause
//
// process.h: one MPI process of a run: its ports (the BTL's engine), the PML's engine above them, and its
// program. It runs when the world lets it, as a process does that calls progress.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/engine/device/device.h"
#include "btl/verbs/engine/rail/port.h"
#include "test/sim/book.h"
#include "test/stack/device.h"
#include "test/stack/port.h"
#include "test/stack/scenario.h"
#include "test/stack/streams.h"

namespace bfo::stack {

class World;

/// One rail to one peer.
struct Link {
  engine::Endpoint endpoint;
  Process* process = nullptr;
  uint32_t peer = 0;
  uint32_t rail = 0;
  EngineRail* engine_rail = nullptr;  // nullptr: the PML has not met the peer
};

/// One device and its port.
struct Nic {
  Process* process = nullptr;
  uint32_t rail = 0;
  Device* fake = nullptr;
  engine::Device device;
  engine::Port port;
};

class Process {
 public:
  Process(World& world, uint32_t id);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Opens devices and ports.
  void open();
  /// Knows the ports of `peer`, as after the modex.
  void meet(Process& peer);
  /// The PML's part of MPI_Init.
  void begin();
  /// One round of progress and what the program does then. Returns the time to the next one.
  uint64_t step();
  /// The event thread runs. True: it must run again soon.
  bool serve_events();
  /// A control thread of lane `lane` runs one command.
  bool run_command(uint32_t lane);
  uint32_t lanes() const;
  /// Does lane `lane` stop queue pairs? Does it make and destroy them?
  static bool stops(uint32_t lane) { return lane % kLanes == 2; }
  static bool makes(uint32_t lane) { return lane % kLanes == 1; }
  size_t commands(uint32_t lane) { return lanes_[lane]->pending(); }
  /// Says goodbye and closes everything; false after a violation.
  /// Nothing may count as load of a rail while nothing is under way.
  void check_loads();
  void close();

  /// A communicator whose predecessor everybody has freed can be made from now on.
  void comm_begins(uint32_t comm);
  bool has_freed(uint32_t comm) const { return comms_[comm].over; }
  void peer_died(uint32_t peer);
  /// Posts on a rail are refused, or are not any more.
  void refuse_posts(uint32_t rail, bool refuse) { no_room_[rail] += refuse ? 1 : -1; }

  // ---- headers that no correct peer sends: echo.cc, forge.cc
  void arm_echo(const Fault& f);
  void expect_forged();
  void forged(const Fault& f);

  bool finished() const {
    return left_ == 0 && pending_.empty() && (streams_ == nullptr || streams_->over());
  }
  bool quiet();
  /// What is open here waits for a request that failed alone: MPI lets it wait for ever. Not so if the two
  /// match, if they were matched, or if one side has given up the other.
  bool only_unmatched() const;
  std::string state() const;
  Nic& nic(uint32_t rail) { return *nics_[rail]; }
  Link* link(uint32_t peer, uint32_t rail);
  Engine& engine() { return *engine_; }
  uint32_t id() const { return id_; }
  Streams* streams() const { return streams_.get(); }

 private:
  friend class StackPort;
  static constexpr uint32_t kLanes = 7;  // of a port
  struct Op {
    uint64_t at;
    uint32_t pair;
    bool send;
  };
  struct CommState {
    EngineComm* comm = nullptr;
    std::vector<Op> ops;
    size_t next = 0;
    uint32_t open = 0;                 // operations that are not over
    uint64_t begin_ns = ~uint64_t{0};  // since the start of the run; ~0: not known yet
    bool live = false;
    bool over = false;
  };
  struct Heard {  // a message, to be played again
    uint32_t from = 0;
    uint8_t tag = 0;
    std::string bytes;
  };
  /// Something the program does again and again until it succeeds.
  struct Pending {
    enum Kind : uint8_t { kProbe, kMprobe, kImrecv, kCancel } kind;
    uint32_t pair;
    uint64_t at;
    Engine::Message* message = nullptr;
    int32_t taken = -1;
    RecvRequest* request = nullptr;
    uint32_t order = 0;
  };

  // process.cc
  void work(uint64_t handled);
  engine::Config config() const;
  EnginePeer* peer(uint32_t id);
  xfer::RailLimits limits(uint32_t rail) const;
  void forget_peers();

  // host.cc
  static engine::Host host(Nic& nic);
  void deliver(engine::Endpoint& e, uint8_t tag, char* data, uint32_t length);
  void forge_tag(engine::Endpoint& e, uint8_t tag, const char* data, uint32_t length);
  void may_be_unknown(const engine::Endpoint& e);
  void frag_done(engine::Endpoint& e, engine::Frag* work, int status);

  // echo.cc, forge.cc
  void send_echoes();
  bool send_echo(const Fault& f);
  void hear(const Link& from, uint8_t tag, const char* data, uint32_t length);
  void replayed(Link& l, sim::Prng& d);
  bool speaks_for_another(const Link& l, const uint8_t* bytes) const;
  Link* link_up(uint32_t peer, uint32_t first);
  void inject(Link& l, uint8_t tag, const uint8_t* bytes, size_t size, bool must_count);

  // comms.cc
  void plan();
  void open_comm(uint32_t i);
  void close_comm(uint32_t i);
  void op_over(uint32_t pair);
  CommState* next_comm();
  uint64_t next_op_ns() const;

  // program.cc
  void run_program();
  void run_op(const Op& op);
  void start_send(uint32_t pair);
  bool try_cancel(const Pending& p);
  void start_recv(uint32_t pair, int32_t src, int32_t tag);
  bool try_pending(Pending& p);
  void matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length);
  void finish_send(SendRequest& r, Outcome outcome);
  void finish_recv(RecvRequest& r, const xfer::RecvStatus& status);
  bool awaits(const sim::PairPlan& asked, uint32_t message) const;
  bool awaits(uint32_t message) const;
  bool lost(uint32_t peer) const;
  bool waits_in_vain(const sim::PairPlan& asked) const;
  bool loss_allowed(uint32_t peer) const;
  uint8_t* get_buffer(uint32_t length);
  void put_buffer(uint8_t* buffer, uint32_t length);
  template <class Request>
  Request* get_request(std::vector<Request*>& free, std::vector<std::unique_ptr<Request>>& all);

  World& world_;
  uint32_t id_;
  uint64_t handed_in_ = 0;  ///< messages
  StackPort port_;
  sim::Prng dice_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<engine::Port*> ports_;
  std::vector<engine::ControlLane*> lanes_;   // of all ports
  std::vector<std::unique_ptr<Link>> links_;  // by peer and rail
  std::vector<EnginePeer*> peers_;
  std::vector<CommState> comms_;
  uint64_t tick_ns_ = 2 * kUs;
  uint64_t alive_ns_ = 0;

  uint64_t left_ = 0;
  std::vector<Pending> pending_;
  std::vector<Fault> echoes_;  // that wait for their phase
  std::vector<Heard> heard_;   // the last ones; empty: nobody asks
  size_t n_heard_ = 0;
  int no_room_[kMaxStackRails] = {};
  std::vector<uint8_t> send_over_, recv_over_;  // per pair; 2: it failed

  std::vector<uint8_t*> free_buffers_[24];
  std::vector<std::unique_ptr<uint8_t[]>> all_buffers_;
  std::vector<std::unique_ptr<SendRequest>> all_sends_;
  std::vector<std::unique_ptr<RecvRequest>> all_recvs_;
  std::vector<SendRequest*> free_sends_;
  std::vector<RecvRequest*> free_recvs_;
  std::vector<std::unique_ptr<Frag>> all_frags_;
  Frag* free_frags_ = nullptr;
  uint32_t frags_out_ = 0;
  std::vector<ibv_mr*> cached_;  // registrations of requests that are over
  int64_t allocated_ = 0;
  uint64_t asked_ = 0;   // requests for memory
  uint64_t copied_ = 0;  // bytes, since the last step
  std::unique_ptr<Streams> streams_;
  std::optional<Engine> engine_;  // last: destroyed before what it refers to
};

}  // namespace bfo::stack
