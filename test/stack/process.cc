// SPDX-License-Identifier: BSD-3-Clause
//
// process.cc: a process's ports and peers, and its rounds of progress; see process.h.
#include "test/stack/process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "btl/verbs/engine/device/async.h"
#include "pml/bfo/xfer/contract.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kBusyNs = 2 * kUs;
constexpr uint64_t kNames = 100;

/// A port's lanes of control threads, by number.
engine::ControlLane& port_lane(engine::Port& port, uint32_t i) {
  switch (i) {
    case 0:
      return port.addresses().lane();
    case 1:
      return port.queue_pairs();
    case 2:
      return port.stops();
    case 3:
      return port.setups();
    case 4:
      return port.upkeep();
    case 5:
      return port.registrations();
    default:
      return port.heartbeat().lane();
  }
}

/// A rendezvous as the PML sees it: its phase in the table and what its gate waits for.
template <class State>
std::string rndv_state(const State& x) {
  char line[160];
  std::snprintf(line, sizeof line, ": phase %u, round %u, pending %#x, %u fragments out, ledger",
                static_cast<unsigned>(x.phase), unsigned{x.rndv->name.round()}, unsigned{x.pending},
                static_cast<unsigned>(x.rndv->in_flight));
  std::string text = line;
  for (const auto* l = x.rndv->ledger; l != nullptr; l = l->next) {
    std::snprintf(line, sizeof line, " [rail %u epoch %u grant %u%s%s]", unsigned{l->rail->index}, l->epoch,
                  l->grant, l->dead ? " dead" : "", l->fin ? " fin" : "");
    text += line;
  }
  return text + "\n";
}

}  // namespace

Process::Process(World& world, uint32_t id)
    : world_(world),
      id_(id),
      port_(*this),
      dice_(sim::mix(world.scenario.machine.seed, 0x57ac, id)),
      peers_(world.scenario.machine.procs, nullptr) {}

/// After a violation nothing has been closed: a command under way would find its endpoint gone.
Process::~Process() {
  engine_.reset();
  // The system frees what a process that died had stored on its rails.
  for (const auto& f : all_frags_)
    if (f->in_use && world_.dead(id_)) std::free(f->xfer.buffer);
  forget_peers();
  for (const auto& nic : nics_) {
    nic->port.close();
    nic->device.close();
  }
}

void Process::forget_peers() {
  for (const auto& nic : nics_)
    while (engine::Endpoint* const e = nic->port.endpoints()) nic->port.remove(*e);
}

engine::Config Process::config() const {
  const Machine& m = world_.scenario.machine;
  engine::Config c;
  c.own_name = kNames + id_;
  c.send_depth = m.send_depth;
  c.slot_bytes = m.slot_bytes;
  c.receive_depth = m.receive_depth;
  c.receive_bytes = m.max_send;
  c.receive_first_bytes = m.receive_first * m.max_send;
  c.signal_interval = m.signal_interval;
  c.inline_bytes = m.inline_bytes;
  c.cq_entries = m.cq_entries;
  c.poll_gap_ns = m.poll_gap_ns;
  c.may_be_down = true;
  c.control = m.control_threads ? engine::ControlMode::kDeferred : engine::ControlMode::kInline;
  c.qp.timeout = m.timeout;
  c.qp.retry_count = m.retry_count;
  c.qp.max_read = 4;
  return c;
}

void Process::open() {
  for (uint32_t r = 0; r < world_.scenario.machine.rails; ++r) {
    nics_.push_back(std::make_unique<Nic>());
    Nic& nic = *nics_.back();
    nic.process = this;
    nic.rail = r;
    nic.fake = world_.fabric.device(id_, r);
    const char* what = "device";
    const Machine& m = world_.scenario.machine;
    const bool counts = !m.rates.empty() && !m.fabric.no_counters;
    if (!nic.device.open(counts ? counting_verbs() : verbs(), nic.fake) ||
        !nic.port.open(nic.device, 1, config(), host(nic), environment(), &what))
      return world_.ctx.fail("process %u cannot open rail %u: %s", id_, r, what);
    nic.port.set_failover(true);
    ports_.push_back(&nic.port);
    for (uint32_t i = 0; i < kLanes; ++i) lanes_.push_back(&port_lane(nic.port, i));
  }
}

void Process::meet(Process& peer) {
  for (uint32_t r = 0; r < nics_.size(); ++r) {
    links_.push_back(std::make_unique<Link>());
    Link& l = *links_.back();
    l.process = this;
    l.peer = peer.id_;
    l.rail = r;
    if (&peer == this || !world_.talk(id_, peer.id_)) continue;
    engine::Port& theirs = peer.nics_[r]->port;
    l.endpoint.user = &l;
    l.endpoint.peer.name = kNames + peer.id_;
    l.endpoint.peer.nonce = theirs.nonce();
    l.endpoint.peer.key = theirs.key();
    l.endpoint.peer.address = theirs.address();
    l.endpoint.peer.initially_down = theirs.never_active();
    if (!nics_[r]->port.add(l.endpoint)) world_.ctx.fail("no memory for an endpoint");
  }
}

