// SPDX-License-Identifier: BSD-3-Clause
//
// process.cc: the MPI program of one simulated process, and the checks made where it touches its buffers.

#include "test/sim/process.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace bfo::sim {
namespace {
constexpr uint64_t kMinTick = 4000;
constexpr uint64_t kMaxTick = 150000;
/// Most of a long receive of a short message is this tail: compare it with itself, one byte further.
int64_t first_not_fresh(const uint8_t* b, uint32_t from, uint32_t end, uint8_t fresh) {
  if (b[from] == fresh && std::memcmp(b + from, b + from + 1, end - from - 1) == 0) return -1;
  while (b[from] == fresh) ++from;
  return from;
}
}  // namespace

Process::Process(Context& ctx, Fabric& fabric, Book& book, Shared& shared, uint32_t id)
    : ctx_(ctx),
      fabric_(fabric),
      book_(book),
      shared_(shared),
      id_(id),
      port_(*this),
      driver_(ctx, fabric, id) {}

Process::~Process() = default;

void Process::reset() {
  stop();
  const Scenario& s = *shared_.scenario;
  const Machine& m = s.machine;
  dice_ = Prng(mix(m.seed, 0x9c, id_));
  reset_memory();
  pending_.clear();
  echoes_.clear();
  tick_ns_ = kMinTick;
  next_op_ns_ = program_due_ns_ = 0;
  for (auto& p : peers_) p = nullptr;
  for (bool& l : lost_peer_) l = false;

  ops_left_ = 0;
  comms_.resize(s.comms.size());
  for (CommState& c : comms_) {
    c.comm = nullptr;
    c.ops.clear();
    c.next = 0;
    c.open = 0;
    c.live = c.over = false;
  }
  for (uint32_t i = 0; i < s.pairs.size(); ++i) {
    const PairPlan& p = s.pairs[i];
    CommState& c = comms_[p.comm];
    if (p.src == id_) c.ops.push_back(Op{p.send_at, i, true});
    if (p.dst == id_) c.ops.push_back(Op{p.recv_at, i, false});
  }
  for (CommState& c : comms_) {
    std::stable_sort(c.ops.begin(), c.ops.end(), [](const Op& a, const Op& b) { return a.at < b.at; });
    c.open = static_cast<uint32_t>(c.ops.size());
    ops_left_ += c.open + 1;  // closing it is work too
  }
  for (uint32_t i = 0; i < comms_.size(); ++i) comms_[i].begin_ns = dice_.below(s.comms[i].skew_ns + 1);

  xfer::Config config;
  config.park_timeout_ns = m.park_ns;
  config.send_depth = m.send_depth;
  config.rdma_depth = m.rdma_depth;
  config.use_get = m.use_get != 0;
  config.use_put = m.use_put != 0;
  config.any_source_on_loss = xfer::AnySource::kWait;  // the program goes on with those that are left
  engine_.emplace(port_, config);
  driver_.reset(&*engine_);
  if (!m.lazy)
    for (uint32_t q = 0; q < m.procs; ++q) peer(q);
}

xfer::RailLimits Process::limits(bool self) const {
  const Machine& m = ctx_.machine;
  xfer::RailLimits l;
  l.eager_limit = m.eager_limit;
  l.blocking_limit = m.blocking_limit;
  l.rndv_eager_limit = m.rndv_eager;
  l.max_send_size = m.max_send;
  l.put_limit = self ? 0 : m.put_limit;
  l.get_limit = self ? 0 : m.get_limit;
  l.get_alignment = m.get_alignment;
  l.min_rdma_size = m.min_rdma;
  l.rdma_frag_size = m.rdma_frag;
  l.failover = !self;
  return l;
}

EnginePeer* Process::peer(uint32_t proc) {
  if (peers_[proc]) return peers_[proc];
  EnginePeer* const p = peers_[proc] = engine_->peer_add(proc);
  const uint32_t n = proc == id_ ? 1 : ctx_.machine.rails;
  for (uint32_t r = 0; r < n; ++r) {
    Half& h = fabric_.half(id_, proc, r);
    xfer::RailLimits l = limits(proc == id_);
    l.weight = static_cast<uint32_t>(1 + mix(ctx_.machine.seed, r) % 4);
    if (ctx_.machine.uneven && r == 1) {
      l.eager_limit /= 2;
      l.max_send_size /= 2;
    }
    static constexpr RailState kStates[] = {RailState::kIdle,    RailState::kConnecting, RailState::kUp,
                                            RailState::kSuspect, RailState::kDown,       RailState::kClosed,
                                            RailState::kUnusable};
    const RailState state = proc == id_ ? RailState::kUp : kStates[static_cast<unsigned>(h.link)];
    const RailName name = proc == id_ ? RailName{} : RailName{h.conn, h.epoch};
    EngineRail* const rail = engine_->rail_add(p, RailHandle{&h}, l);
    h.engine_rail = rail;
    if (rail != nullptr) engine_->rail_begin(rail, state, name);
  }
  return p;
}

