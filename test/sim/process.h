// SPDX-License-Identifier: BSD-3-Clause
//
// process.h: one simulated MPI process: its program, the component's engine, its port and its driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test/sim/book.h"
#include "test/sim/driver.h"
#include "test/sim/fabric.h"
#include "test/sim/sim_port.h"

namespace bfo::sim {

/// What the processes' programs share: how far each communicator and message is.
struct Shared {
  const Scenario* scenario = nullptr;
  std::vector<uint32_t> freed;     ///< per communicator: processes that freed it
  std::vector<uint64_t> begin_ns;  ///< per communicator: when it can be made; ~0 not yet
  std::vector<uint8_t> send_over;  ///< per pair
  std::vector<uint8_t> recv_over;  ///< per pair
  bool freed_changed = false;      ///< since the communicators that come after others were looked at
};

class Process {
 public:
  Process(Context& ctx, Fabric& fabric, Book& book, Shared& shared, uint32_t id);
  ~Process();
  void reset();
  /// Forget the engine of the last run, and free what its messages keep that are still on rails.
  void stop();

  /// Everything this process does when it is scheduled.
  void step();
  /// A communicator can be made now.
  void program_changed() { program_due_ns_ = 0; }
  /// Nothing left to do for the program.
  bool finished() const { return ops_left_ == 0; }
  bool quiet() { return finished() && engine_->unfinished() == 0 && driver_.outstanding() == 0; }
  /// What the program waits for, for a report of a hang.
  std::string waiting_for() const;
  uint32_t frags_out() const { return frags_out_; }
  void peer_died(uint32_t peer);
  void forged(const Fault& f);
  void arm_echo(const Fault& f);

  Engine& engine() { return *engine_; }
  Driver& driver() { return driver_; }
  uint32_t id() const { return id_; }

 private:
  friend class SimPort;
  void replayed(Half& h, Prng& d);
  void send_echoes();
  bool send_echo(const Fault& f);
  void inject(Half& h, uint8_t tag, const uint8_t* bytes, size_t size, bool must_count);
  /// One thing the program does; in order of time within its communicator.
  struct Op {
    uint64_t at;
    uint32_t pair;
    bool send;
  };
  struct CommState {
    EngineComm* comm = nullptr;
    std::vector<Op> ops;
    size_t next = 0;
    uint32_t open = 0;  ///< operations not finished
    uint64_t begin_ns = 0;
    bool live = false;
    bool over = false;
  };
  /// Something the program does again and again until it succeeds.
  struct Pending {
    enum Kind : uint8_t { kProbe, kMprobe, kImrecv, kCancel } kind;
    uint32_t pair;
    uint64_t at;  ///< not before
    Engine::Message* message = nullptr;
    int32_t taken = -1;
    RecvRequest* request = nullptr;
    uint32_t order = 0;
  };

  void run_program();
  void run_op(CommState& c, const Op& op);
  void start_send(CommState& c, uint32_t pair);
  void start_recv(uint32_t pair, int32_t src, int32_t tag);
  bool try_pending(Pending& p);
  void open_comm(uint32_t i);
  void close_comm(uint32_t i);
  void op_over(uint32_t pair, bool send);
  void matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length);
  bool register_buffer(Buffer& b, size_t n, Registration& reg);
  void count(uint32_t pair, size_t header, uint64_t offset, size_t payload);
  void count_raw(uint8_t tag, size_t size);
  bool loss_allowed(uint32_t peer) const;
  void finish_send(SendRequest& r, Outcome outcome);
  void finish_recv(RecvRequest& r, const xfer::RecvStatus& status);
  void end_regions(Buffer& b, bool undefined);
  uint64_t next_op_time() const;

  void reset_memory();
  uint8_t* get_buffer(uint32_t length);
  void put_buffer(uint8_t* buffer, uint32_t length, uint32_t dirty);
  template <class Request>
  void take_back(const std::vector<std::unique_ptr<Request>>& all, size_t used);
  template <class Request>
  Request* get_request(std::vector<Request*>& free, std::vector<std::unique_ptr<Request>>& all, size_t& next);
  SendRequest* get_send();
  RecvRequest* get_recv();
  EnginePeer* peer(uint32_t proc);
  xfer::RailLimits limits(bool self) const;

  Context& ctx_;
  Fabric& fabric_;
  Book& book_;
  Shared& shared_;
  uint32_t id_;
  SimPort port_;
  Driver driver_;
  Prng dice_;
  std::vector<CommState> comms_;
  std::vector<Pending> pending_;
  std::vector<Fault> echoes_;
  uint64_t ops_left_ = 0;
  uint64_t next_op_ns_ = 0;      ///< as next_op_time() says
  uint64_t program_due_ns_ = 0;  ///< the program has nothing to begin or end before
  uint64_t tick_ns_ = 5000;
  EnginePeer* peers_[kMaxProcs] = {};
  bool lost_peer_[kMaxProcs] = {};

  // Memory lives as long as the process; a run makes anew what it takes for the first time.
  static constexpr unsigned kBufferClasses = 24;
  static constexpr uint32_t kGuard = 8;  ///< bytes behind a receive buffer that nobody may touch
  /// Every byte of a buffer nobody uses, and so of a receive buffer before anything arrived. What a late
  /// access takes from a buffer that was given back is wrong, and what it puts there is found by the next
  /// receive.
  static constexpr uint8_t kFresh = 0xa5;
  std::vector<uint8_t*> free_buffers_[kBufferClasses];
  std::vector<std::unique_ptr<uint8_t[]>> all_buffers_;
  std::vector<std::unique_ptr<SendRequest>> all_sends_;
  std::vector<std::unique_ptr<RecvRequest>> all_recvs_;
  size_t next_send_ = 0;  ///< the first that this run has not used
  size_t next_recv_ = 0;
  size_t next_frag_ = 0;
  std::vector<SendRequest*> free_sends_;
  std::vector<RecvRequest*> free_recvs_;
  static constexpr size_t kFragSlab = 64;
  std::vector<std::unique_ptr<Frag[]>> all_frags_;
  Frag& frag(size_t i) { return all_frags_[i / kFragSlab][i % kFragSlab]; }
  Frag* free_frags_ = nullptr;
  int64_t allocated_ = 0;  ///< blocks of the engine
  uint32_t frags_out_ = 0;
  uint32_t in_inline_ = 0;        ///< pair of the blocking send being posted
  std::optional<Engine> engine_;  ///< last: destroyed before what it refers to
};

}  // namespace bfo::sim
