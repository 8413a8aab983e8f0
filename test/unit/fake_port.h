// SPDX-License-Identifier: BSD-3-Clause
//
// fake_port.h: a tiny Port in memory for the unit tests: engines ("ranks") and rails between them. Every
// posted fragment becomes a Flight that the test delivers, fails, delays or duplicates; rails die and come
// back. No threads, no clock, no randomness of its own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "pml/bfo/xfer/engine.h"

namespace bfo::test {

class World;

class FakePort {
 public:
  struct SendRequest;
  struct RecvRequest;
  struct InlineSource {
    const std::uint8_t* data;
  };
  struct Frag;
  struct RailHandle {
    int rank = -1;  ///< the rank at the other end
    int rail = -1;
  };
  using PeerHandle = int;
  using CommHandle = int;
  struct Registration {
    std::uint8_t* base = nullptr;
    std::size_t size = 0;
  };
  struct Lock {
    void lock() {}
    void unlock() {}
  };

  FakePort(World& world, int rank) : world_(world), rank_(rank) {}

  Frag* frag_alloc();
  void frag_free(Frag& f);
  void* alloc(std::size_t n) {
    if (refuse_ && refuse_(n)) return nullptr;
    return std::malloc(n ? n : 1);
  }
  void free(void* p) { std::free(p); }

  bool sendi(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl, SendRequest& r,
             std::size_t n);
  bool sendi(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl, InlineSource& s,
             std::size_t n);
  Post send(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl, SendRequest& r,
            std::uint64_t offset, std::size_t& n, Frag& f);
  Post send_bytes(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl, const void* data,
                  std::size_t n, Frag& f);
  Post put(const RailHandle& rail, SendRequest& r, std::uint64_t offset, std::size_t n, std::uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);
  Post get(const RailHandle& rail, RecvRequest& r, std::uint64_t offset, std::size_t n, std::uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);

  void* contiguous(SendRequest& r);
  void* contiguous(RecvRequest& r);
  bool register_send(SendRequest& r, std::size_t n, Registration& reg);
  bool register_recv(RecvRequest& r, std::size_t n, Registration& reg);
  void deregister(Registration& reg) {
    if (reg.base) --registrations_;
    reg = {};
  }
  bool handle(const Registration& reg, const RailHandle&, xfer::HandleBytes& out) {
    if (!reg.base) return false;
    out.size = 8;
    std::memcpy(out.bytes, &reg.base, 8);
    return true;
  }
  void matched(RecvRequest& r, std::int32_t src, std::int32_t tag, std::uint64_t length);
  void unpack(RecvRequest& r, std::uint64_t offset, const void* data, std::size_t n);

  void complete_send(SendRequest& r, Outcome o);
  void complete_recv(RecvRequest& r, const xfer::RecvStatus& s);
  void* resolve(const CommHandle& comm, std::int32_t rank);
  void peer_failed(const PeerHandle& peer, const xfer::PeerLoss& loss) {
    ++peers_failed_;
    losses_.emplace_back(peer, loss);
  }

  void fence(const RailHandle& rail, std::uint32_t epoch);
  void connect(const RailHandle&) {}
  void peer_down(const RailHandle& rail, const RailName& name, std::int32_t cause);
  void peer_closed(const RailHandle&, const RailName&, std::uint64_t) {}
  xfer::WorkCount work(const RailHandle& rail) const;

  std::uint64_t now_ns();
  void emit(const FailoverEvent& e) { events_.push_back(e); }

