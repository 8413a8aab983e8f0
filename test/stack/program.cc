// SPDX-License-Identifier: BSD-3-Clause
//
// program.cc: the MPI program of a process, and the checks made where its buffers come into play.
#include <algorithm>
#include <cstring>

#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr uint32_t kGuard = 8;
/// Every byte of a buffer nobody uses: what a late access takes from it is wrong, and what it puts there is
/// found by the next use.
constexpr uint8_t kFresh = 0xa5;

unsigned buffer_class(uint32_t size) {
  unsigned c = 4;
  while ((1u << c) < size) ++c;
  return c;
}
bool fresh(const uint8_t* b, size_t n) {
  return n == 0 || (b[0] == kFresh && std::memcmp(b, b + 1, n - 1) == 0);
}

}  // namespace

uint8_t* Process::get_buffer(uint32_t length) {
  const unsigned c = buffer_class(length + kGuard);
  const size_t size = size_t{1} << c;
  if (free_buffers_[c].empty()) {
    all_buffers_.push_back(std::make_unique_for_overwrite<uint8_t[]>(size));
    std::memset(all_buffers_.back().get(), kFresh, size);
    return all_buffers_.back().get();
  }
  uint8_t* const b = free_buffers_[c].back();
  free_buffers_[c].pop_back();
  if (!fresh(b, size)) world_.ctx.fail("P2: a buffer of process %u was written after its request ended", id_);
  return b;
}

void Process::put_buffer(uint8_t* buffer, uint32_t length) {
  std::memset(buffer, kFresh, length + kGuard);
  free_buffers_[buffer_class(length + kGuard)].push_back(buffer);
}

template <class Request>
Request* Process::get_request(std::vector<Request*>& free, std::vector<std::unique_ptr<Request>>& all) {
  if (free.empty()) {
    all.push_back(std::make_unique<Request>());
    return all.back().get();
  }
  Request* const r = free.back();
  free.pop_back();
  return r;
}

void Process::run_program() {
  if (streams_ != nullptr) streams_->run(*engine_, comms_[0].comm);
  for (size_t i = 0; i < pending_.size() && !world_.ctx.failed;) {
    Pending p = pending_[i];
    const bool over = try_pending(p);
    pending_[i] = p;
    if (over)
      pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    else
      ++i;
  }
  const uint64_t now = world_.now() - world_.start_ns();
  for (uint32_t i = 0; i < comms_.size(); ++i)
    if (!comms_[i].live && !comms_[i].over && comms_[i].begin_ns <= now) open_comm(i);
  for (CommState* c = next_comm(); c != nullptr && !world_.ctx.failed; c = next_comm()) {
    if (c->begin_ns + c->ops[c->next].at > now) break;
    run_op(c->ops[c->next++]);
  }
  if (!world_.scenario.machine.free_comms) return;
  for (uint32_t i = 0; i < comms_.size(); ++i)
    if (comms_[i].live && comms_[i].open == 0) close_comm(i);
}

void Process::run_op(const Op& op) {
  const sim::PairPlan& p = world_.scenario.program.pairs[op.pair];
  if (op.send) return start_send(op.pair);
  if (p.recv_style == sim::RecvStyle::kProbe)
    pending_.push_back(Pending{Pending::kProbe, op.pair, world_.now()});
  else if (p.recv_style == sim::RecvStyle::kMprobe)
    pending_.push_back(Pending{Pending::kMprobe, op.pair, world_.now()});
  else
    start_recv(op.pair, p.any_source ? -1 : static_cast<int32_t>(p.src), p.any_tag ? -1 : p.tag);
}

