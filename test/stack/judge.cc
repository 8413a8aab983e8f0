// SPDX-License-Identifier: BSD-3-Clause
//
// judge.cc: how World judges a run: what must not happen while it lasts, and what must have ended after it.
//
// P1..P8: contrib/doc/design.md, H1..H23: contrib/doc/hazards.md
#include "test/stack/world.h"

namespace bfo::stack {

// ---- while it lasts

void World::watch(uint32_t key, const Buffer& buffer) {
  if (watched_.size() <= key) watched_.resize(key + 1);
  watched_[key] = Watched{&buffer, buffer.use};
}

void World::rail_ended(const Link& l, int cause) {
  const Machine& m = scenario.machine;
  result.by_clock += cause == BFO_CAUSE_PROBE_FAILED ? 1 : 0;
  if (result.down_ns == 0) result.down_ns = time.now() - start_ns_;
  if (!m.clocks_only || cause != BFO_CAUSE_PROBE_FAILED) return;
  for (uint32_t r = 0; r < m.rails; ++r) {
    const engine::Endpoint& here = processes[l.process->id()]->link(l.peer, r)->endpoint;
    const engine::Endpoint& there = processes[l.peer]->link(l.process->id(), r)->endpoint;
    if (r != l.rail && engine::is_up(here.phase) && engine::is_up(there.phase) && here.epoch == there.epoch)
      return;
  }
  ctx.fail("H15: a clock ended the last rail between processes %u and %u", l.process->id(), l.peer);
}

void World::accessed(uint32_t process, uint64_t address, uint32_t length, uint32_t key, bool write) {
  ctx.note(3, process, length);
  if (write && !streams.empty()) processes[process]->streams()->landed(address, length);
  if (key >= watched_.size() || watched_[key].buffer == nullptr) return;
  const Watched& w = watched_[key];
  if (w.buffer->active && w.buffer->use == w.use) return;
  ctx.fail("P2: a peer %s %u bytes of a buffer of process %u whose request is over",
           write ? "writes" : "reads", length, process);
}

void World::thrown_away(const Qp& qp, const char* what) {
  const Device& d = *qp.device();
  // Without the event a drain waits for a time; a control thread destroys the queue pair later still.
  if (scenario.machine.fabric.no_last_receive != 0 && scenario.machine.control_threads) return;
  ctx.fail("H3: process %u destroys a queue pair of rail %u, and with it %s", d.process, d.rail, what);
}

// ---- its end

bool World::over() {
  for (const auto& p : processes)
    if (!dead(p->id()) && !p->finished()) return false;
  for (const auto& p : processes)
    if (!dead(p->id()) && !p->quiet()) return false;
  return true;
}

bool World::only_unmatched() {
  if (!scenario.machine.may_fail) return false;
  for (const auto& p : processes)
    if (!dead(p->id()) && !p->only_unmatched()) return false;
  return true;
}

void World::fail_liveness() {
  bool finished = true;
  bool pml = true;
  std::string text;
  for (const auto& p : processes) {
    if (dead(p->id())) continue;
    finished = finished && p->finished();
    pml = pml && p->engine().unfinished() == 0;
    text += p->state();
  }
  ctx.fail("L%d: %s not at its end %llu ms after the last fault",
           !finished ? 1
           : !pml    ? 2
                     : 3,
           !finished ? "a program is"
           : !pml    ? "the PML is"
                     : "the BTL is",
           static_cast<unsigned long long>(scenario.machine.heal_ns / kMs));
  ctx.violation += "\n" + text;
}

/// What went again, and what the PMLs say about it.
void World::check_traffic() {
  if (!streams.empty()) return;
  const auto& pairs = scenario.program.pairs;
  uint64_t repetitions = result.failovers + result.closed;
  xfer::Counters all;
  for (const auto& p : processes) {
    const xfer::Counters& c = p->engine().counters();
    // A device that cannot be fenced says so at every question, and what is pending is sent again.
    repetitions += c.fences;
    all.bytes_sent += c.bytes_sent;
    all.bytes_read += c.bytes_read;
    all.bytes_resent += c.bytes_resent;
    all.bytes_headers += c.bytes_headers;
    all.eager_sent += c.eager_sent;
  }
  const auto fail = [this](const std::string& wrong) {
    if (!wrong.empty()) ctx.fail("%s", wrong.c_str());
  };
  for (uint32_t i = 0; i < pairs.size(); ++i) {
    if (dead(pairs[i].src) || dead(pairs[i].dst))
      traffic.cut(i);
    else
      fail(traffic.resent(i, repetitions));
  }
  fail(traffic.balance(all));
}

void World::finish() {
  const auto& pairs = scenario.program.pairs;
  for (uint32_t i = 0; i < pairs.size() && !ctx.failed; ++i) {
    if (scenario.machine.may_fail || dead(pairs[i].src) || dead(pairs[i].dst)) continue;
    if (!book.is_matched(i)) ctx.fail("P1: message %u was never received", i);
  }
  check_traffic();
  for (const auto& p : processes) result.restarts += p->engine().counters().restarts;
  if (on_end)
    for (const auto& p : processes) on_end(p->engine());
  closing_ = fabric.closing = true;
  bool all = true;
  for (const auto& p : processes) {
    all = all && !dead(p->id());
    if (!ctx.failed && !dead(p->id())) p->close();
  }
  if (!ctx.failed && all && fabric.handles_live != 0)
    ctx.fail("%u address handles are left", fabric.handles_live);
}

}  // namespace bfo::stack
