// SPDX-License-Identifier: BSD-3-Clause
//
// rates.cc: see rates.h. The courses and the wires; carriage.cc has what the fabric does with them.
#include "test/stack/rates.h"

#include <algorithm>

namespace bfo::stack {
namespace {

constexpr uint64_t kPerSecond = 1'000'000'000;
constexpr uint64_t kLongestNs = 1'000'000;  // of a slice
constexpr uint64_t kLeastSlice = 64;

/// The time that `bytes` take. At most about 2^34 of them.
uint64_t time_of(uint64_t bytes, uint64_t rate) {
  return rate == 0 ? 0 : bytes * kPerSecond / rate;
}

uint64_t between(uint64_t a, uint64_t b, uint64_t part, uint64_t whole) {
  const double x = static_cast<double>(part) / static_cast<double>(whole);
  return static_cast<uint64_t>(static_cast<double>(a) * (1 - x) + static_cast<double>(b) * x);
}

/// What `c` makes of `before` by the time t.
Pace changed(const Pace& before, const Change& c, uint64_t t) {
  const uint64_t past = t - c.t;
  switch (c.shape) {
    case Change::Shape::kStep:
      return c.to;
    case Change::Shape::kSquare:
      return c.ns != 0 && past / c.ns % 2 != 0 ? before : c.to;
    case Change::Shape::kRamp:
      break;
  }
  if (past >= c.ns || before.rate == 0 || c.to.rate == 0) return c.to;
  return Pace{between(before.rate, c.to.rate, past, c.ns),
              between(before.latency_ns, c.to.latency_ns, past, c.ns),
              static_cast<unsigned>(between(before.loss, c.to.loss, past, c.ns))};
}

}  // namespace

Pace Course::at(uint64_t t) const {
  Pace pace = first_;
  for (size_t i = 0; i < changes_.size() && changes_[i].t <= t; ++i) {
    const bool last = i + 1 == changes_.size() || changes_[i + 1].t > t;
    pace = changed(pace, changes_[i], last ? t : changes_[i + 1].t);
  }
  return pace;
}

// ---- wires

Wires::Port& Wires::port(size_t number) {
  while (ports_.size() <= number) ports_.emplace_back();
  return ports_[number];
}

void Wires::set(size_t number, const Course& out, const Course& in) {
  Port& p = port(number);
  p.out = out;
  p.in = in;
}

Wires::Slice* Wires::make_slice() {
  if (free_.empty()) {
    slices_.push_back(std::make_unique<Slice>());
    return slices_.back().get();
  }
  Slice* const s = free_.back();
  free_.pop_back();
  return s;
}

void Wires::send(size_t from, size_t to, uint32_t flow, uint64_t bytes, void* packet) {
  port(to);
  Port& p = port(from);
  p.flows[flow].loads.push_back(Load{packet, to, bytes + kHeader, bytes, loads_++});
  queue(from, p, flow);
}

/// The flow has something to send: it gets its turn, if it does not wait already.
void Wires::queue(size_t number, Port& p, uint32_t flow) {
  Flow& f = p.flows[flow];
  if (f.waits || f.loads.empty() || (p.busy && p.flow == flow && !p.unsent)) return;
  f.waits = true;
  auto place = p.turns.end();
  const auto oldest = [&p](uint32_t each) {
    const std::deque<Load>& loads = p.flows[each].loads;
    return loads.empty() ? 0 : loads.front().number;
  };
  if (in_order_)
    place = std::find_if(p.turns.begin(), place, [&](uint32_t each) { return oldest(each) > oldest(flow); });
  p.turns.insert(place, flow);
  if (!p.busy) next(number);
}

bool Wires::full(const Port& p) const {
  const uint64_t now = time_.now();
  return p.in_free_ns > now && p.in_free_ns - now > time_of(kQueue * kSlice, p.in.at(since_start()).rate);
}

/// True: the flow waits for credits of the port that this load goes to.
bool Wires::waits(size_t number, uint32_t flow, const Load& load) {
  Port& to = ports_[load.to];
  if (!full(to)) return false;
  to.waiting.emplace_back(number, flow);
  return true;
}

/// The side is idle: the next slice begins to leave.
void Wires::next(size_t number) {
  Port& p = ports_[number];
  while (!p.turns.empty()) {
    const uint32_t flow = p.turns.front();
    p.turns.pop_front();
    Flow& f = p.flows[flow];
    f.waits = false;
    while (!f.loads.empty() && !user_.leaves(f.loads.front().packet, flow)) {
      user_.dropped(f.loads.front().packet);
      f.loads.pop_front();
    }
    if (f.loads.empty()) continue;
    Load& load = f.loads.front();
    if (waits(number, flow, load)) {
      f.waits = true;
      continue;
    }
    load.touched = true;
    const uint64_t rate = p.out.at(since_start()).rate;
    p.flow = flow;
    p.slice = rate == 0 ? load.left : std::min(load.left, kSlice);
    if (time_of(p.slice, rate) > kLongestNs)
      p.slice = std::min(load.left, std::max(kLeastSlice, rate / (kPerSecond / kLongestNs)));
    p.slice_ns = time_of(p.slice, rate);
    p.busy = true;
    p.unsent = false;
    time_.in(
        p.slice_ns, [](void* w, uint64_t n, void*) { static_cast<Wires*>(w)->left(static_cast<size_t>(n)); },
        this, number);
    return;
  }
}

/// A slice has left.
void Wires::left(size_t number) {
  Port& p = ports_[number];
  p.busy = false;
  const uint32_t flow = p.flow;
  Flow& f = p.flows[flow];
  if (p.unsent) {
    p.unsent = false;
    return next(number);
  }
  Load& load = f.loads.front();
  const Pace out = p.out.at(since_start());
  const Pace in = ports_[load.to].in.at(since_start());
  const uint64_t latency = out.latency_ns + in.latency_ns;
  const unsigned loss = out.loss + in.loss;
  if (loss != 0 && dice_.below(1000) < loss) {
    // Its receiver sees the gap when something follows, and asks for it: it leaves again after a round trip.
    const bool seen = load.left > p.slice || f.loads.size() > 1;
    if (!seen || ++f.misses > kMisses) {
      user_.dropped(load.packet);
      f.loads.pop_front();
      f.misses = 0;
      queue(number, p, flow);
    } else {
      f.waits = true;
      time_.in(
          2 * latency + 1,
          [](void* w, uint64_t a, void*) {
            Wires& wires = *static_cast<Wires*>(w);
            const auto n = static_cast<size_t>(a >> 32);
            wires.ports_[n].flows[static_cast<uint32_t>(a)].waits = false;
            wires.queue(n, wires.ports_[n], static_cast<uint32_t>(a));
          },
          this, uint64_t{number} << 32 | flow);
    }
    if (!p.busy) next(number);
    return;
  }
  f.misses = 0;
  load.left -= p.slice;
  Slice* const s = make_slice();
  const uint64_t payload = std::min(load.payload, p.slice);
  load.payload -= payload;
  p.bytes_out += payload;
  *s = Slice{this, load.left == 0 ? load.packet : nullptr, number, load.to, p.slice, payload, p.slice_ns,
             flow};
  if (load.left == 0) f.loads.pop_front();
  p.lane_ns = std::max(p.lane_ns, time_.now() + latency);
  time_.at(
      p.lane_ns,
      [](void* x, uint64_t, void*) { static_cast<Slice*>(x)->wires->came(static_cast<Slice*>(x)); }, s);
  queue(number, p, flow);
  if (!p.busy) next(number);
}

/// The last bit of a slice is at the incoming side, which took the first one when that came.
void Wires::came(Slice* s) {
  Port& p = ports_[s->to];
  const uint64_t ns = time_of(s->bytes, p.in.at(since_start()).rate);
  p.in_free_ns = std::max(std::max(p.in_free_ns, time_.now() - s->ns) + ns, time_.now());
  if (p.in_free_ns == time_.now()) return end(s);
  time_.at(
      p.in_free_ns,
      [](void* x, uint64_t, void*) { static_cast<Slice*>(x)->wires->end(static_cast<Slice*>(x)); }, s);
}

void Wires::end(Slice* s) {
  const Slice slice = *s;
  free_.push_back(s);
  Port& p = ports_[slice.to];
  p.bytes_in += slice.payload;
  while (!p.waiting.empty() && !full(p)) {
    const auto [number, flow] = p.waiting.front();
    p.waiting.pop_front();
    ports_[number].flows[flow].waits = false;
    queue(number, ports_[number], flow);
  }
  user_.moved(slice.flow, slice.from, slice.to, slice.bytes);
  if (slice.packet != nullptr) user_.arrived(slice.packet, slice.flow);
}

Wires::Flow* Wires::find(size_t number, uint32_t flow) {
  if (number >= ports_.size()) return nullptr;
  const auto found = ports_[number].flows.find(flow);
  return found == ports_[number].flows.end() ? nullptr : &found->second;
}

void Wires::unsend(size_t number, uint32_t flow) {
  Flow* const f = find(number, flow);
  if (f == nullptr) return;
  for (const Load& load : f->loads) user_.dropped(load.packet);
  f->loads.clear();
  Port& p = ports_[number];
  if (p.busy && p.flow == flow) p.unsent = true;
}

const void* Wires::untouched(size_t number, uint32_t flow) const {
  if (number >= ports_.size()) return nullptr;
  const auto found = ports_[number].flows.find(flow);
  if (found == ports_[number].flows.end() || found->second.loads.empty()) return nullptr;
  const Load& load = found->second.loads.front();
  return load.touched ? nullptr : load.packet;
}

}  // namespace bfo::stack