void Process::start_send(uint32_t pair) {
  const sim::PairPlan& p = world_.scenario.program.pairs[pair];
  uint8_t* const buffer = get_buffer(p.length);
  sim::fill_pattern(buffer, pair, p.length);
  world_.book.sent(pair);
  ++world_.result.messages;
  if (p.dst == id_) world_.traffic.oneself(p.length);
  SIM_TRACE(world_.ctx, "send  message %u: %u->%u tag %d, %u bytes", pair, id_, p.dst, p.tag, p.length);
  xfer::SendArgs<StackPort> args;
  args.comm = comms_[p.comm].comm;
  args.dst = world_.book.rank(p.comm, p.dst);
  args.tag = p.tag;
  args.length = p.length;
  if (p.send_style == sim::SendStyle::kSync) args.mode = xfer::SendMode::kSync;
  if (p.send_style == sim::SendStyle::kInline && p.contiguous) {
    InlineSource source{buffer, pair};
    args.blocking = true;
    if (engine_->send_inline(args, source)) {
      put_buffer(buffer, p.length);
      send_over_[pair] = 1;
      op_over(pair);
      return;
    }
  }
  SendRequest* const r = get_request(free_sends_, all_sends_);
  r->buf = Buffer{buffer, p.length, 0, pair, r->buf.use + 1, p.contiguous, true};
  engine_->isend(r, args);
}

void Process::start_recv(uint32_t pair, int32_t src, int32_t tag) {
  const sim::PairPlan& p = world_.scenario.program.pairs[pair];
  RecvRequest* const r = get_request(free_recvs_, all_recvs_);
  r->buf = Buffer{get_buffer(p.capacity), p.capacity, 0, pair, r->buf.use + 1, p.recv_contiguous, true};
  r->message = -1;
  r->order = world_.book.posted(pair, src, tag);
  xfer::RecvArgs<StackPort> args;
  args.comm = comms_[p.comm].comm;
  args.src = src < 0 ? xfer::kAnySource : world_.book.rank(p.comm, static_cast<uint32_t>(src));
  args.tag = tag < 0 ? xfer::kAnyTag : tag;
  args.capacity = p.capacity;
  const uint32_t order = r->order;
  engine_->irecv(r, args);
  const bool open = r->buf.active && r->order == order && r->buf.pair == pair;
  if (p.recv_style == sim::RecvStyle::kCancel && open)
    pending_.push_back(
        Pending{Pending::kCancel, pair, world_.now() + kUs + dice_.below(30 * kUs), nullptr, -1, r, order});
}

/// The receive is withdrawn, unless it has been matched, and posted again.
bool Process::try_cancel(const Pending& t) {
  RecvRequest* const r = t.request;
  if (!r->buf.active || r->buf.pair != t.pair || r->order != t.order) return true;  // received meanwhile
  if (!engine_->cancel(r)) return true;
  if (r->message >= 0) world_.ctx.fail("P1: a matched receive was cancelled");
  world_.book.cancelled(t.pair, t.order);
  r->buf.active = false;
  put_buffer(r->buf.base, r->buf.length);
  free_recvs_.push_back(r);
  const sim::PairPlan& p = world_.scenario.program.pairs[t.pair];
  start_recv(t.pair, p.any_source ? -1 : static_cast<int32_t>(p.src), p.any_tag ? -1 : p.tag);
  return true;
}

/// True: done with it.
bool Process::try_pending(Pending& t) {
  if (world_.now() < t.at) return false;
  if (t.kind == Pending::kCancel) return try_cancel(t);
  const sim::PairPlan& p = world_.scenario.program.pairs[t.pair];
  const int32_t src = p.any_source ? -1 : static_cast<int32_t>(p.src);
  const int32_t tag = p.any_tag ? -1 : p.tag;
  if (t.kind == Pending::kImrecv) {
    RecvRequest* const r = get_request(free_recvs_, all_recvs_);
    r->buf = Buffer{get_buffer(p.capacity), p.capacity, 0, t.pair, r->buf.use + 1, p.recv_contiguous, true};
    r->message = t.taken;
    r->order = ~0u;
    engine_->imrecv(t.message, r, p.capacity);
    return true;
  }
  const int32_t rank = src < 0 ? xfer::kAnySource : world_.book.rank(p.comm, p.src);
  const int32_t wanted = tag < 0 ? xfer::kAnyTag : tag;
  xfer::ProbeResult result;
  const bool mprobe = t.kind == Pending::kMprobe;
  if (mprobe) t.message = engine_->improbe(comms_[p.comm].comm, rank, wanted, result);
  if (mprobe ? t.message == nullptr : !engine_->iprobe(comms_[p.comm].comm, rank, wanted, result)) {
    if (result.outcome == Outcome::kOk) return false;
    if (!loss_allowed(p.src))
      world_.ctx.fail("P6: probe for message %u ended with \"%s\"", t.pair, to_string(result.outcome));
    start_recv(t.pair, src, tag);  // ends with an error too
    return true;
  }
  const auto got = static_cast<int32_t>(world_.book.proc(p.comm, result.source));
  t.taken = world_.book.entitled(t.pair, src, tag, got, result.tag, result.length);
  if (t.taken < 0) return true;
  if (mprobe) {
    world_.book.take(static_cast<uint32_t>(t.taken));
    t.kind = Pending::kImrecv;
    t.at = world_.now() + dice_.below(40 * kUs);
    return false;
  }
  start_recv(t.pair, got, result.tag);
  if (!world_.ctx.failed && !world_.book.is_matched(static_cast<uint32_t>(t.taken)))
    world_.ctx.fail("P1: process %u probed message %d and did not receive it", id_, t.taken);
  return true;
}

