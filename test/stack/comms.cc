// SPDX-License-Identifier: BSD-3-Clause
//
// comms.cc: the communicators of a process's program: when they are made and freed, and which operation is
// the next one.
#include <algorithm>

#include "test/stack/world.h"

namespace bfo::stack {

void Process::plan() {
  const sim::Program& program = world_.scenario.program;
  comms_.resize(program.comms.size());
  for (uint32_t i = 0; i < program.pairs.size(); ++i) {
    const sim::PairPlan& p = program.pairs[i];
    if (p.src == id_) comms_[p.comm].ops.push_back(Op{p.send_at, i, true});
    if (p.dst == id_) comms_[p.comm].ops.push_back(Op{p.recv_at, i, false});
  }
  for (CommState& c : comms_) {
    std::stable_sort(c.ops.begin(), c.ops.end(), [](const Op& a, const Op& b) { return a.at < b.at; });
    c.open = static_cast<uint32_t>(c.ops.size());
    left_ += c.open;
  }
  if (world_.scenario.machine.free_comms) left_ += comms_.size();
  send_over_.assign(program.pairs.size(), 0);
  recv_over_.assign(program.pairs.size(), 0);
  for (uint32_t i = 0; i < comms_.size(); ++i)
    if (program.comms[i].after < 0) comm_begins(i);
  if (!world_.scenario.streams.empty()) streams_ = std::make_unique<Streams>(world_, id_);
}

/// Processes make it at different times, each within its `skew`.
void Process::comm_begins(uint32_t i) {
  const sim::CommPlan& plan = world_.scenario.program.comms[i];
  const uint64_t now = plan.after < 0 ? 0 : world_.now() - world_.start_ns();
  comms_[i].begin_ns = now + (plan.skew_ns == 0 ? 0 : dice_.below(plan.skew_ns + 1));
  if (comms_[i].begin_ns == 0) open_comm(i);  // in MPI_Init
}

void Process::open_comm(uint32_t i) {
  CommState& c = comms_[i];
  xfer::CommDesc<StackPort> d;
  d.handle = i;
  d.ctx = static_cast<uint16_t>(world_.scenario.program.comms[i].ctx);
  d.my_rank = world_.book.rank(i, id_);
  d.size = static_cast<int32_t>(world_.scenario.machine.procs);
  c.live = true;
  c.comm = engine_->comm_add(d);
  if (c.comm == nullptr)
    world_.ctx.fail("process %u could not make a communicator with context id %u", id_, unsigned{d.ctx});
}

void Process::close_comm(uint32_t i) {
  CommState& c = comms_[i];
  engine_->comm_del(c.comm);
  c.comm = nullptr;
  c.live = false;
  c.over = true;
  --left_;
  world_.freed(i);
}

void Process::op_over(uint32_t pair) {
  --left_;
  --comms_[world_.scenario.program.pairs[pair].comm].open;
}

/// The one with the operation that comes first of all; of operations at the same time the one of the message
/// with the lower number. nullptr: none has any left.
Process::CommState* Process::next_comm() {
  CommState* first = nullptr;
  uint64_t at = 0;
  for (CommState& c : comms_) {
    if (!c.live || c.next == c.ops.size()) continue;
    const uint64_t t = c.begin_ns + c.ops[c.next].at;
    if (first != nullptr && t >= at && (t > at || c.ops[c.next].pair > first->ops[first->next].pair))
      continue;
    first = &c;
    at = t;
  }
  return first;
}

/// When the program has something to begin next, since the start of the run.
uint64_t Process::next_op_ns() const {
  uint64_t t = ~uint64_t{0};
  for (const CommState& c : comms_) {
    if (c.over || c.begin_ns == ~uint64_t{0}) continue;
    if (!c.live)
      t = std::min(t, c.begin_ns);
    else if (c.next < c.ops.size())
      t = std::min(t, c.begin_ns + c.ops[c.next].at);
  }
  return t;
}

}  // namespace bfo::stack