  World& world_;
  int rank_;
  int frags_ = 0;
  int registrations_ = 0;
  int peers_failed_ = 0;
  std::vector<std::pair<PeerHandle, xfer::PeerLoss>> losses_;
  std::function<bool(std::size_t)> refuse_;  ///< true: no memory for that many bytes
  std::vector<FailoverEvent> events_;
  std::vector<RailName> peer_downs_;                           ///< what was handed to the BTL
  std::vector<std::pair<int, std::uint32_t>> closings_asked_;  ///< rails that were down, and the epoch
};

struct FakePort::SendRequest {
  std::vector<std::uint8_t> data;
  bool contiguous = true;
  bool done = false;
  Outcome outcome = Outcome::kOk;
  std::function<void()> then;  ///< run by complete_send, may call the engine
  xfer::SendState<FakePort> xfer;
};
struct FakePort::RecvRequest {
  std::vector<std::uint8_t> data;
  bool contiguous = true;
  bool matched = false;
  bool done = false;
  xfer::RecvStatus status;
  std::function<void()> then;
  xfer::RecvState<FakePort> xfer;
};
struct FakePort::Frag {
  xfer::FragState<FakePort> xfer;
};

using Engine = xfer::Engine<FakePort>;
}  // namespace bfo::test
extern template class bfo::xfer::Engine<bfo::test::FakePort>;  // fake_engine.cc
namespace bfo::test {
using SendReq = FakePort::SendRequest;
using RecvReq = FakePort::RecvRequest;
static_assert(xfer::Port<FakePort>);

/// One posted fragment on its way.
struct Flight {
  enum class Kind { kSend, kPut, kGet };
  Kind kind = Kind::kSend;
  int from = 0;
  int to = 0;
  int rail = 0;
  std::uint32_t epoch = 0;
  std::uint64_t number = 0;  ///< of its direction of its rail, from 1
  std::uint8_t tag = 0;
  std::vector<std::uint8_t> bytes;
  FakePort::Frag* frag = nullptr;  ///< null: sendi
  std::uint8_t* local = nullptr;
  std::uint8_t* remote = nullptr;
  std::size_t size = 0;
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
    bool loopback = false;  ///< deliver inside the send call, as the self BTL does
    bool rdma_now = false;  ///< PUTs and READs end inside the call
    std::size_t eager = 256;
    std::size_t max_send = 1024;
    std::size_t rdma_frag = 2048;
    int capacity = 1 << 30;  ///< flights a rail takes before it has no resources
    std::uint64_t home_key = 0;
    xfer::Config config{};
  };

  explicit World(const Options& o) : options(o) {
    for (int i = 0; i < o.ranks; ++i) {
      ports.push_back(std::make_unique<FakePort>(*this, i));
      engines.push_back(std::make_unique<Engine>(*ports[i], o.config));
      peers.emplace_back(o.ranks, nullptr);
      comms.push_back(nullptr);
    }
    epoch.assign(o.ranks * o.ranks * o.rails, 1);
    up.assign(epoch.size(), true);
    posted.assign(epoch.size(), 0);
    carried.assign(o.ranks, 0);
    for (int i = 0; i < o.ranks; ++i) comms[i] = add_comm(i, 0);
  }
  ~World();

  xfer::Comm<FakePort>* add_comm(int rank, std::uint16_t ctx) {
    return engines[rank]->comm_add(xfer::CommDesc<FakePort>{ctx, ctx, rank, options.ranks});
  }

  std::size_t key(int a, int b, int rail) const {
    if (a > b) std::swap(a, b);
    return static_cast<std::size_t>((a * options.ranks + b) * options.rails + rail);
  }
  std::size_t lane(int from, int to, int rail) const {
    return static_cast<std::size_t>((from * options.ranks + to) * options.rails + rail);
  }
  RailName name(int a, int b, int rail) const {
    return RailName{1000 + key(a, b, rail), epoch[key(a, b, rail)]};
  }

  xfer::Peer<FakePort>* peer(int me, int other) {
    auto*& p = peers[me][other];
    if (!p) {
      p = engines[me]->peer_add(other, options.home_key);
      if (!p) return nullptr;
      for (int r = 0; r < options.rails; ++r) {
        xfer::RailLimits l;
        l.eager_limit = l.rndv_eager_limit = options.eager;
        l.max_send_size = options.max_send;
        l.get_limit = options.get ? 1 << 20 : 0;
        l.put_limit = options.put ? 1 << 20 : 0;
        l.rdma_frag_size = options.rdma_frag;
        l.failover = !stock;
        const bool is_up = up[key(me, other, r)];
        engines[me]->rail_add(p, FakePort::RailHandle{other, r}, l, is_up ? RailState::kUp : RailState::kDown,
                              name(me, other, r));
      }
    }
    return p;
  }
  xfer::Rail<FakePort>* rail(int me, int other, int r) { return &peer(me, other)->rails[r]; }

