// SPDX-License-Identifier: BSD-3-Clause
//
// world.cc: see world.h.
#include "test/stack/world.h"

#include <algorithm>
#include <cerrno>

namespace bfo::stack {
namespace {

constexpr uint64_t kWakeNs = 700;
constexpr uint64_t kNewsNs = 800 * kUs;  // the runtime needs so long to notice a death
constexpr uint64_t kLookNs = 100 * kUs;  // between two looks whether all is over
World* current = nullptr;

uint64_t hash(const char* text) {
  uint64_t h = 0;
  for (; *text != '\0'; ++text) h = sim::mix(h, static_cast<unsigned char>(*text));
  return h;
}

}  // namespace

uint64_t World::environment_now() {
  // Who closes a port polls for a time, and nothing else happens meanwhile.
  if (current->closing_) current->closing_ns_ += kUs;
  return current->time.now() + current->closing_ns_;
}
uint64_t World::environment_random() {
  return current->dice_.next();
}
bool World::environment_secret(uint64_t* bits) {
  *bits = current->dice_.next();
  return true;
}
const engine::Environment& environment() {
  static const engine::Environment e = {World::environment_now, World::environment_random,
                                        World::environment_secret, [] { return uint64_t{0}; }};
  return e;
}

World::World(const Scenario& s, bool tracing)
    : scenario(s),
      fabric(time, *this, s.machine.fabric, sim::mix(s.machine.seed, 0xfab)),
      book(ctx),
      traffic(s),
      dice_(sim::mix(s.machine.seed, 0x3021d)) {
  current = this;
  ctx.tracing = tracing;
  ctx.now = time.now();
  book.reset(scenario.program);
  start_ns_ = time.now();
  actors_.resize(s.machine.procs);
  streams.resize(s.streams.size());
  freed_.resize(s.program.comms.size());
  if (s.machine.procs <= 64) return;
  talk_.resize(size_t{s.machine.procs} * s.machine.procs);
  for (const sim::PairPlan& p : s.program.pairs)
    talk_[size_t{p.src} * s.machine.procs + p.dst] = talk_[size_t{p.dst} * s.machine.procs + p.src] = true;
}

World::~World() {
  closing_ = fabric.closing = true;
  processes.clear();
  current = nullptr;
}

void World::open() {
  const Machine& m = scenario.machine;
  for (uint32_t p = 0; p < m.procs; ++p) {
    for (uint32_t r = 0; r < m.rails; ++r) fabric.add_device(p, r);
    processes.push_back(std::make_unique<Process>(*this, p));
  }
  for (const PortRate& r : m.rates) fabric.set_rate(*fabric.device(r.process, r.rail), r.out, r.in);
  for (uint32_t r = 0; r < m.rails; ++r) {
    if ((m.late_ports >> r & 1) == 0) continue;
    Device* const d = fabric.device(0, r);
    d->port.state = IBV_PORT_DOWN;
    time.in(
        m.late_ns,
        [](void* w, uint64_t, void* x) {
          static_cast<World*>(w)->fabric.set_port(*static_cast<Device*>(x), true);
        },
        this, 0, d);
  }
  for (const auto& p : processes) p->open();
  for (const auto& p : processes)
    for (const auto& q : processes)
      if (!ctx.failed) p->meet(*q);
  for (uint32_t p = 0; p < m.procs && !ctx.failed; ++p) {
    actors_[p].commands.resize(processes[p]->lanes());
    processes[p]->begin();
    schedule(p, now() + dice_.below(50 * kUs));
  }
  fabric.running = true;
  if (m.connected && !ctx.failed) connect_all();
  for (const Fault& f : scenario.faults)
    if (f.kind == FaultKind::kForge) processes[f.p]->expect_forged();
  if (m.dies_at_call != 0) fabric.device(0, m.rails - 1)->dies_at_call = m.dies_at_call;
  for (const Fault& f : scenario.faults) {
    void* const x = const_cast<Fault*>(&f);
    time.in(
        f.t, [](void* w, uint64_t, void* y) { static_cast<World*>(w)->begin_fault(*static_cast<Fault*>(y)); },
        this, 0, x);
    time.in(
        f.t + f.d,
        [](void* w, uint64_t, void* y) { static_cast<World*>(w)->end_fault(*static_cast<Fault*>(y)); }, this,
        0, x);
  }
  time.in(
      scenario.last_ns,
      [](void* w, uint64_t, void*) {
        Fabric& fabric = static_cast<World*>(w)->fabric;
        FabricTraits& t = fabric.traits;
        t.datagram_loss = t.datagram_late = t.packet_late = t.ah_fails = t.verb_blocks = t.verb_fails = 0;
        if (!t.never_healed) t.types_lost = 0;
        fabric.forget_packet_faults();
        for (const auto& d : fabric.devices) d->dies_at_call = 0;
      },
      this);
}

/// All rails come up before the program begins.
void World::connect_all() {
  begun_ = false;
  const uint64_t limit = now() + kSecond;
  const auto each = [this](auto visit) {
    for (const auto& p : processes)
      for (const auto& q : processes)
        for (uint32_t r = 0; r < scenario.machine.rails; ++r)
          if (p != q) visit(p->link(q->id(), r)->endpoint);
  };
  bool up = false;
  each([](engine::Endpoint& e) { engine::rail_connect(e); });
  while (!up && !ctx.failed && now() < limit) {
    time.step();
    ctx.now = now();
    up = true;
    each([&up](const engine::Endpoint& e) { up = up && engine::is_up(e.phase); });
  }
  if (!up) ctx.fail("the rails did not come up");
  start_ns_ = now();
  begun_ = true;
  for (const auto& p : processes) schedule(p->id(), now());
}

void World::freed(uint32_t i) {
  const auto& comms = scenario.program.comms;
  if (++freed_[i] != scenario.machine.procs) return;
  for (uint32_t next = 0; next < comms.size(); ++next) {
    if (comms[next].after != static_cast<int32_t>(i)) continue;
    for (const auto& p : processes) {
      if (dead(p->id())) continue;
      p->comm_begins(next);
      wake(p->id());
    }
  }
}

/// Everything of a process is gone at once, and the runtime tells the others later.
void World::die(uint32_t p) {
  if (dead(p)) return;
  actors_[p].dead = true;
  for (const auto& d : fabric.devices)
    if (d->process == p) d->dead = true;
  for (uint32_t i = 0; i < freed_.size(); ++i)
    if (!processes[p]->has_freed(i)) freed(i);
  time.in(
      kNewsNs,
      [](void* w, uint64_t a, void*) {
        World& world = *static_cast<World*>(w);
        for (const auto& each : world.processes) {
          if (world.dead(each->id())) continue;
          each->peer_died(static_cast<uint32_t>(a));
          world.wake(each->id());
        }
      },
      this, p);
}

// ---- who runs when

void World::schedule(uint32_t p, uint64_t t) {
  Actor& a = actors_[p];
  t = std::max(t, a.asleep_until);
  if (t >= a.wake_ns) return;
  a.wake_ns = t;
  time.at(
      t, [](void* w, uint64_t x, void*) { static_cast<World*>(w)->step(static_cast<uint32_t>(x)); }, this, p);
}

void World::wake(uint32_t p) {
  schedule(p, now() + kWakeNs);
}

void World::step(uint32_t p) {
  Actor& a = actors_[p];
  if (a.wake_ns != now() || ctx.failed || a.dead) return;  // another step replaced it
  a.wake_ns = ~uint64_t{0};
  if (a.asleep_until > now()) return schedule(p, a.asleep_until);
  ctx.note(6, p, 0);
  const uint64_t delay = processes[p]->step();
  look_for_commands(p);
  schedule(p, now() + delay);
}

void World::wake_events(uint32_t p, int) {
  Actor& a = actors_[p];
  if (a.events_due) return;
  a.events_due = true;
  const uint64_t t = std::max(a.events_until, now()) + 1 + dice_.below(scenario.machine.events_ns);
  time.at(
      t, [](void* w, uint64_t x, void*) { static_cast<World*>(w)->events(static_cast<uint32_t>(x)); }, this,
      p);
}

void World::events(uint32_t p) {
  Actor& a = actors_[p];
  if (a.dead) return;
  if (a.events_until > now()) {
    time.at(
        a.events_until,
        [](void* w, uint64_t x, void*) { static_cast<World*>(w)->events(static_cast<uint32_t>(x)); }, this,
        p);
    return;
  }
  a.events_due = false;
  ctx.note(5, p, 0);
  const bool again = processes[p]->serve_events();
  look_for_commands(p);
  if (again) {
    a.events_due = true;
    time.in(
        10 * kMs,
        [](void* w, uint64_t x, void*) { static_cast<World*>(w)->events(static_cast<uint32_t>(x)); }, this,
        p);
  }
  wake(p);
}

uint64_t World::command_ns(uint32_t p, uint32_t lane) const {
  const Machine& m = scenario.machine;
  if (p != m.slow_process) return m.control_ns;
  if (Process::stops(lane) && m.stop_ns != 0) return m.stop_ns;
  return Process::makes(lane) && m.queue_pair_ns != 0 ? m.queue_pair_ns : m.control_ns;
}

/// Every command that waits gets a time at which a control thread has run it.
void World::look_for_commands(uint32_t p) {
  Actor& a = actors_[p];
  for (uint32_t lane = 0; lane < a.commands.size(); ++lane) {
    for (const size_t pending = processes[p]->commands(lane); a.commands[lane] < pending;
         ++a.commands[lane]) {
      const uint64_t from = std::max(a.slow_until, now());
      time.at(
          from + 1 + dice_.below(command_ns(p, lane)),
          [](void* w, uint64_t x, void*) {
            static_cast<World*>(w)->command(static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32));
          },
          this, uint64_t{lane} << 32 | p);
    }
  }
}