Link* Process::link(uint32_t peer, uint32_t rail) {
  return links_[peer * nics_.size() + rail].get();
}

void Process::begin() {
  const Machine& m = world_.scenario.machine;
  xfer::Config c;
  c.park_timeout_ns = m.park_ns;
  c.send_depth = m.send_pipeline != 0 ? m.send_pipeline : m.pipeline;
  c.rdma_depth = m.pipeline;
  c.short_limit = m.short_limit;
  c.degraded_ns = m.degraded_ns;
  c.connect_wait_ns = m.connect_wait_ns;
  c.weights = m.weights;
  c.use_get = m.use_get;
  c.use_put = m.use_put;
  if (m.any_source_waits) c.any_source_on_loss = xfer::AnySource::kWait;
  engine_.emplace(port_, c);
  if (!m.lazy)
    for (uint32_t q = 0; q < m.procs; ++q)
      if (q != id_ && world_.talk(id_, q)) peer(q);
  plan();
}

void Process::peer_died(uint32_t q) {
  engine_->peer_lost(peer(q));
}

xfer::RailLimits Process::limits(uint32_t rail) const {
  const Machine& m = world_.scenario.machine;
  xfer::RailLimits l;
  l.eager_limit = m.eager_limit;
  l.blocking_limit = m.blocking_limit;
  l.rndv_eager_limit = m.rndv_eager != 0 ? m.rndv_eager : m.eager_limit;
  l.max_send_size = m.max_send;
  l.put_limit = size_t{1} << 30;
  l.get_limit = size_t{1} << 30;
  l.get_alignment = m.get_alignment;
  l.min_rdma_size = m.min_rdma != 0 ? m.min_rdma : m.eager_limit;
  l.rdma_frag_size = m.rdma_frag;
  l.weight = m.weight;
  l.failover = true;
  l.port = static_cast<uint8_t>(rail);
  if (rail < m.shares.size()) (m.weights == xfer::Weights::kNominal ? l.weight : l.given) = m.shares[rail];
  if (!m.uneven) return l;
  l.weight = 1 + static_cast<uint32_t>(sim::mix(m.seed, rail) % 4);
  if (rail != 1) return l;
  l.eager_limit /= 2;
  l.max_send_size /= 2;
  return l;
}

EnginePeer* Process::peer(uint32_t q) {
  if (peers_[q] != nullptr) return peers_[q];
  EnginePeer* const p = peers_[q] = engine_->peer_add(q, uint64_t{q} + id_, q == id_);
  if (p == nullptr || q == id_) return p;  // no memory; what it sends to itself needs no rail
  for (uint32_t r = 0; r < nics_.size(); ++r) {
    Link& l = *link(q, r);
    l.engine_rail = engine_->rail_add(p, StackPort::RailHandle{&l}, limits(r));
    if (l.engine_rail == nullptr) continue;
    bfo_rail_info_t info{};
    engine::rail_attach(l.endpoint, &l, &info);
    engine_->rail_begin(l.engine_rail, xfer::state_of(info.state), RailName{info.name.conn, info.name.epoch});
    if (info.answers != 0) engine_->on_peer_alive(l.engine_rail, true);
  }
  return p;
}

uint64_t Process::step() {
  for (const auto& nic : nics_) {
    engine::Port* const port = &nic->port;
    if (!nic->device.events().empty() || nic->device.events().overflowed())
      engine::Port::take_events(nic->device, &port, 1);
  }
  int handled = 0;
  for (uint32_t i = 0; i < world_.scenario.machine.polls; ++i)
    handled += engine::poll_ports(ports_.data(), static_cast<int>(ports_.size()));
  const uint64_t now = world_.now();
  if (now >= alive_ns_) {
    alive_ns_ = now + kSecond;
    engine_->keep_alive();
  }
  if (engine_->needs_progress())
    handled += engine_->progress(now);
  else
    engine_->turn();
  if (world_.begun()) run_program();
  if (!echoes_.empty()) send_echoes();
  tick_ns_ = handled != 0 ? kBusyNs : std::min(world_.scenario.machine.idle_ns, tick_ns_ + tick_ns_ / 2);
  work(static_cast<uint64_t>(handled));
  uint64_t delay = tick_ns_;
  if (!pending_.empty()) delay = std::min<uint64_t>(delay, world_.scenario.machine.idle_ns / 50);
  if (const uint64_t op = next_op_ns(); world_.begun() && op != ~uint64_t{0}) {
    const uint64_t at = world_.start_ns() + op;
    delay = std::min(delay, at > now ? at - now : 0);
  }
  return std::max<uint64_t>(delay, 200);
}

