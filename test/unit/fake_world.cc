// SPDX-License-Identifier: BSD-3-Clause
//
// fake_world.cc: how fragments travel in a World, and what dies with a rail.
#include "test/unit/fake_world.h"

#include <cstring>

#include "common/check.h"

namespace bfo::test {

World::World(const Options& o) : options(o) {
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

World::~World() {
  for (size_t me = 0; me < engines.size(); ++me) {
    if (!comms[me]) continue;
    uint32_t posted = engines[me]->queue_lengths(comms[me], xfer::kAnySource).posted;
    for (int32_t i = 0; i < comms[me]->size; ++i) posted += engines[me]->queue_lengths(comms[me], i).posted;
    BFO_CHECK(posted == comms[me]->n_posted);
  }
  for (Flight& f : flights) delete f.frag;
  engines.clear();
}

xfer::Peer<FakePort>* World::peer(int me, int other) {
  auto*& p = peers[me][other];
  if (p) return p;
  p = engines[me]->peer_add(other, options.preferred_key, options.own && me == other);
  if (!p) return nullptr;
  for (int r = 0; r < options.rails; ++r) {
    xfer::RailLimits l;
    l.eager_limit = options.eager;
    l.inline_limit = options.longest_inline;
    l.blocking_limit = options.longest_blocking;
    l.rndv_eager_limit = options.rndv_eager != 0 ? options.rndv_eager : options.eager;
    l.max_send_size = options.max_send;
    l.get_limit = options.get ? options.rdma_limit : 0;
    l.put_limit = options.put ? options.rdma_limit : 0;
    l.rdma_frag_size = options.rdma_frag;
    l.failover = !stock;
    const bool is_up = up[key(me, other, r)];
    xfer::Rail<FakePort>* const rail = engines[me]->rail_add(p, FakePort::RailHandle{other, r}, l);
    if (rail == nullptr) continue;
    const RailState good = options.strangers ? RailState::kIdle : RailState::kUp;
    engines[me]->rail_begin(rail, is_up ? good : RailState::kDown, name(me, other, r));
  }
  return p;
}

// ---- MPI

SendReq* World::isend(int from, int to, int tag, std::vector<uint8_t> data, xfer::SendMode mode,
                      xfer::Comm<FakePort>* comm) {
  sends.push_back(std::make_unique<SendReq>());
  SendReq* const r = sends.back().get();
  r->data = std::move(data);
  restart_send(r, from, to, tag, mode, comm);
  return r;
}

void World::restart_send(SendReq* r, int from, int to, int tag, xfer::SendMode mode,
                         xfer::Comm<FakePort>* comm) {
  r->done = false;
  xfer::SendArgs<FakePort> a;
  a.comm = comm ? comm : comms[from];
  a.dst = to;
  a.tag = tag;
  a.length = r->data.size();
  a.mode = mode;
  engines[from]->isend(r, a);
}

RecvReq* World::irecv(int at, int from, int tag, size_t capacity, xfer::Comm<FakePort>* comm) {
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

bool World::room(int from, int to, int rail) const {
  if (refuses && refuses(from, to)) return false;
  if (options.capacity == World::Options{}.capacity) return true;
  int n = 0;
  for (const Flight& f : flights) n += f.from == from && f.to == to && f.rail == rail;
  return n < options.capacity;
}

bool World::post(Flight f) {
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

Post World::post_rdma(Flight f) {
  // over a rail to oneself it is over inside the call
  if (!options.rdma_now && !(options.loopback && f.from == f.to)) {
    post(std::move(f));
    return Post::kAccepted;
  }
  carried[f.from] += f.size;
  arrive(f);
  return Post::kCompleted;
}

void World::arrive(const Flight& f) {
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

void World::end(const Flight& f, Fate fate) {
  if (f.frag)
    engines[f.from]->on_done(f.frag, fate);
  else if (fate != Fate::kDelivered)
    engines[f.from]->on_sendi_failed(rail(f.from, f.to, f.rail), f.tag, f.bytes.data(), f.bytes.size(), fate);
}

void World::take(size_t i) {
  const Flight f = flights[i];
  flights.erase(flights.begin() + static_cast<ptrdiff_t>(i));
  arrive(f);
  end(f, Fate::kDelivered);
}

size_t World::first_of(int from, int to, int rail) const {
  for (size_t i = 0; i < flights.size(); ++i)
    if (flights[i].from == from && flights[i].to == to && flights[i].rail == rail) return i;
  return static_cast<size_t>(-1);
}

size_t World::find(int from, int to, core::MsgType tag, size_t at) const {
  for (size_t i = at; i < flights.size(); ++i)
    if (flights[i].from == from && flights[i].to == to && flights[i].tag == static_cast<uint8_t>(tag))
      return i;
  return static_cast<size_t>(-1);
}

bool World::run(size_t limit) {
  for (size_t n = 0; n < limit; ++n) {
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

// ---- its rails

std::vector<Flight> World::take_all(size_t rail_key) {
  std::vector<Flight> taken;
  for (size_t i = 0; i < flights.size();) {
    if (key(flights[i].from, flights[i].to, flights[i].rail) == rail_key) {
      taken.push_back(flights[i]);
      flights.erase(flights.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return taken;
}

void World::kill(int a, int b, int r, const std::function<bool(const Flight&)>& arrives) {
  const size_t k = key(a, b, r);
  if (!up[k]) return;
  up[k] = false;
  const std::vector<Flight> lost = take_all(k);
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

void World::execute_late(size_t rail_key) {
  for (size_t i = 0; i < late_ones.size();) {
    if (key(late_ones[i].from, late_ones[i].to, late_ones[i].rail) == rail_key) {
      arrive(late_ones[i]);
      late_ones.erase(late_ones.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

bool World::closures() {
  if (pending_close.empty() || hold_close) return false;
  while (!pending_close.empty()) {
    const Close c = pending_close.front();
    pending_close.pop_front();
    execute_late(key(c.a, c.b, c.r));
    engines[c.a]->on_rail_closed(rail(c.a, c.b, c.r), c.ev, FenceResult::kFenced, 0);
    engines[c.b]->on_rail_closed(rail(c.b, c.a, c.r), c.ev, FenceResult::kFenced, 0);
  }
  return true;
}

bool World::run_fences() {
  if (fences.empty()) return false;
  const std::vector<Fence> todo = std::move(fences);
  fences.clear();
  for (const Fence& f : todo) kill(f.me, f.other, f.rail);
  return true;
}

void World::revive(int a, int b, int r) {
  closures();
  const size_t k = key(a, b, r);
  if (up[k]) return;
  up[k] = true;
  ++epoch[k];
  xfer::RailEvent ev;
  ev.name = name(a, b, r);
  engines[a]->on_rail_up(rail(a, b, r), ev);
  engines[b]->on_rail_up(rail(b, a, r), ev);
}

}  // namespace bfo::test
