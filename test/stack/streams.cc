// SPDX-License-Identifier: BSD-3-Clause
//
// streams.cc: see streams.h.
#include "test/stack/streams.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>

#include "test/stack/world.h"

namespace bfo::stack {

namespace {

/// Message `number` of a stream has the same length at both ends: the logarithm is spread evenly.
uint32_t length_of(const Stream& x, uint64_t number) {
  if (x.least == 0) return x.length;
  const double part = static_cast<double>(sim::mix(number + 1) >> 11) * 0x1p-53;
  const double times = std::pow(static_cast<double>(x.length) / x.least, part);
  return std::min(x.length, static_cast<uint32_t>(x.least * times));
}

void receive(StreamCounts& c, uint64_t number) {
  ++c.received;
  c.early.insert(number);
  while (c.early.erase(c.in_order) != 0) ++c.in_order;
}

}  // namespace

Streams::Streams(World& world, uint32_t process) : world_(world), process_(process) {
  const std::vector<Stream>& all = world.scenario.streams;
  for (uint32_t i = 0; i < all.size(); ++i) {
    for (const bool receives : {true, false}) {
      if ((receives ? all[i].dst : all[i].src) != process) continue;
      stride_ = std::max<size_t>(stride_, all[i].length);
      for (uint32_t n = 0; n < all[i].window; ++n) {
        Slot& s = slots_.emplace_back();
        s.stream = i;
        s.receives = receives;
      }
    }
  }
  size_ = std::max<size_t>(slots_.size(), 1) * stride_;
  void* const m =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) {
    world.ctx.fail("no %zu bytes of addresses for the streams", size_);
    return;
  }
  memory_ = static_cast<uint8_t*>(m);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Buffer b;
    b.base = memory_ + i * stride_;
    b.length = all[slots_[i].stream].length;
    b.pair = kFirst + slots_[i].stream;
    slots_[i].send.buf = slots_[i].recv.buf = b;
    idle_.push_back(&slots_[i]);
  }
}

Streams::~Streams() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

bool Streams::closed() const {
  return world_.now() - world_.start_ns() >= world_.scenario.streams_ns;
}

/// When the time is over, each side makes up for what the other one has begun.
bool Streams::wanted(const Slot& s) const {
  const StreamCounts& c = world_.streams[s.stream];
  if (s.receives) return !closed() || c.posted < c.sent;
  const Stream& x = world_.scenario.streams[s.stream];
  if (world_.now() - world_.start_ns() < x.from_ns) return false;
  const bool begun = !x.batch || c.sent % x.window != 0 || c.sent == c.received;
  return begun && c.sent - (x.ordered ? c.in_order : c.received) < x.window &&
         (!closed() || c.sent < c.posted);
}

bool Streams::over() const {
  if (!closed() || open_ != 0) return false;
  for (const Slot& s : slots_)
    if (world_.streams[s.stream].sent != world_.streams[s.stream].posted) return false;
  return true;
}

void Streams::run(Engine& engine, EngineComm* comm) {
  // A request may end as it is posted, and its slot is idle again then.
  size_t left = idle_.size();
  for (size_t i = 0; left > 0 && i < idle_.size() && !world_.ctx.failed; --left) {
    Slot* const s = idle_[i];
    if (!wanted(*s)) {
      ++i;
      continue;
    }
    idle_.erase(idle_.begin() + static_cast<ptrdiff_t>(i));
    post(*s, engine, comm);
  }
}

void Streams::post(Slot& s, Engine& engine, EngineComm* comm) {
  const Stream& x = world_.scenario.streams[s.stream];
  StreamCounts& c = world_.streams[s.stream];
  ++open_;
  Buffer& b = s.receives ? s.recv.buf : s.send.buf;
  b.active = true;
  ++b.use;
  s.landed = 0;
  s.number = s.receives ? c.posted : c.sent;
  s.length = length_of(x, s.number);
  b.length = s.length;
  if (s.receives) {
    ++c.posted;
    xfer::RecvArgs<StackPort> args;
    args.comm = comm;
    args.src = world_.book.rank(0, x.src);
    args.tag = static_cast<int32_t>(s.stream);
    args.capacity = s.length;
    return engine.irecv(&s.recv, args);
  }
  ++c.sent;
  ++world_.result.messages;
  xfer::SendArgs<StackPort> args;
  args.comm = comm;
  args.dst = world_.book.rank(0, x.dst);
  args.tag = static_cast<int32_t>(s.stream);
  args.length = s.length;
  engine.isend(&s.send, args);
}

void Streams::count(Slot& s, uint64_t n) {
  n = std::min(n, s.length - s.landed);
  s.landed += n;
  bytes_ += n;
}

Streams::Slot& Streams::slot_of(const Buffer& b) {
  return slots_[static_cast<size_t>(b.base - memory_) / stride_];
}

void Streams::landed(uint64_t address, uint64_t n) {
  const auto offset = static_cast<size_t>(address - reinterpret_cast<uint64_t>(memory_));
  if (offset < size_ && slots_[offset / stride_].receives) count(slots_[offset / stride_], n);
}

void Streams::done(Slot& s, Buffer& b, Outcome outcome) {
  if (outcome != Outcome::kOk)
    return world_.ctx.fail("P6: a %s of stream %u ended with \"%s\"", s.receives ? "receive" : "send",
                           s.stream, to_string(outcome));
  if (!b.active) return world_.ctx.fail("P1: a request of stream %u ended twice", s.stream);
  if (b.rdma_out != 0)
    return world_.ctx.fail("P2: a request of stream %u ended with own RDMA under way", s.stream);
  b.active = false;
  --open_;
  idle_.push_back(&s);
}

void Streams::finish(SendRequest& r, Outcome outcome) {
  done(slot_of(r.buf), r.buf, outcome);
}

void Streams::finish(RecvRequest& r, const xfer::RecvStatus& status) {
  Slot& s = slot_of(r.buf);
  const Stream& x = world_.scenario.streams[s.stream];
  if (status.outcome == Outcome::kOk && status.length != s.length)
    return world_.ctx.fail("P1: a message of stream %u has %llu bytes", s.stream,
                           static_cast<unsigned long long>(status.length));
  count(s, s.length);
  receive(world_.streams[s.stream], s.number);
  done(s, r.buf, status.outcome);
  if (!world_.ctx.failed) world_.wake(x.src);
}

}  // namespace bfo::stack