/// The processor is busy with what this step did.
void Process::work(uint64_t handled) {
  const Processor& p = world_.scenario.machine.processor;
  uint64_t ns = handled * p.handled_ns;
  if (p.copy_rate != 0) ns += copied_ * kSecond / p.copy_rate;
  copied_ = 0;
  ns = std::max(ns, p.poll_ns);
  if (ns != 0) world_.blocked(id_, ns);
}

bool Process::serve_events() {
  bool more = false;
  for (const auto& nic : nics_) {
    while (engine::read_event(verbs(), nic->device.context(), environment().now_ns, &nic->device.events())) {
    }
    more = !nic->port.heartbeat().serve() || more;
  }
  return more;
}

uint32_t Process::lanes() const {
  return static_cast<uint32_t>(nics_.size()) * kLanes;
}
bool Process::run_command(uint32_t i) {
  return lanes_[i]->run_one();
}

bool Process::quiet() {
  if (!finished() || engine_->unfinished() != 0) return false;
  for (engine::Port* const port : ports_)
    if (engine::port_outstanding(*port) != 0) return false;
  return true;
}

void Process::check_loads() {
  if (!quiet()) return;
  for (const auto& l : links_) {
    const EngineRail* const rail = l->engine_rail;
    if (rail && (rail->control_out != 0 || rail->inflight_bytes != 0))
      world_.ctx.fail("process %u, rail %u to %u: nothing is under way, but %u messages and %llu bytes count",
                      id_, l->rail, l->peer, rail->control_out,
                      static_cast<unsigned long long>(rail->inflight_bytes));
  }
}

void Process::close() {
  check_loads();
  forget_peers();
  engine_.reset();
  for (ibv_mr* const mr : cached_) verbs().dereg_mr(mr);
  for (const auto& nic : nics_) {
    const bfo_accounting_t& accounting = nic->port.accounting();
    for (int kind = 0; kind < BFO_KIND_COUNT; ++kind) {
      const uint64_t ended = accounting.delivered[kind] + accounting.unknown[kind];
      if (accounting.posted[kind] != ended ||
          accounting.accepted[kind] != ended + accounting.never_sent[kind])
        world_.ctx.fail("P3: the books of process %u rail %u do not balance for kind %d", id_, nic->rail,
                        kind);
    }
    if (nic->port.program_errors != 0)
      world_.ctx.fail("H16: a completion that only a program error explains");
    nic->port.close();
  }
  if (allocated_ != 0)
    world_.ctx.fail("process %u leaks %lld blocks of the PML", id_, static_cast<long long>(allocated_));
  if (frags_out_ != 0) world_.ctx.fail("P3: process %u still has %u fragments", id_, frags_out_);
}

std::string Process::state() const {
  std::string text;
  char line[240];
  std::snprintf(line, sizeof line, "process %u: %llu operations left, PML %llu unfinished\n", id_,
                static_cast<unsigned long long>(left_),
                static_cast<unsigned long long>(engine_->unfinished()));
  text += line;
  for (const auto& l : links_) {
    const engine::Endpoint& e = l->endpoint;
    if (e.port == nullptr) continue;
    std::snprintf(
        line, sizeof line, "  to %u rail %u: %s epoch %u posted %llu covered %llu parked %zu%s%s%s%s\n",
        l->peer, l->rail, engine::phase_name(e.phase), e.epoch,
        static_cast<unsigned long long>(e.ring().head), static_cast<unsigned long long>(e.ring().tail),
        e.queued.size(), e.connect_wanted ? " wanted" : "", e.ending().asked ? " closing" : "",
        e.qps().command != nullptr ? " command" : "",
        e.port->state() == engine::PortState::kActive ? "" : " port not active");
    text += line;
  }
  for (uint32_t i = 0; i < world_.scenario.program.pairs.size(); ++i) {
    const sim::PairPlan& p = world_.scenario.program.pairs[i];
    const bool send = p.src == id_ && send_over_[i] == 0;
    const bool recv = p.dst == id_ && recv_over_[i] == 0;
    if ((!send && !recv) || text.size() > 4000) continue;
    std::snprintf(line, sizeof line, "  %s %u, %u bytes, process %u\n", send ? "send" : "receive", i,
                  p.length, send ? p.dst : p.src);
    text += line;
  }
  for (const auto& r : all_sends_)
    if (r->buf.active && r->xfer.rndv != nullptr && text.size() < 4000)
      text += "  send " + std::to_string(r->buf.pair) + rndv_state(r->xfer);
  for (const auto& r : all_recvs_)
    if (r->buf.active && r->xfer.rndv != nullptr && text.size() < 4000)
      text += "  receive " + std::to_string(r->buf.pair) + rndv_state(r->xfer);
  return text;
}

}  // namespace bfo::stack
