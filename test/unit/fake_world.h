// SPDX-License-Identifier: BSD-3-Clause
//
// fake_world.h: engines ("ranks") and rails between them for the unit tests. Every posted fragment becomes a
// Flight that the test delivers, fails, delays or duplicates; rails die and come back. No threads, no clock,
// no randomness of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "test/unit/fake_port.h"

namespace bfo::test {

/// One posted fragment on its way.
struct Flight {
  enum class Kind { kSend, kPut, kGet };
  Kind kind = Kind::kSend;
  int from = 0;
  int to = 0;
  int rail = 0;
  uint32_t epoch = 0;
  uint64_t number = 0;  ///< of its direction of its rail, from 1
  uint8_t tag = 0;
  std::vector<uint8_t> bytes;
  FakePort::Frag* frag = nullptr;  ///< null: sendi
  uint8_t* local = nullptr;
  uint8_t* remote = nullptr;
  size_t size = 0;
};

/// `ranks` engines, each pair joined by `rails` rails. Rank 0's communicator 0 has them all.
class World {
 public:
  struct Options {
    int ranks = 2;
    int rails = 2;
    bool sendi = true;
    bool get = false;
    bool put = false;
    bool own = false;        ///< ranks know themselves
    bool strangers = false;  ///< rails are not connected yet, and take everything
    bool loopback = false;   ///< deliver inside the send call, as the self BTL does
    bool rdma_now = false;   ///< PUTs and READs end inside the call
    size_t eager = 256;
    size_t longest_inline = SIZE_MAX;
    size_t longest_blocking = 0;
    size_t rndv_eager = 0;  ///< 0: as `eager`
    size_t max_send = 1024;
    size_t rdma_limit = 1 << 20;
    size_t rdma_frag = 2048;
    int capacity = 1 << 30;  ///< flights a rail takes before it has no resources
    uint64_t preferred_key = 0;
    xfer::Config config{};
  };

  explicit World(const Options& o);
  ~World();

  xfer::Comm<FakePort>* add_comm(int rank, uint16_t ctx) {
    return engines[rank]->comm_add(xfer::CommDesc<FakePort>{ctx, ctx, rank, options.ranks, false});
  }

  size_t key(int a, int b, int rail) const {
    if (a > b) std::swap(a, b);
    return static_cast<size_t>((a * options.ranks + b) * options.rails + rail);
  }
  size_t lane(int from, int to, int rail) const {
    return static_cast<size_t>((from * options.ranks + to) * options.rails + rail);
  }
  RailName name(int a, int b, int rail) const {
    return RailName{1000 + key(a, b, rail), epoch[key(a, b, rail)]};
  }
  xfer::Peer<FakePort>* peer(int me, int other);
  xfer::Rail<FakePort>* rail(int me, int other, int r) { return &peer(me, other)->rails[r]; }
  /// f(me, other, rail), of all peers that are known.
  template <class F>
  void each_rail(F f) const {
    for (int me = 0; me < options.ranks; ++me)
      for (int other = 0; other < options.ranks; ++other)
        if (const auto* const p = peers[me][other])
          for (unsigned r = 0; r < p->n_rails; ++r) f(me, other, p->rails[r]);
  }

  // ---- MPI
  SendReq* isend(int from, int to, int tag, std::vector<uint8_t> data,
                 xfer::SendMode mode = xfer::SendMode::kStandard, xfer::Comm<FakePort>* comm = nullptr);
  void restart_send(SendReq* r, int from, int to, int tag, xfer::SendMode mode = xfer::SendMode::kStandard,
                    xfer::Comm<FakePort>* comm = nullptr);
  RecvReq* irecv(int at, int from, int tag, size_t capacity, xfer::Comm<FakePort>* comm = nullptr);

  // ---- the network
  bool room(int from, int to, int rail) const;
  /// Like a BTL, which has buffers of two sizes: what is longer than both it refuses, for ever.
  bool takes(size_t size) const { return size <= std::max(options.eager, options.max_send); }
  bool post(Flight f);
  Post post_rdma(Flight f);
  /// The flight reaches the peer.
  void arrive(const Flight& f);
  void end(const Flight& f, Fate fate);
  /// Take flight i: it arrives and ends well.
  void take(size_t i = 0);
  /// First flight of a rail, in order, or npos.
  size_t first_of(int from, int to, int rail) const;
  /// First flight between two ranks with this tag, from flight `at` on, or npos.
  size_t find(int from, int to, core::MsgType tag, size_t at = 0) const;
  bool run(size_t limit = 1'000'000);

  // ---- its rails
  /// A rail between a and b dies. `arrives(flight)` says which flights on it had arrived although their
  /// sender sees an error. Both sides get: down, fragments back, closed.
  void kill(int a, int b, int r, const std::function<bool(const Flight&)>& arrives = nullptr);
  /// Fences finish.
  bool closures();
  /// A fence kills the rail for both sides: what is on it has an unknown fate.
  bool run_fences();
  void revive(int a, int b, int r);

  struct Close {
    int a, b, r;
    xfer::RailEvent ev;
  };
  Options options;
  std::vector<std::unique_ptr<FakePort>> ports;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<xfer::Peer<FakePort>*>> peers;
  std::vector<xfer::Comm<FakePort>*> comms;
  std::vector<uint32_t> epoch;
  std::vector<bool> up;
  std::vector<uint64_t> posted;
  std::vector<uint64_t> carried;  ///< bytes each rank gave to its rails, or had them read
  std::deque<Flight> flights;
  std::deque<Close> pending_close;
  bool hold_close = false;
  uint64_t ended_every = 1;  ///< a rail tells the end of its work when so much more has ended
  std::function<bool(int from, int to)> refuses;  ///< no rail takes anything of this direction
  bool stock = false;                             ///< rails made from now on know no failover
  bool late = false;  ///< RDMA of a dead rail is executed once more, just before the rail is closed
  std::vector<Flight> late_ones;
  struct Fence {
    int me, other, rail;
  };
  std::vector<Fence> fences;  ///< asked for on rails that are up: carried out by run()
  std::vector<std::unique_ptr<SendReq>> sends;
  std::vector<std::unique_ptr<RecvReq>> recvs;
  uint64_t delivered[256] = {};
  uint64_t now = 0;

 private:
  /// What is on a rail leaves it.
  std::vector<Flight> take_all(size_t rail_key);
  void execute_late(size_t rail_key);
};

}  // namespace bfo::test