void Process::peer_died(uint32_t q) {
  engine_->peer_lost(peer(q));
  ctx_.wake(id_, 1000);
}

bool Process::loss_allowed(uint32_t q) const {
  return ctx_.machine.may_lose_peer != 0 || ctx_.message_lost || ctx_.sleepers[q].dead;
}

// ---- what runs

void Process::step() {
  ctx_.note(6, id_, 0);
  const bool did = driver_.poll();
  const int progressed = engine_->progress(ctx_.now);
  run_program();
  if (!echoes_.empty()) [[unlikely]]
    send_echoes();
  tick_ns_ = did || progressed ? kMinTick : std::min(kMaxTick, tick_ns_ + tick_ns_ / 2);
  uint64_t delay = tick_ns_;
  if (finished() && !engine_->needs_progress() && engine_->unfinished() == 0) delay = ~uint64_t{0};
  if (!pending_.empty()) delay = std::min<uint64_t>(delay, 8000);
  const uint64_t op = next_op_ns_;
  if (op != ~uint64_t{0}) delay = std::min(delay, op > ctx_.now ? op - ctx_.now : 0);
  if (delay != ~uint64_t{0}) ctx_.wake(id_, std::max<uint64_t>(delay, 100));
}

uint64_t Process::next_op_time() const {
  uint64_t t = ~uint64_t{0};
  for (uint32_t i = 0; i < comms_.size(); ++i) {
    const CommState& c = comms_[i];
    if (c.over || shared_.begin_ns[i] == ~uint64_t{0}) continue;
    const uint64_t begin = shared_.begin_ns[i] + c.begin_ns;
    if (!c.live)
      t = std::min(t, begin);
    else if (c.next < c.ops.size())
      t = std::min(t, begin + c.ops[c.next].at);
  }
  return t;
}

void Process::run_program() {
  for (size_t i = 0; i < pending_.size() && !ctx_.failed;) {
    Pending p = pending_[i];
    const bool over = try_pending(p);
    pending_[i] = p;
    if (over)
      pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    else
      ++i;
  }
  if (ctx_.now < program_due_ns_) return;
  program_due_ns_ = ~uint64_t{0};
  for (uint32_t i = 0; i < comms_.size() && !ctx_.failed; ++i) {
    CommState& c = comms_[i];
    if (c.over || shared_.begin_ns[i] == ~uint64_t{0}) continue;
    const uint64_t begin = shared_.begin_ns[i] + c.begin_ns;
    if (ctx_.now < begin) continue;
    if (!c.live) open_comm(i);
    while (c.next < c.ops.size() && begin + c.ops[c.next].at <= ctx_.now && !ctx_.failed)
      run_op(c, c.ops[c.next++]);
    if (c.open == 0) close_comm(i);
  }
  next_op_ns_ = next_op_time();
  program_due_ns_ = std::min(program_due_ns_, next_op_ns_);  // op_over() may have set it meanwhile
}

void Process::open_comm(uint32_t i) {
  const CommPlan& plan = shared_.scenario->comms[i];
  CommState& c = comms_[i];
  xfer::CommDesc<SimPort> d;
  d.handle = i;
  d.ctx = static_cast<uint16_t>(plan.ctx);
  d.my_rank = book_.rank(i, id_);
  d.size = static_cast<int32_t>(ctx_.machine.procs);
  c.live = true;
  c.comm = engine_->comm_add(d);
  if (!c.comm) ctx_.fail("process %u could not make a communicator with context id %u", id_, plan.ctx);
}

void Process::close_comm(uint32_t i) {
  CommState& c = comms_[i];
  engine_->comm_del(c.comm);
  c.comm = nullptr;
  c.over = true;
  --ops_left_;
  ++shared_.freed[i];
  shared_.freed_changed = true;
}