bool Process::awaits(const sim::PairPlan& asked, uint32_t message) const {
  const sim::PairPlan& m = world_.scenario.program.pairs[message];
  if (m.dst != id_ || m.comm != asked.comm) return false;
  return (asked.any_source || asked.src == m.src) && (asked.any_tag || asked.tag == m.tag);
}

bool Process::awaits(uint32_t message) const {
  const auto& pairs = world_.scenario.program.pairs;
  for (const auto& r : all_recvs_)
    if (r->buf.active && awaits(pairs[r->buf.pair], message)) return true;
  for (const Pending& t : pending_)
    if (awaits(pairs[t.pair], message)) return true;
  return false;
}

bool Process::lost(uint32_t peer) const {
  return peers_[peer] != nullptr && peers_[peer]->standing.failed();
}

bool Process::waits_in_vain(const sim::PairPlan& asked) const {
  for (uint32_t q = 0; q < peers_.size(); ++q)
    if ((asked.any_source || asked.src == q) &&
        (lost(q) || (!asked.any_source && world_.processes[q]->lost(id_))))
      return false;
  return true;
}

bool Process::only_unmatched() const {
  const auto& pairs = world_.scenario.program.pairs;
  for (uint32_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].src != id_ || send_over_[i] == 2) continue;
    const Process& to = *world_.processes[pairs[i].dst];
    const bool apart = lost(to.id_) || to.lost(id_);
    if (send_over_[i] == 0 && (apart || world_.book.is_matched(i))) return false;
    if (!apart && !world_.book.is_matched(i) && to.awaits(i)) return false;
  }
  for (const auto& r : all_recvs_)
    if (r->buf.active && (r->message >= 0 || !waits_in_vain(pairs[r->buf.pair]))) return false;
  for (const Pending& t : pending_)
    if (t.kind == Pending::kImrecv || !waits_in_vain(pairs[t.pair])) return false;
  for (engine::Port* const port : ports_)
    if (engine::port_outstanding(*port) != 0) return false;
  return true;
}

bool Process::loss_allowed(uint32_t peer) const {
  return world_.scenario.machine.may_fail || world_.dead(peer);
}

void Process::matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length) {
  if (Streams::has(r.buf)) return;
  const sim::PairPlan& p = world_.scenario.program.pairs[r.buf.pair];
  sim::Context& ctx = world_.ctx;
  if (!r.buf.active) return ctx.fail("P1: process %u matched a message with a finished receive", id_);
  const uint32_t from = world_.book.proc(p.comm, source);
  if (r.message >= 0) {
    const sim::PairPlan& m = world_.scenario.program.pairs[static_cast<uint32_t>(r.message)];
    if (r.order != ~0u) return ctx.fail("P1: receive %u was matched twice", r.buf.pair);
    if (m.src != from || m.tag != tag || m.length != length)
      ctx.fail("P1: a matched probe's message changed into another");
    return;
  }
  r.message = world_.book.entitled(r.buf.pair, world_.book.asked_source(r.buf.pair, r.order),
                                   world_.book.asked_tag(r.buf.pair, r.order), static_cast<int32_t>(from),
                                   tag, length);
  if (r.message < 0) return;
  world_.book.take(static_cast<uint32_t>(r.message));
  world_.book.matched(r.buf.pair, r.order, static_cast<uint32_t>(r.message));
}