void World::command(uint32_t p, uint32_t lane) {
  --actors_[p].commands[lane];
  if (actors_[p].dead) return;
  ctx.note(4, p, lane);
  processes[p]->run_command(lane);
  wake(p);
  wake_events(p, -1);  // one lane is the event thread's
}

void World::blocked(uint32_t p, uint64_t ns) {
  actors_[p].asleep_until = std::max(actors_[p].asleep_until, now() + ns);
}

bool World::talk(uint32_t p, uint32_t q) const {
  return talk_.empty() || talk_[size_t{p} * scenario.machine.procs + q];
}

// ---- faults

void World::begin_fault(const Fault& f) {
  const Machine& m = scenario.machine;
  Device& d = *fabric.device(f.p, f.r);
  Actor& a = actors_[f.p];
  SIM_TRACE(ctx, "fault %s", print(f).c_str());
  switch (f.kind) {
    case FaultKind::kPortDown:
      return fabric.set_port(d, false);
    case FaultKind::kRailDown:
      for (uint32_t p = 0; p < m.procs; ++p) fabric.set_port(*fabric.device(p, f.r), false);
      return;
    case FaultKind::kSilent:
      return fabric.silence(d, f.d);
    case FaultKind::kAllSilent:
      for (const auto& each : fabric.devices) fabric.silence(*each, f.d);
      return;
    case FaultKind::kOneWay:
      return fabric.one_way(d, *fabric.device(f.q, f.r), f.d);
    case FaultKind::kBreak:
      fabric.fail(d, *fabric.device(f.q, f.r), IBV_WC_RETRY_EXC_ERR);
      return;
    case FaultKind::kSleep:
      a.asleep_until = std::max(a.asleep_until, now() + f.d);
      return;
    case FaultKind::kDevice:
      return fabric.kill(d);
    case FaultKind::kCqError:
      return fabric.overrun(d);
    case FaultKind::kRefuse:
      return fabric.refuse(f.p, now() + f.d, ENOMEM);
    case FaultKind::kLateEvents:
      a.events_until = std::max(a.events_until, now() + f.d);
      return;
    case FaultKind::kSlowVerbs:
      a.slow_until = std::max(a.slow_until, now() + f.d);
      return;
    case FaultKind::kLose:
    case FaultKind::kNoAnswer:
    case FaultKind::kErrorNow:
    case FaultKind::kErrorDone:
    case FaultKind::kHold:
    case FaultKind::kUnread:
      return fabric.expect(
          PacketFault{static_cast<PacketFault::What>(static_cast<unsigned>(f.kind) - kTimedFaults), &d,
                      fabric.device(f.q, f.r), f.packets, f.n, f.d});
    case FaultKind::kEcho:
      if (!a.dead) processes[f.p]->arm_echo(f);
      return;
    case FaultKind::kForge:
      if (!a.dead) processes[f.p]->forged(f);
      return;
    case FaultKind::kDeath:
      return die(f.p);
    case FaultKind::kFatal:
      for (const auto& qp : fabric.qps) {
        if (!qp || qp->qp_type != IBV_QPT_RC || qp->device() != &d || qp->attr.qp_state != IBV_QPS_RTS)
          continue;
        const Qp* const peer = fabric.find(qp->attr.dest_qp_num);
        if (peer == nullptr || peer->device() != fabric.device(f.q, f.r)) continue;
        fabric.to_error(*qp);
        fabric.raise(d, IBV_EVENT_QP_FATAL, qp.get());
      }
      return;
    case FaultKind::kNoRoom:
      return processes[f.p]->refuse_posts(f.r, true);
    case FaultKind::kCount:
      return;
  }
}