void Process::run_op(CommState& c, const Op& op) {
  const PairPlan& p = shared_.scenario->pairs[op.pair];
  if (op.send) return start_send(c, op.pair);
  const int32_t src = p.any_source ? -1 : static_cast<int32_t>(p.src);
  const int32_t tag = p.any_tag ? -1 : p.tag;
  switch (p.recv_style) {
    case RecvStyle::kProbe:
      pending_.push_back(Pending{Pending::kProbe, op.pair, ctx_.now});
      break;
    case RecvStyle::kMprobe:
      pending_.push_back(Pending{Pending::kMprobe, op.pair, ctx_.now});
      break;
    default:
      start_recv(op.pair, src, tag);
      break;
  }
}

void Process::start_send(CommState& c, uint32_t pair) {
  const PairPlan& p = shared_.scenario->pairs[pair];
  uint8_t* const buffer = get_buffer(p.length);
  fill_pattern(buffer, pair, p.length);
  book_.sent(pair);
  ++ctx_.stats.messages;
  ctx_.stats.application_bytes += p.length;
  SIM_TRACE(ctx_, "send  message %u: %u->%u comm %u tag %d, %u bytes", pair, id_, p.dst, p.comm, p.tag,
            p.length);
  xfer::SendArgs<SimPort> args;
  args.comm = c.comm;
  args.dst = book_.rank(p.comm, p.dst);
  args.tag = p.tag;
  args.length = p.length;
  if (p.send_style == SendStyle::kSync) args.mode = xfer::SendMode::kSync;
  if (p.send_style == SendStyle::kInline && p.contiguous) {
    InlineSource source{buffer};
    args.blocking = true;
    in_inline_ = pair;
    if (engine_->send_inline(args, source)) {
      put_buffer(buffer, p.length, p.length);
      return op_over(pair, true);
    }
  }
  SendRequest* const r = get_send();
  r->buf = Buffer{buffer, p.length, 0, 0, pair, p.contiguous, true};
  engine_->isend(r, args);
}

void Process::start_recv(uint32_t pair, int32_t src, int32_t tag) {
  const PairPlan& p = shared_.scenario->pairs[pair];
  RecvRequest* const r = get_recv();
  uint8_t* const buffer = get_buffer(p.capacity);
  r->buf = Buffer{buffer, p.capacity, 0, 0, pair, p.recv_contiguous, true};
  r->message = -1;
  r->order = book_.posted(pair, src, tag);
  SIM_TRACE(ctx_, "post  receive %u: process %u comm %u source %d tag %d", pair, id_, p.comm, src, tag);
  xfer::RecvArgs<SimPort> args;
  args.comm = comms_[p.comm].comm;
  args.src = src < 0 ? xfer::kAnySource : book_.rank(p.comm, static_cast<uint32_t>(src));
  args.tag = tag < 0 ? xfer::kAnyTag : tag;
  args.capacity = p.capacity;
  const uint32_t order = r->order;
  engine_->irecv(r, args);
  if (p.recv_style == RecvStyle::kCancel && r->buf.active && r->order == order && r->buf.pair == pair)
    pending_.push_back(
        Pending{Pending::kCancel, pair, ctx_.now + 1000 + dice_.below(30000), nullptr, -1, r, order});
}