  // ---- MPI
  SendReq* isend(int from, int to, int tag, std::vector<std::uint8_t> data,
                 xfer::SendMode mode = xfer::SendMode::kStandard, xfer::Comm<FakePort>* comm = nullptr) {
    sends.push_back(std::make_unique<SendReq>());
    SendReq* const r = sends.back().get();
    r->data = std::move(data);
    restart_send(r, from, to, tag, mode, comm);
    return r;
  }
  void restart_send(SendReq* r, int from, int to, int tag, xfer::SendMode mode = xfer::SendMode::kStandard,
                    xfer::Comm<FakePort>* comm = nullptr) {
    r->done = false;
    xfer::SendArgs<FakePort> a;
    a.comm = comm ? comm : comms[from];
    a.dst = to;
    a.tag = tag;
    a.length = r->data.size();
    a.mode = mode;
    engines[from]->isend(r, a);
  }
  RecvReq* irecv(int at, int from, int tag, std::size_t capacity, xfer::Comm<FakePort>* comm = nullptr) {
    recvs.push_back(std::make_unique<RecvReq>());
    RecvReq* const r = recvs.back().get();
    r->data.assign(capacity, 0xee);
    xfer::RecvArgs<FakePort> a;
    a.comm = comm ? comm : comms[at];
    a.src = from;
    a.tag = tag;
    a.capacity = capacity;
    engines[at]->irecv(r, a);
    return r;
  }