void World::end_fault(const Fault& f) {
  if (f.kind == FaultKind::kNoRoom) {
    processes[f.p]->refuse_posts(f.r, false);
    return wake(f.p);
  }
  if (scenario.machine.ports_stay_down) return;
  if (f.kind == FaultKind::kPortDown) fabric.set_port(*fabric.device(f.p, f.r), true);
  if (f.kind != FaultKind::kRailDown) return;
  for (uint32_t p = 0; p < scenario.machine.procs; ++p) fabric.set_port(*fabric.device(p, f.r), true);
}

// ---- the run

Result World::run() {
  open();
  const uint64_t last = start_ns_ + scenario.last_ns;
  const uint64_t end = last + scenario.machine.heal_ns;
  uint64_t look = last;
  while (!ctx.failed) {
    time.step();
    ctx.now = time.now();
    if (scenario.cut_ns != 0 && now() - start_ns_ > scenario.cut_ns) break;
    if (now() < look) continue;
    look = now() + kLookNs;
    if (over()) break;
    if (now() <= end) continue;
    if (only_unmatched()) break;
    // A message of keep_alive() may be under way.
    if (now() > end + kSecond) fail_liveness();
  }
  result.healed_ns = now() > last ? now() - last : 0;
  if (!ctx.failed && (scenario.cut_ns == 0 || now() - start_ns_ <= scenario.cut_ns)) finish();
  ctx.note(9, fabric.packets, hash(ctx.violation.c_str()));
  result.failed = ctx.failed;
  result.violation = ctx.violation;
  result.trace_hash = ctx.trace_hash;
  result.virtual_ns = now() - start_ns_;
  result.events = time.events();
  result.packets = fabric.packets;
  result.late_landed = fabric.late_landed;
  result.faults = fabric.faults_hit;
  return result;
}

}  // namespace bfo::stack