/// True: done with it.
bool Process::try_pending(Pending& t) {
  if (ctx_.now < t.at) return false;
  const PairPlan& p = shared_.scenario->pairs[t.pair];
  EngineComm* const comm = comms_[p.comm].comm;
  const int32_t src = p.any_source ? -1 : static_cast<int32_t>(p.src);
  const int32_t tag = p.any_tag ? -1 : p.tag;
  const int32_t rank = src < 0 ? xfer::kAnySource : book_.rank(p.comm, p.src);
  const int32_t wanted = tag < 0 ? xfer::kAnyTag : tag;
  if (t.kind == Pending::kCancel) {
    RecvRequest* const r = t.request;
    if (!r->buf.active || r->buf.pair != t.pair || r->order != t.order) return true;  // received meanwhile
    if (!engine_->cancel(r)) return true;
    if (r->message >= 0) ctx_.fail("P1: a matched receive was cancelled");
    book_.cancelled(t.pair, t.order);
    r->buf.active = false;
    put_buffer(r->buf.base, r->buf.length, r->buf.length + kGuard);
    free_recvs_.push_back(r);
    SIM_TRACE(ctx_, "cancel receive %u of process %u", t.pair, id_);
    start_recv(t.pair, src, tag);
    return true;
  }
  if (t.kind == Pending::kImrecv) {
    RecvRequest* const r = get_recv();
    uint8_t* const buffer = get_buffer(p.capacity);
    r->buf = Buffer{buffer, p.capacity, 0, 0, t.pair, p.recv_contiguous, true};
    r->message = t.taken;
    r->order = ~0u;
    engine_->imrecv(t.message, r, p.capacity);
    return true;
  }
  if (p.src != id_ && p.any_source && lost_peer_[p.src]) {  // an engine waits for anybody
    start_recv(t.pair, src, tag);
    return true;
  }
  xfer::ProbeResult result;
  if (t.kind == Pending::kMprobe) t.message = engine_->improbe(comm, rank, wanted, result);
  if (t.kind == Pending::kMprobe ? !t.message : !engine_->iprobe(comm, rank, wanted, result)) {
    if (result.outcome == Outcome::kOk) return false;
    if (!loss_allowed(p.src))
      ctx_.fail("P6: probe for message %u ended with \"%s\"", t.pair, to_string(result.outcome));
    start_recv(t.pair, src, tag);  // ends with an error too
    return true;
  }
  const auto got = static_cast<int32_t>(book_.proc(p.comm, result.source));
  t.taken = book_.entitled(t.pair, src, tag, got, result.tag, result.length);
  if (t.taken < 0) return true;
  if (t.kind == Pending::kMprobe) {
    book_.take(static_cast<uint32_t>(t.taken));
    t.kind = Pending::kImrecv;
    t.at = ctx_.now + dice_.below(40000);  // holds the message for a while
    return false;
  }
  start_recv(t.pair, got, result.tag);
  if (!ctx_.failed && !book_.is_matched(static_cast<uint32_t>(t.taken)))
    ctx_.fail("P1: process %u probed message %d and did not receive it", id_, t.taken);
  return true;
}

// ---- what ends

void Process::op_over(uint32_t pair, bool send) {
  const PairPlan& p = shared_.scenario->pairs[pair];
  (send ? shared_.send_over : shared_.recv_over)[pair] = 1;
  if (--comms_[p.comm].open == 0) program_due_ns_ = 0;  // to be closed
  --ops_left_;
  ctx_.note(7, pair, send);
  ctx_.wake(id_, 300 + dice_.below(500));
}

void Process::end_regions(Buffer& b, bool undefined) {
  for (uint32_t key = b.regions; key != 0; key = ctx_.memory.at(key).next) {
    ctx_.memory.at(key).over = true;
    ctx_.memory.at(key).undefined = undefined;
  }
}

void Process::matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length) {
  const PairPlan& p = shared_.scenario->pairs[r.buf.pair];
  if (!r.buf.active) return ctx_.fail("P1: process %u matched a message with a finished receive", id_);
  const uint32_t from = book_.proc(p.comm, source);
  if (r.message >= 0) {
    const PairPlan& m = shared_.scenario->pairs[static_cast<uint32_t>(r.message)];
    if (r.order != ~0u) return ctx_.fail("P1: receive %u was matched twice", r.buf.pair);
    if (m.src != from || m.tag != tag || m.length != length)
      ctx_.fail("P1: a matched probe's message changed into another");
    return;
  }
  const int32_t src = book_.asked_source(r.buf.pair, r.order);
  const int32_t asked = book_.asked_tag(r.buf.pair, r.order);
  r.message = book_.entitled(r.buf.pair, src, asked, static_cast<int32_t>(from), tag, length);
  if (r.message < 0) return;
  book_.take(static_cast<uint32_t>(r.message));
  book_.matched(r.buf.pair, r.order, static_cast<uint32_t>(r.message));
  SIM_TRACE(ctx_, "match message %d with receive %u of process %u", r.message, r.buf.pair, id_);
}