void Process::finish_send(SendRequest& r, Outcome outcome) {
  if (Streams::has(r.buf)) return streams_->finish(r, outcome);
  const uint32_t pair = r.buf.pair;
  sim::Context& ctx = world_.ctx;
  SIM_TRACE(ctx, "done  send of message %u: %s", pair, to_string(outcome));
  if (!r.buf.active) return ctx.fail("P1: process %u completed a send twice", id_);
  if (r.buf.rdma_out != 0)
    return ctx.fail("P2: send of message %u completed with %u own writes under way", pair, r.buf.rdma_out);
  if (outcome != Outcome::kOk) world_.traffic.cut(pair);
  if (outcome != Outcome::kOk && !loss_allowed(world_.scenario.program.pairs[pair].dst))
    return ctx.fail("P6: send of message %u ended with \"%s\"", pair, to_string(outcome));
  // Without memory for the peer's record nothing was sent, and later messages have none before them.
  const bool nothing =
      outcome == Outcome::kNoMemory && peers_[world_.scenario.program.pairs[pair].dst] == nullptr;
  if (nothing) world_.book.take(pair);
  if (outcome == Outcome::kOk && world_.scenario.program.pairs[pair].send_style == sim::SendStyle::kSync &&
      !world_.book.is_matched(pair))
    return ctx.fail("P1: synchronous send of message %u completed before it was received", pair);
  r.buf.active = false;
  put_buffer(r.buf.base, r.buf.length);
  free_sends_.push_back(&r);
  send_over_[pair] = outcome == Outcome::kOk ? 1 : 2;
  op_over(pair);
  ctx.note(7, pair, 1);
}

void Process::finish_recv(RecvRequest& r, const xfer::RecvStatus& status) {
  if (Streams::has(r.buf)) return streams_->finish(r, status);
  const uint32_t pair = r.buf.pair;
  sim::Context& ctx = world_.ctx;
  SIM_TRACE(ctx, "done  receive %u, message %d: %s", pair, r.message, to_string(status.outcome));
  if (!r.buf.active) return ctx.fail("P1: process %u completed a receive twice", id_);
  if (r.buf.rdma_out != 0)
    return ctx.fail("P2: receive %u completed with %u own reads under way", pair, r.buf.rdma_out);
  if (status.outcome != Outcome::kOk && status.outcome != Outcome::kTruncated) {
    if (r.message < 0) world_.book.cancelled(pair, r.order);
    const uint32_t message = r.message >= 0 ? static_cast<uint32_t>(r.message) : pair;
    world_.traffic.cut(message);
    if (!loss_allowed(world_.scenario.program.pairs[message].src))
      return ctx.fail("P6: receive %u ended with \"%s\"", pair, to_string(status.outcome));
  } else {
    if (r.message < 0) return ctx.fail("P1: receive %u completed without a message", pair);
    const auto m = static_cast<uint32_t>(r.message);
    const uint32_t length = world_.scenario.program.pairs[m].length;
    const uint32_t stored = std::min(length, r.buf.length);
    if (length > r.buf.length) world_.traffic.truncated(m);
    if ((length > r.buf.length) != (status.outcome == Outcome::kTruncated) || status.length != stored)
      return ctx.fail("P1: receive %u of %u bytes got message %u of %u bytes and reports %llu, %s", pair,
                      r.buf.length, m, length, static_cast<unsigned long long>(status.length),
                      to_string(status.outcome));
    const int64_t wrong = sim::check_pattern(r.buf.base, m, stored);
    if (wrong >= 0)
      return ctx.fail("P1: message %u of %u bytes arrived with a wrong byte at %lld", m, length,
                      static_cast<long long>(wrong));
    if (!fresh(r.buf.base + stored, r.buf.length + kGuard - stored))
      return ctx.fail("P2: message %u of %u bytes wrote behind its end", m, length);
  }
  r.buf.active = false;
  put_buffer(r.buf.base, r.buf.length);
  free_recvs_.push_back(&r);
  recv_over_[pair] = 1;
  op_over(pair);
  ctx.note(7, pair, 0);
}

}  // namespace bfo::stack
