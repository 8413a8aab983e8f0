// SPDX-License-Identifier: BSD-3-Clause
//
// world.cc: the main loop, the faults, and what must hold when everything is over.
//
// P1..P8: contrib/doc/design.md

#include "test/sim/world.h"

#include <algorithm>

#include "common/failover_btl.h"

namespace bfo::sim {
namespace {
constexpr uint64_t kNewsNs = 800000;  ///< the runtime needs this long to notice a death
}

World::World() : fabric_(ctx_), book_(ctx_) {}
World::~World() = default;

void World::release() {
  // Engines first: they hold packets and memory, and look things up in the scenario, which is the caller's.
  for (auto& p : processes_) p->stop();
  for (uint32_t& next : ctx_.recent_next) next = 0;
  for (auto& list : ctx_.recent)
    for (Packet*& packet : list) packet = nullptr;
  ctx_.packets.clear();
}

Result World::run(const Scenario& s, const Hooks& hooks, bool trace) {
  scenario_ = &s;
  faults_ = s.faults;
  ctx_.now = 0;
  ctx_.machine = s.machine;
  ctx_.hooks = hooks;
  ctx_.tracing = trace;
  ctx_.failed = false;
  ctx_.violation.clear();
  ctx_.stats = Stats{};
  ctx_.trace_hash = mix(s.machine.seed);
  ctx_.queue.clear();
  ctx_.memory.clear();
  ctx_.message_lost = false;
  ctx_.keep_recent = false;
  for (const Fault& f : s.faults) ctx_.keep_recent |= f.kind == FaultKind::kForge;
  ctx_.traffic.assign(s.pairs.size(), {});
  uint32_t words = 0;
  for (size_t i = 0; i < s.pairs.size(); ++i) {
    ctx_.traffic[i].bits = words;
    words += s.pairs[i].length / 64 + 1;
  }
  ctx_.seen.assign(words, 0);
  ctx_.moved.assign(words, 0);
  for (auto& sleeper : ctx_.sleepers) sleeper = {};
  shared_.scenario = &s;
  shared_.freed.assign(s.comms.size(), 0);
  shared_.freed_changed = false;
  shared_.begin_ns.assign(s.comms.size(), ~uint64_t{0});
  for (size_t i = 0; i < s.comms.size(); ++i)
    if (s.comms[i].after < 0) shared_.begin_ns[i] = 0;
  shared_.send_over.assign(s.pairs.size(), 0);
  shared_.recv_over.assign(s.pairs.size(), 0);
  fabric_.faults = &faults_;
  fabric_.reset();
  book_.reset(s);
  while (processes_.size() < s.machine.procs)
    processes_.push_back(
        std::make_unique<Process>(ctx_, fabric_, book_, shared_, static_cast<uint32_t>(processes_.size())));
  for (uint32_t p = 0; p < s.machine.procs; ++p) {
    processes_[p]->reset();
    ctx_.wake(p, 100 * p + 100);
  }
  faults_open_ = 0;
  for (size_t i = 0; i < faults_.size(); ++i) {
    if (by_packet(faults_[i].kind)) continue;
    ctx_.queue.push(faults_[i].t, EventKind::kFault, static_cast<uint32_t>(i));
    ++faults_open_;
  }
  loop();
  if (!ctx_.failed) check_end();
  collect();
  release();
  Result r;
  r.ok = !ctx_.failed;
  r.violation = ctx_.violation;
  r.trace_hash = ctx_.trace_hash;
  r.stats = ctx_.stats;
  return r;
}

void World::loop() {
  uint64_t next_check = 0;
  while (!ctx_.failed && !ctx_.queue.empty()) {
    const Event e = ctx_.queue.pop();
    ctx_.now = e.time;
    ++ctx_.stats.events;
    handle(e);
    if (ctx_.now < next_check) continue;
    next_check = ctx_.now + 20000;
    if (faults_open_ == 0 && all_quiet()) return;
    if (ctx_.now > ctx_.machine.limit_ns) break;
  }
  if (ctx_.failed || all_quiet()) return;
  std::string who;
  for (uint32_t p = 0; p < ctx_.machine.procs && who.size() < 300; ++p) {
    if (ctx_.sleepers[p].dead || processes_[p]->quiet()) continue;
    char line[400];
    std::snprintf(line, sizeof line, "; process %u (%llu in the engine, %llu posted):%s", p,
                  static_cast<unsigned long long>(processes_[p]->engine().unfinished()),
                  static_cast<unsigned long long>(processes_[p]->driver().outstanding()),
                  processes_[p]->waiting_for().c_str());
    who += line;
  }
  ctx_.fail("P6: hangs: not finished %.1f ms after the start%s", static_cast<double>(ctx_.now) / 1e6,
            who.c_str());
}

bool World::all_quiet() {
  for (uint32_t p = 0; p < ctx_.machine.procs; ++p)
    if (!ctx_.sleepers[p].dead && !processes_[p]->quiet()) return false;
  return true;
}

void World::handle(const Event& e) {
  switch (e.kind) {
    case EventKind::kStep: {
      Context::Sleeper& s = ctx_.sleepers[e.a];
      if (s.dead || e.time != s.wake_ns) return;  // an earlier step took its place
      s.wake_ns = ~uint64_t{0};
      if (ctx_.now < s.paused_until) return ctx_.wake(e.a, s.paused_until - ctx_.now);
      processes_[e.a]->step();
      if (shared_.freed_changed) begin_communicators();
      break;
    }
    case EventKind::kFabric:
      fabric_.on_wire(fabric_.half(e.a));
      break;
    case EventKind::kAck:
      fabric_.on_ack(fabric_.half(e.a), e.b);
      break;
    case EventKind::kRetryOut:
      fabric_.on_retry_out(fabric_.half(e.a), e.b);
      break;
    case EventKind::kReconnect:
      fabric_.on_reconnect(fabric_.half(e.a));
      break;
    case EventKind::kFault: {
      const Fault f = faults_[e.a];
      SIM_TRACE(ctx_, "fault: %s", print(f).c_str());
      ctx_.note(8, e.a, 0);
      ++ctx_.stats.faults;
      fault(f, true);
      if (f.d != 0)
        ctx_.queue.push(ctx_.now + f.d, EventKind::kFaultEnd, e.a);
      else
        --faults_open_;
      break;
    }
    case EventKind::kFaultEnd:
      SIM_TRACE(ctx_, "healed: %s", print(faults_[e.a]).c_str());
      fault(faults_[e.a], false);
      --faults_open_;
      break;
    case EventKind::kPortEvent:
      if (!ctx_.sleepers[e.a].dead) processes_[e.a]->driver().port_event(e.b);
      ctx_.wake(e.a, 200);
      break;
    case EventKind::kDeathNews:
      for (uint32_t p = 0; p < ctx_.machine.procs; ++p)
        if (p != e.a && !ctx_.sleepers[p].dead) processes_[p]->peer_died(e.a);
      break;
  }
}

/// Those whose predecessor every process has freed.
void World::begin_communicators() {
  shared_.freed_changed = false;
  for (size_t i = 0; i < scenario_->comms.size(); ++i) {
    const int32_t after = scenario_->comms[i].after;
    if (after < 0 || shared_.begin_ns[i] != ~uint64_t{0}) continue;
    if (shared_.freed[static_cast<size_t>(after)] < ctx_.machine.procs) continue;
    shared_.begin_ns[i] = ctx_.now;
    for (uint32_t p = 0; p < ctx_.machine.procs; ++p) {
      processes_[p]->program_changed();
      ctx_.wake(p, 100);
    }
  }
}

void World::fault(const Fault& f, bool begin) {
  const uint32_t n = ctx_.machine.procs;
  auto port = [&](uint32_t p, uint32_t r, bool event) {
    fabric_.port_down_[p][r] = static_cast<uint8_t>(fabric_.port_down_[p][r] + (begin ? 1 : -1));
    if (event) ctx_.queue.push(ctx_.now + 1000 + 700 * p, EventKind::kPortEvent, p, r);
  };
  switch (f.kind) {
    case FaultKind::kPortDown:
      port(f.p, f.r, true);
      break;
    case FaultKind::kSilent:
      port(f.p, f.r, false);
      break;
    case FaultKind::kRailDown:
      for (uint32_t p = 0; p < n; ++p) port(p, f.r, true);
      break;
    case FaultKind::kAllDown:
      for (uint32_t p = 0; p < n; ++p)
        for (uint32_t r = 0; r < ctx_.machine.rails; ++r) port(p, r, true);
      break;
    case FaultKind::kOneWay: {
      uint8_t& w = fabric_.one_way_[f.p][f.q][f.r];
      w = static_cast<uint8_t>(w + (begin ? 1 : -1));
      break;
    }
    case FaultKind::kBreak:
      if (begin) fabric_.to_error(fabric_.half(f.p, f.q, f.r), BFO_CAUSE_WC_ERROR, "LOC_QP_OP_ERR");
      break;
    case FaultKind::kLinger:
      if (begin) fabric_.half(f.p, f.q, f.r).linger_until_ns = ctx_.now + f.d;
      break;
    case FaultKind::kPause:
      if (begin) ctx_.sleepers[f.p].paused_until = std::max(ctx_.sleepers[f.p].paused_until, ctx_.now + f.d);
      break;
    case FaultKind::kNoResource:
      for (uint32_t q = 0; q < n; ++q) {
        Half& h = fabric_.half(f.p, q, f.r);
        h.refused += begin ? 1u : ~0u;
      }
      ctx_.wake(f.p, 500);
      break;
    case FaultKind::kDevice:
      if (begin) fabric_.device_lost(f.p, f.r);
      break;
    case FaultKind::kDeath:
      if (!begin) break;
      ctx_.sleepers[f.p].dead = true;
      for (uint32_t q = 0; q < n; ++q)
        for (uint32_t r = 0; r < ctx_.machine.rails; ++r) fabric_.half(f.p, q, r).hw = Hw::kDestroyed;
      for (size_t i = 0; i < shared_.freed.size(); ++i) ++shared_.freed[i];
      shared_.freed_changed = true;
      ctx_.queue.push(ctx_.now + kNewsNs, EventKind::kDeathNews, f.p);
      break;
    case FaultKind::kEcho:
      if (begin && !ctx_.sleepers[f.p].dead) processes_[f.p]->arm_echo(f);
      break;
    case FaultKind::kForge:
      if (begin && !ctx_.sleepers[f.p].dead) forge(f);
      break;
    default:
      break;
  }
}

/// What must hold when every program is done and nothing is under way.
void World::check_end() {
  const Scenario& s = *scenario_;
  for (uint32_t p = 0; p < s.machine.procs; ++p) {
    if (ctx_.sleepers[p].dead) continue;
    if (processes_[p]->frags_out() != 0)
      return ctx_.fail("P3: process %u still has %u fragments", p, processes_[p]->frags_out());
  }
  const bool exact = !ctx_.machine.may_lose_peer && !ctx_.message_lost;
  for (uint32_t i = 0; i < s.pairs.size(); ++i) {
    const PairPlan& p = s.pairs[i];
    if (ctx_.sleepers[p.src].dead || ctx_.sleepers[p.dst].dead) continue;
    if (exact && !book_.is_matched(i)) return ctx_.fail("P1: message %u was never received", i);
    check_resent(i);
    if (ctx_.failed) return;
  }
  check_balance();
}

/// P4: a byte goes twice only if its first journey had an unknown fate, or if a restart found it in doubt: it
/// was written, but the FIN that says so had not arrived. That is one window per restart. The payload of a
/// RNDV goes with every repetition of that header.
void World::check_resent(uint32_t i) {
  const Machine& m = scenario_->machine;
  const PairPlan& p = scenario_->pairs[i];
  const Context::Traffic& t = ctx_.traffic[i];
  const uint64_t window = uint64_t{m.rails} * std::max(m.send_depth * m.max_send, m.rdma_depth * m.rdma_frag);
  // A device that cannot be fenced says so at every question, and what is pending is sent again.
  uint64_t asked = 0;
  for (uint32_t q = 0; m.unfenceable && q < m.procs; ++q) asked += processes_[q]->engine().counters().fences;
  const uint64_t heads = (ctx_.stats.failovers + asked) * std::min(p.length, m.rndv_eager);
  const uint64_t allowed = t.failed + t.restarts * window + heads;
  if (t.again > allowed)
    ctx_.fail("P4: %llu bytes of message %u of %u bytes were sent again, %llu had failed, %u restarts",
              static_cast<unsigned long long>(t.again), i, p.length,
              static_cast<unsigned long long>(t.failed), t.restarts);
}

/// P8: what the rails carried is what the engines say they gave them: application bytes, bytes sent again,
/// and protocol.
void World::check_balance() {
  const Stats& t = ctx_.stats;
  uint64_t said = 0;
  uint64_t read = 0;
  uint64_t resent = 0;
  uint64_t protocol = 0;
  for (uint32_t p = 0; p < ctx_.machine.procs; ++p) {
    const xfer::Counters& c = processes_[p]->engine().counters();
    said += c.bytes_sent;
    read += c.bytes_read;
    resent += c.bytes_resent;
    protocol += c.bytes_protocol();
  }
  const auto n = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  if (said + t.read_bytes != t.posted_bytes)
    return ctx_.fail("P8: engines counted %llu bytes sent, receivers read %llu, rails took %llu", n(said),
                     n(t.read_bytes), n(t.posted_bytes));
  if (read != t.fetched_bytes)
    return ctx_.fail("P8: engines counted %llu bytes read, rails fetched %llu", n(read), n(t.fetched_bytes));
  if (protocol != t.control_bytes)
    return ctx_.fail("P8: engines counted %llu bytes of protocol, rails took %llu", n(protocol),
                     n(t.control_bytes));
  if (t.wire_bytes + t.self_bytes != t.posted_bytes + t.control_bytes)
    return ctx_.fail("P8: rails carried %llu bytes, of which %llu are payload and %llu protocol",
                     n(t.wire_bytes + t.self_bytes), n(t.posted_bytes), n(t.control_bytes));
  // What one side moved in vain and the other moved then, only one of them can know, from the other's last
  // word: it is missing where a request failed or a process died. And a sender cannot tell whether the first
  // bytes of a message that does not fit came with its header or were read.
  uint64_t unknown = 0;
  uint64_t doubtful = 0;
  for (uint32_t i = 0; i < scenario_->pairs.size(); ++i) {
    const PairPlan& p = scenario_->pairs[i];
    const Context::Traffic& x = ctx_.traffic[i];
    if (x.cut || ctx_.sleepers[p.src].dead || ctx_.sleepers[p.dst].dead) unknown += x.moved_again;
    if (x.truncated && x.both_ways) doubtful += std::min(p.length, ctx_.machine.rndv_eager);
  }
  if (resent > t.again_bytes + doubtful || resent + unknown < t.again_bytes)
    return ctx_.fail(
        "P8: %llu bytes went again, the engines counted %llu; %llu are of messages that were cut, %llu "
        "doubtful",
        n(t.again_bytes), n(resent), n(unknown), n(doubtful));
  if (t.told_bytes > resent)
    return ctx_.fail("P8: records of failovers tell of %llu bytes that went again, the engines counted %llu",
                     n(t.told_bytes), n(resent));
}

void World::collect() {
  Stats& t = ctx_.stats;
  t.virtual_ns = ctx_.now;
  for (uint32_t p = 0; p < ctx_.machine.procs; ++p) {
    const Engine& e = processes_[p]->engine();
    t.restarts += e.counters().restarts;
    t.resent_bytes += e.counters().bytes_resent;
    t.duplicates += e.counters().duplicates;
    t.stale += e.counters().stale;
    t.malformed += e.counters().malformed;
    t.by_protocol[0] += e.counters().eager_sent;
    t.by_protocol[1] += e.counters().rndv_sent;
    for (size_t i = 0; i < core::kSendPhases; ++i)
      for (size_t j = 0; j < core::kSendEvents; ++j) coverage_.send[i][j] += e.machine().sends()[i][j];
    for (size_t i = 0; i < core::kRecvPhases; ++i)
      for (size_t j = 0; j < core::kRecvEvents; ++j) coverage_.recv[i][j] += e.machine().recvs()[i][j];
  }
}

void World::forge(const Fault& f) {
  ++ctx_.stats.forged;
  processes_[f.p]->forged(f);
}

}  // namespace bfo::sim