void Process::finish_send(SendRequest& r, Outcome outcome) {
  const uint32_t pair = r.buf.pair;
  const PairPlan& p = shared_.scenario->pairs[pair];
  SIM_TRACE(ctx_, "done  send of message %u: %s", pair, to_string(outcome));
  if (!r.buf.active) return ctx_.fail("P1: process %u completed a send twice", id_);
  if (r.buf.rdma_out != 0 && !ctx_.failed)
    return ctx_.fail("P2: send of message %u completed with %u own writes in flight", pair, r.buf.rdma_out);
  if (outcome != Outcome::kOk) {
    ++ctx_.stats.lost_requests;
    ctx_.traffic[pair].cut = true;
    if (!loss_allowed(p.dst))
      return ctx_.fail("P6: send of message %u ended with \"%s\"", pair, to_string(outcome));
  } else if (p.send_style == SendStyle::kSync && !book_.is_matched(pair)) {
    return ctx_.fail("P1: synchronous send of message %u completed before it was received", pair);
  }
  end_regions(r.buf, false);
  r.buf.active = false;
  put_buffer(r.buf.base, r.buf.length, r.buf.length);
  free_sends_.push_back(&r);
  op_over(pair, true);
}

void Process::finish_recv(RecvRequest& r, const xfer::RecvStatus& status) {
  const uint32_t pair = r.buf.pair;
  SIM_TRACE(ctx_, "done  receive %u, message %d: %s", pair, r.message, to_string(status.outcome));
  if (!r.buf.active) return ctx_.fail("P1: process %u completed a receive twice", id_);
  if (r.buf.rdma_out != 0)
    return ctx_.fail("P2: receive %u completed with %u own reads in flight", pair, r.buf.rdma_out);
  uint32_t dirty = r.buf.length + kGuard;
  const bool good = status.outcome == Outcome::kOk || status.outcome == Outcome::kTruncated;
  if (r.message >= 0) {
    const auto m = static_cast<uint32_t>(r.message);
    ctx_.traffic[m].truncated = shared_.scenario->pairs[m].length > r.buf.length;
  }
  if (!good) {
    ++ctx_.stats.lost_requests;
    if (r.message < 0) book_.cancelled(pair, r.order);  // it waits for nothing any more
    const uint32_t message = r.message >= 0 ? static_cast<uint32_t>(r.message) : pair;
    ctx_.traffic[message].cut = true;
    const PairPlan& p = shared_.scenario->pairs[message];
    if (!loss_allowed(p.src))
      return ctx_.fail("P6: receive %u ended with \"%s\"", pair, to_string(status.outcome));
  } else {
    if (r.message < 0) return ctx_.fail("P1: receive %u completed without a message", pair);
    const auto m = static_cast<uint32_t>(r.message);
    const uint32_t length = shared_.scenario->pairs[m].length;
    const uint32_t stored = std::min(length, r.buf.length);
    const bool truncated = length > r.buf.length;
    if (truncated != (status.outcome == Outcome::kTruncated) || status.length != stored)
      return ctx_.fail("P1: receive %u of %u bytes got message %u of %u bytes and reports %llu, %s", pair,
                       r.buf.length, m, length, static_cast<unsigned long long>(status.length),
                       to_string(status.outcome));
    const int64_t wrong = check_pattern(r.buf.base, m, stored);
    if (wrong >= 0)
      return ctx_.fail("P1: message %u of %u bytes arrived with a wrong byte at %lld", m, length,
                       static_cast<long long>(wrong));
    const int64_t written = first_not_fresh(r.buf.base, stored, r.buf.length + kGuard, kFresh);
    if (written >= 0)
      return ctx_.fail("P2: message %u of %u bytes wrote at %lld", m, length,
                       static_cast<long long>(written));
    dirty = stored;
  }
  end_regions(r.buf, false);
  r.buf.active = false;
  put_buffer(r.buf.base, r.buf.length, dirty);
  free_recvs_.push_back(&r);
  op_over(pair, false);
}

std::string Process::waiting_for() const {
  std::string text;
  char line[200];
  const Scenario& s = *shared_.scenario;
  for (uint32_t i = 0; i < s.pairs.size(); ++i) {
    const PairPlan& p = s.pairs[i];
    if (p.src == id_ && !shared_.send_over[i]) {
      std::snprintf(line, sizeof line, " send of message %u to %u (%u bytes)", i, p.dst, p.length);
      text += line;
    }
    if (p.dst == id_ && !shared_.recv_over[i]) {
      std::snprintf(line, sizeof line, " receive %u from %u (%u bytes)", i, p.src, p.length);
      text += line;
    }
    if (text.size() > 160) break;
  }
  return text;
}

}  // namespace bfo::sim