  // ---- the network
  bool room(int from, int to, int rail) const {
    int n = 0;
    for (const Flight& f : flights) n += f.from == from && f.to == to && f.rail == rail;
    return n < options.capacity;
  }
  bool post(Flight f) {
    f.epoch = epoch[key(f.from, f.to, f.rail)];
    f.number = ++posted[lane(f.from, f.to, f.rail)];
    carried[f.from] += f.bytes.size() + f.size;
    if (options.loopback) {
      arrive(f);
      end(f, Fate::kDelivered);
      return true;
    }
    flights.push_back(std::move(f));
    return true;
  }
  Post post_rdma(Flight f) {
    if (!options.rdma_now) {
      post(std::move(f));
      return Post::kAccepted;
    }
    carried[f.from] += f.size;
    arrive(f);
    return Post::kCompleted;
  }
  /// The flight reaches the peer.
  void arrive(const Flight& f) {
    switch (f.kind) {
      case Flight::Kind::kSend: {
        ++delivered[f.tag];
        auto* const src = rail(f.to, f.from, f.rail);
        engines[f.to]->on_message(src, f.epoch, f.tag, f.bytes.data(), f.bytes.size());
        break;
      }
      case Flight::Kind::kPut:
        std::memcpy(f.remote, f.local, f.size);
        break;
      case Flight::Kind::kGet:
        std::memcpy(f.local, f.remote, f.size);
        break;
    }
  }
  void end(const Flight& f, Fate fate) {
    if (f.frag)
      engines[f.from]->on_done(f.frag, fate);
    else if (fate != Fate::kDelivered)
      engines[f.from]->on_sendi_failed(rail(f.from, f.to, f.rail), f.tag, f.bytes.data(), f.bytes.size(),
                                       fate);
  }
  /// Take flight i: it arrives and ends well.
  void take(std::size_t i = 0) {
    const Flight f = flights[i];
    flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(i));
    arrive(f);
    end(f, Fate::kDelivered);
  }
  /// First flight of a rail, in order, or npos.
  std::size_t first_of(int from, int to, int rail) const {
    for (std::size_t i = 0; i < flights.size(); ++i)
      if (flights[i].from == from && flights[i].to == to && flights[i].rail == rail) return i;
    return static_cast<std::size_t>(-1);
  }
  /// First flight between two ranks with this tag, from flight `at` on, or npos.
  std::size_t find(int from, int to, core::MsgType tag, std::size_t at = 0) const {
    for (std::size_t i = at; i < flights.size(); ++i)
      if (flights[i].from == from && flights[i].to == to && flights[i].tag == static_cast<std::uint8_t>(tag))
        return i;
    return static_cast<std::size_t>(-1);
  }
  bool run(std::size_t limit = 1'000'000) {
    for (std::size_t n = 0; n < limit; ++n) {
      if (!flights.empty()) {
        take();
        continue;
      }
      bool any = false;
      for (auto& e : engines) any = e->progress(now += 1000) > 0 || any;
      any = closures() || any;
      any = run_fences() || any;
      if (!any && flights.empty()) return true;
    }
    return false;
  }

  /// A rail between a and b dies. `arrives(flight)` says which flights on it had arrived although their
  /// sender sees an error. Both sides get: down, fragments back, closed.
  void kill(int a, int b, int r, const std::function<bool(const Flight&)>& arrives = nullptr) {
    const std::size_t k = key(a, b, r);
    if (!up[k]) return;
    up[k] = false;
    std::vector<Flight> lost;
    for (std::size_t i = 0; i < flights.size();) {
      if (key(flights[i].from, flights[i].to, flights[i].rail) == k) {
        lost.push_back(flights[i]);
        flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    for (const Flight& f : lost)
      if (f.kind == Flight::Kind::kSend && arrives && arrives(f)) arrive(f);
    for (const Flight& f : lost) {
      if (f.kind == Flight::Kind::kSend) continue;
      if (arrives && arrives(f)) arrive(f);
      if (late) late_ones.push_back(f);  // may be executed (again) until the fence is through
    }
    xfer::RailEvent ev;
    ev.name = name(a, b, r);
    ev.cause = 1;
    ev.text = "killed";
    engines[a]->on_rail_down(rail(a, b, r), ev);
    engines[b]->on_rail_down(rail(b, a, r), ev);
    for (const Flight& f : lost) end(f, Fate::kUnknown);
    pending_close.push_back(Close{a, b, r, ev});
  }
  /// Fences finish.
  bool closures() {
    if (pending_close.empty() || hold_close) return false;
    while (!pending_close.empty()) {
      const Close c = pending_close.front();
      pending_close.pop_front();
      for (std::size_t i = 0; i < late_ones.size();) {
        if (key(late_ones[i].from, late_ones[i].to, late_ones[i].rail) == key(c.a, c.b, c.r)) {
          arrive(late_ones[i]);
          late_ones.erase(late_ones.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      engines[c.a]->on_rail_closed(rail(c.a, c.b, c.r), c.ev, FenceResult::kFenced, 0);
      engines[c.b]->on_rail_closed(rail(c.b, c.a, c.r), c.ev, FenceResult::kFenced, 0);
    }
    return true;
  }
  /// A fence kills the rail for both sides: what is on it has an unknown fate.
  bool run_fences() {
    if (fences.empty()) return false;
    const std::vector<Fence> todo = std::move(fences);
    fences.clear();
    for (const Fence& f : todo) kill(f.me, f.other, f.rail);
    return true;
  }
  void revive(int a, int b, int r) {
    closures();
    const std::size_t k = key(a, b, r);
    if (up[k]) return;
    up[k] = true;
    ++epoch[k];
    xfer::RailEvent ev;
    ev.name = name(a, b, r);
    engines[a]->on_rail_up(rail(a, b, r), ev);
    engines[b]->on_rail_up(rail(b, a, r), ev);
  }

  struct Close {
    int a, b, r;
    xfer::RailEvent ev;
  };
  Options options;
  std::vector<std::unique_ptr<FakePort>> ports;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<xfer::Peer<FakePort>*>> peers;
  std::vector<xfer::Comm<FakePort>*> comms;
  std::vector<std::uint32_t> epoch;
  std::vector<bool> up;
  std::vector<std::uint64_t> posted;
  std::vector<std::uint64_t> carried;  ///< bytes each rank gave to its rails, or had them read
  std::deque<Flight> flights;
  std::deque<Close> pending_close;
  bool hold_close = false;
  bool stock = false;  ///< rails made from now on know no failover
  bool late = false;   ///< RDMA of a dead rail is executed once more, just before the rail is closed
  std::vector<Flight> late_ones;
  struct Fence {
    int me, other, rail;
  };
  std::vector<Fence> fences;  ///< asked for on rails that are up: carried out by run()
  std::vector<std::unique_ptr<SendReq>> sends;
  std::vector<std::unique_ptr<RecvReq>> recvs;
  std::uint64_t delivered[256] = {};
  std::uint64_t now = 0;
};

// ---- FakePort

inline World::~World() {
  for (Flight& f : flights) delete f.frag;
  engines.clear();
}
inline xfer::WorkCount FakePort::work(const RailHandle& rail) const {
  const std::uint64_t taken = world_.posted[world_.lane(rank_, rail.rank, rail.rail)];
  std::uint64_t ended = taken;
  for (const Flight& f : world_.flights)
    if (f.from == rank_ && f.to == rail.rank && f.rail == rail.rail && f.number <= ended)
      ended = f.number - 1;
  return {taken, ended};
}
inline FakePort::Frag* FakePort::frag_alloc() {
  ++frags_;
  return new Frag;
}
inline void FakePort::frag_free(Frag& f) {
  --frags_;
  delete &f;
}
inline Flight make_flight(Flight::Kind kind, int from, const FakePort::RailHandle& rail, std::uint8_t tag,
                          const void* h, std::size_t hl, const void* data, std::size_t n,
                          FakePort::Frag* frag) {
  Flight f;
  f.kind = kind;
  f.from = from;
  f.to = rail.rank;
  f.rail = rail.rail;
  f.tag = tag;
  f.bytes.resize(hl + n);
  if (hl) std::memcpy(f.bytes.data(), h, hl);
  if (n) std::memcpy(f.bytes.data() + hl, data, n);
  f.frag = frag;
  return f;
}
inline bool FakePort::sendi(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl,
                            SendRequest& r, std::size_t n) {
  InlineSource s{r.data.data()};
  return sendi(rail, tag, h, hl, s, n);
}
inline bool FakePort::sendi(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl,
                            InlineSource& s, std::size_t n) {
  if (!world_.options.sendi || !world_.room(rank_, rail.rank, rail.rail)) return false;
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return false;
  return world_.post(make_flight(Flight::Kind::kSend, rank_, rail, tag, h, hl, s.data, n, nullptr));
}
inline Post FakePort::send(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl,
                           SendRequest& r, std::uint64_t offset, std::size_t& n, Frag& f) {
  return send_bytes(rail, tag, h, hl, r.data.data() + offset, n, f);
}
inline Post FakePort::send_bytes(const RailHandle& rail, std::uint8_t tag, const void* h, std::size_t hl,
                                 const void* data, std::size_t n, Frag& f) {
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail)) return Post::kNoResource;
  world_.post(make_flight(Flight::Kind::kSend, rank_, rail, tag, h, hl, data, n, &f));
  return Post::kAccepted;
}
inline Post FakePort::put(const RailHandle& rail, SendRequest& r, std::uint64_t offset, std::size_t n,
                          std::uint64_t remote, const xfer::HandleBytes&, Frag& frag) {
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail)) return Post::kNoResource;
  Flight f = make_flight(Flight::Kind::kPut, rank_, rail, 0, nullptr, 0, nullptr, 0, &frag);
  f.local = r.data.data() + offset;
  f.remote = reinterpret_cast<std::uint8_t*>(remote);
  f.size = n;
  return world_.post_rdma(f);
}
inline Post FakePort::get(const RailHandle& rail, RecvRequest& r, std::uint64_t offset, std::size_t n,
                          std::uint64_t remote, const xfer::HandleBytes&, Frag& frag) {
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail)) return Post::kNoResource;
  Flight f = make_flight(Flight::Kind::kGet, rank_, rail, 0, nullptr, 0, nullptr, 0, &frag);
  f.local = r.data.data() + offset;
  f.remote = reinterpret_cast<std::uint8_t*>(remote);
  f.size = n;
  return world_.post_rdma(f);
}
inline void* FakePort::contiguous(SendRequest& r) {
  return r.contiguous ? r.data.data() : nullptr;
}
inline void* FakePort::contiguous(RecvRequest& r) {
  return r.contiguous ? r.data.data() : nullptr;
}
inline bool FakePort::register_send(SendRequest& r, std::size_t n, Registration& reg) {
  reg = Registration{r.data.data(), n};
  ++registrations_;
  return true;
}
inline bool FakePort::register_recv(RecvRequest& r, std::size_t n, Registration& reg) {
  reg = Registration{r.data.data(), n};
  ++registrations_;
  return true;
}
inline void FakePort::matched(RecvRequest& r, std::int32_t, std::int32_t, std::uint64_t) {
  r.matched = true;
}
inline void FakePort::unpack(RecvRequest& r, std::uint64_t offset, const void* data, std::size_t n) {
  if (!r.matched || offset + n > r.data.size()) std::abort();
  std::memcpy(r.data.data() + offset, data, n);
}
inline void FakePort::complete_send(SendRequest& r, Outcome o) {
  if (r.done) std::abort();  // completed twice
  r.done = true;
  r.outcome = o;
  if (r.then) r.then();
}
inline void FakePort::complete_recv(RecvRequest& r, const xfer::RecvStatus& s) {
  if (r.done) std::abort();
  r.done = true;
  r.status = s;
  if (r.then) r.then();
}
inline void* FakePort::resolve(const CommHandle&, std::int32_t rank) {
  return world_.peer(rank_, rank);
}
inline void FakePort::fence(const RailHandle& rail, std::uint32_t epoch) {
  const std::size_t k = world_.key(rank_, rail.rank, rail.rail);
  if (!world_.up[k]) closings_asked_.emplace_back(rail.rail, epoch);
  if (world_.epoch[k] <= epoch && world_.up[k]) world_.fences.push_back({rank_, rail.rank, rail.rail});
}
inline void FakePort::peer_down(const RailHandle&, const RailName& name, std::int32_t) {
  peer_downs_.push_back(name);
}
inline std::uint64_t FakePort::now_ns() {
  return world_.now;
}

}  // namespace bfo::test
