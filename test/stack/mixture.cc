// SPDX-License-Identifier: BSD-3-Clause
//
// mixture.cc: see mixture.h. Scenarios of cells, and their runs.
#include "test/stack/mixture.h"

#include <algorithm>

#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLearnNs = 100 * kMs;  // of traffic, after which a rail is known
constexpr uint64_t kPieces = 10;          // or that many pieces
constexpr uint64_t kFirstPiece = 64 * kKiB;
constexpr uint64_t kLongPiece = kMiB;
constexpr uint64_t kLongRead = 16 * kMiB;  // over one rail alone
constexpr uint64_t kBackNs = kSecond;      // until a rail that is good again carries its part
constexpr uint64_t kChangeNs = 300 * kMs;  // when a rail changes
constexpr uint64_t kRampNs = kSecond;
constexpr uint64_t kWaves = 6;  // halves

/// One interval, from the start of the run on.
struct Interval {
  uint64_t from;
  uint64_t to;
  bool slow;   // the odd rail is
  bool ramps;  // .. or becomes so, now and then: only the best rail counts
};

uint64_t ns_of(uint64_t bytes, uint64_t rate) {
  return static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate));
}

/// Long enough for some hundred short messages, for a probe now and then, and for some long messages.
uint64_t length_of(const Cell& c, uint64_t rate) {
  if (c.size < 64 * kKiB) return 100 * kMs;
  if (c.size < 256 * kKiB) return 400 * kMs;
  return std::max(kSecond, 8 * ns_of(c.size, rate));
}

void add_streams(const Cell& c, Scenario& s) {
  const auto length = static_cast<uint32_t>(c.size);
  const auto add = [&](uint32_t src, uint32_t dst) {
    s.streams.push_back(
        Stream{src, dst, length, c.window, c.batch, 0, c.ordered, static_cast<uint32_t>(c.least)});
  };
  switch (c.pattern) {
    case Pattern::kOne:
      return add(0, 1);
    case Pattern::kBoth:
      add(0, 1);
      add(1, 0);
      // Out of step: streams that begin together would never wait for each other over one rail alone.
      s.streams.back().from_ns = kLearnNs / 16 + ns_of(c.size, kSecond) * 3 / 8;
      return;
    case Pattern::kRing:
      for (uint32_t p = 0; p < 4; ++p) add(p, (p + 1) % 4);
      return;
    case Pattern::kAll:
    case Pattern::kCrowd:
      for (uint32_t p = 0; p < s.machine.procs; ++p)
        for (uint32_t q = 0; q < s.machine.procs; ++q)
          if (p != q) add(p, q);
      return;
    case Pattern::kFan:
      for (uint32_t p = 1; p < s.machine.procs; ++p) add(0, p);
      return;
  }
}

/// What a run has moved by a moment.
struct Sample {
  uint64_t landed = 0;
  uint64_t carried[kMaxStackRails] = {};
};

struct Sampler {
  World& world;
  std::vector<Sample> samples;

  void take() {
    Sample s;
    for (const auto& p : world.processes) s.landed += p->streams()->bytes();
    for (const auto& d : world.fabric.devices) s.carried[d->rail] += world.fabric.bytes_out(*d);
    samples.push_back(s);
  }
  void at(uint64_t t) {
    world.time.at(
        world.start_ns() + t, [](void* x, uint64_t, void*) { static_cast<Sampler*>(x)->take(); }, this);
  }
};

double per_second(uint64_t bytes, uint64_t ns) {
  return static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
}

/// Two samples for each interval, in their order.
std::vector<Sample> run(Scenario& s, const std::vector<Interval>& all, uint64_t drain_ns, Result* result) {
  s.streams_ns = all.back().to + kMs;
  // What is under way then ends too, unless that takes long.
  if (drain_ns > 2 * kSecond) s.cut_ns = s.streams_ns;
  settle(s);
  World world(s);
  Sampler sampler{world, {}};
  sampler.at(0);
  for (const Interval& i : all) {
    sampler.at(i.from);
    sampler.at(i.to);
  }
  *result = world.run();
  return sampler.samples;
}

std::vector<Interval> intervals_of(const Cell& c, uint64_t good, uint64_t slow) {
  const uint64_t length = length_of(c, good);
  const uint64_t learn = std::max(kLearnNs, kPieces * ns_of(kFirstPiece, slow));
  // What is under way when a rail becomes slow was cut for a good one.
  const uint64_t change = std::max(kLearnNs, kPieces * ns_of(std::min(c.size, kLongPiece), slow));
  const uint64_t t = kChangeNs;
  switch (c.when) {
    case When::kStart:
    case When::kLatency:
      return {{learn, learn + length, true, false}};
    case When::kStep:
      return {{kLearnNs, t, false, false}, {t + change, t + change + length, true, false}};
    case When::kRamp:
      return {{kLearnNs, t, false, false},
              {t, t + kRampNs, true, true},
              {t + kRampNs + change, t + kRampNs + change + length, true, false}};
    case When::kSecond:
      return {{kLearnNs, t, false, false},
              {t + kSecond + kBackNs, t + kSecond + kBackNs + length, false, false}};
    case When::kWave:
      return {{kLearnNs, kLearnNs + std::max(length, kWaves * c.wave_ns), true, true}};
  }
  return {};
}

uint32_t processes_of(Pattern p) {
  switch (p) {
    case Pattern::kOne:
    case Pattern::kBoth:
      return 2;
    case Pattern::kRing:
    case Pattern::kAll:
      return 4;
    case Pattern::kCrowd:
    case Pattern::kFan:
      return 8;
  }
  return 0;
}

}  // namespace

/// Both ends of a rail may have pieces to measure: who reads, and who sends what cannot be read yet.
uint64_t ends_of(const Cell& c) {
  switch (c.pattern) {
    case Pattern::kOne:
    case Pattern::kBoth:
      return 2;
    case Pattern::kRing:
      return 8;
    case Pattern::kAll:
      return 12;
    case Pattern::kCrowd:
      return 56;
    case Pattern::kFan:
      return 14;
  }
  return 0;
}

/// Is the odd rail called degraded as often as it should be?
bool word_kept(const Cell& c, const Figures& f) {
  if (f.losses != 0) return false;
  // A port that is as slow as it says moves what it should.
  const bool never =
      c.when == When::kLatency || (c.ratio != 0 && c.ratio <= 3) || c.weights == xfer::Weights::kNominal;
  if (never) return f.degraded + f.recovered == 0;
  const bool lasts = c.when == When::kStart || c.when == When::kStep || c.when == When::kRamp;
  if (f.degraded > ends_of(c) || f.recovered > (lasts ? 0 : ends_of(c))) return false;
  // What is short, or looked at seldom, proves too little; and a rail that would only delay a message is
  // tried too seldom in such a run.
  const bool proves = c.size >= 256 * kKiB && c.cpu == Cpu::kFree && c.protocol != Protocol::kEager &&
                      c.ratio <= 10 && c.window >= 4 && c.where == Where::kRail;
  return !lasts || !proves || f.degraded != 0;
}

Scenario scenario_of(const Cell& c, uint64_t rate) {
  Scenario s;
  s.config = "mixture";
  Machine& m = s.machine;
  m.procs = processes_of(c.pattern);
  m.rails = c.rails;
  m.use_get = c.protocol == Protocol::kRead;
  m.use_put = c.protocol == Protocol::kPut;
  m.eager_limit = 12 * kKiB;
  m.max_send = 64 * kKiB;
  m.degraded_ns = 200 * kMs;  // a fifth of the product's: runs are short
  m.rdma_frag = kMiB;
  m.pipeline = 2;
  m.send_pipeline = 3;
  m.weight = static_cast<uint32_t>(rate / 125'000);
  m.send_depth = 128;
  m.receive_depth = 512;
  m.receive_first = 32;
  m.signal_interval = 64;
  m.cq_entries = 8192;
  m.timeout = 14;
  m.retry_count = 7;
  m.polls = 8;  // the clock is looked at every fourth time
  m.processor.handled_ns = c.cpu == Cpu::kBusy ? 60 * kUs : 200;
  m.processor.copy_rate = 8'000'000'000;
  if (c.cpu == Cpu::kAway) m.processor.poll_ns = 2 * kMs;
  m.fabric.jitter_ns = 0;
  m.connect_wait_ns = 500 * kMs;
  m.fabric.no_bytes = true;
  s.program.comms.push_back(sim::CommPlan{0, 0, -1, 0});
  s.program.procs = m.procs;
  add_streams(c, s);
  return s;
}

bool Mixtures::sums(const Cell& c) const {
  if (c.when == When::kWave || c.cpu != Cpu::kFree) return false;
  const uint64_t round_trip_ns = 4 * slow(c).latency_ns;  // out of a port and in at the other, there and back
  if (ns_of(c.size * c.window, rate_ * (c.rails - 1)) < 10 * round_trip_ns) return false;
  return c.size >= kMiB && c.window >= (c.batch ? 64u : 4u);
}

/// The rail that differs, when it does.
Mixtures::Rail Mixtures::slow(const Cell& c) const {
  if (c.when == When::kLatency) return Rail{rate_, (c.ratio - 1) * 10 * kUs};
  return Rail{rate_ / (c.ratio == 0 ? 10 : c.ratio), 0};
}

Mixtures::Rail Mixtures::rail(const Cell& c, uint32_t number) const {
  if (number == c.odd_rail()) return slow(c);
  return Rail{c.ratio == 0 ? rate_ / (number + 1) : rate_, 0};
}

Course Mixtures::course(const Cell& c, uint32_t number) const {
  const Rail r = rail(c, number);
  const Pace pace{r.rate, r.latency_ns, 0};
  if (number != c.odd_rail() || c.when == When::kStart || c.when == When::kLatency) return Course(pace);
  const Pace good{rate_, 0, 0};
  Course x(good);
  switch (c.when) {
    case When::kRamp:
      return x.then(Change{Change::Shape::kRamp, kChangeNs, kRampNs, pace});
    case When::kWave:
      return x.then(Change{Change::Shape::kSquare, 0, c.wave_ns, pace});
    case When::kSecond:
      return x.then(Change{Change::Shape::kStep, kChangeNs, 0, pace})
          .then(Change{Change::Shape::kStep, kChangeNs + kSecond, 0, good});
    default:
      return x.then(Change{Change::Shape::kStep, kChangeNs, 0, pace});
  }
}

/// The port of a process: on the odd rail not all need be slow.
PortRate Mixtures::port(const Cell& c, uint32_t process, uint32_t number) const {
  const Course good(Pace{rate_, 0, 0});
  const Course x = course(c, number);
  if (c.where == Where::kRail || number != c.odd_rail()) return PortRate{process, number, x, x};
  return PortRate{process, number, process == 0 ? x : good,
                  process == 0 && c.where == Where::kPort ? x : good};
}

double Mixtures::alone(const Cell& c, const Rail& r, std::string* failure) {
  Cell one = c;
  one.rails = 1;
  one.odd = Cell::kLast;
  one.ratio = 1;
  one.when = When::kStart;
  one.weights = xfer::Weights::kMeasured;
  if (r.rate == rate_ && r.latency_ns == 0) one.where = Where::kRail;
  const std::string key = name_of(one) + " " + std::to_string(r.rate) + " " + std::to_string(r.latency_ns);
  if (const auto found = alone_.find(key); found != alone_.end()) return found->second;
  Scenario s = scenario_of(one, rate_);
  const Course slow(Pace{r.rate, r.latency_ns, 0});
  const Course good(Pace{rate_, 0, 0});
  for (uint32_t p = 0; p < s.machine.procs; ++p) {
    const bool out = one.where == Where::kRail || p == 0;
    const bool in = one.where == Where::kRail || (p == 0 && one.where == Where::kPort);
    s.machine.rates.push_back(PortRate{p, 0, out ? slow : good, in ? slow : good});
  }
  const uint64_t granule = ns_of(std::min(c.size, kLongRead), r.rate);
  const uint64_t from = kLearnNs + granule;
  const std::vector<Interval> all = {
      {from, from + std::max(length_of(c, r.rate), 200 * granule), false, false}};
  Result result;
  const std::vector<Sample> samples = run(s, all, ns_of(c.size * c.window, r.rate), &result);
  if (result.failed) {
    *failure = "alone: " + result.violation;
    return 1;
  }
  return alone_[key] = per_second(samples[2].landed - samples[1].landed, all[0].to - all[0].from);
}

/// Of the odd rail, which moves `last` alone, beside others that move `goods`. Where it is slow one way
/// only, what comes the other way waits over that rail alone, and not beside others: each way counts as if it
/// were alone.
double Mixtures::fair_part(const Cell& c, double last, double goods, bool is_slow, std::string* failure) {
  if (c.where != Where::kOut || c.pattern != Pattern::kBoth) return last / (goods + last);
  Cell one = c;
  one.pattern = Pattern::kOne;
  one.where = Where::kRail;
  const double good = alone(one, Rail{rate_, 0}, failure);
  last = good + (is_slow ? alone(one, slow(c), failure) : good);
  goods = 0;
  for (uint32_t r = 0; r < c.rails; ++r)
    if (r != c.odd_rail()) goods += 2 * alone(one, rail(c, r), failure);
  return last / (goods + last);
}

Figures Mixtures::measure(const Cell& c) {
  Figures f;
  Scenario s = scenario_of(c, rate_);
  s.machine.weights = c.weights;
  double goods = 0;  // all rails but the odd one
  for (uint32_t r = 0; r < c.rails; ++r) {
    if (c.weights == xfer::Weights::kNominal)
      s.machine.shares.push_back(static_cast<uint32_t>(rail(c, r).rate / 125'000));
    if (c.weights == xfer::Weights::kGiven)
      s.machine.shares.push_back(static_cast<uint32_t>(rail(c, r).rate / slow(c).rate));
    for (uint32_t p = 0; p < s.machine.procs; ++p) s.machine.rates.push_back(port(c, p, r));
    if (r == c.odd_rail()) continue;
    const double a = alone(c, rail(c, r), &f.failure);
    goods += a;
    f.best = std::max(f.best, a);
  }
  const double good = alone(c, Rail{rate_, 0}, &f.failure);
  const double bad = alone(c, slow(c), &f.failure);
  if (!f.failure.empty()) return f;
  const std::vector<Interval> all = intervals_of(c, rate_, slow(c).rate);
  Result result;
  const std::vector<Sample> samples =
      run(s, all, ns_of(c.size * c.window * s.streams.size(), slow(c).rate), &result);
  f.words = result.words;
  f.losses = result.failovers;
  f.degraded = result.degraded;
  f.recovered = result.recovered;
  f.word_kept = word_kept(c, f);
  if (result.failed) {
    f.failure = result.violation;
    return f;
  }
  f.of_best = f.of_sum = 1e9;
  const double best = f.best;
  for (size_t i = 0; i < all.size(); ++i) {
    const Sample& a = samples[1 + 2 * i];
    const Sample& b = samples[2 + 2 * i];
    const double last = all[i].slow ? bad : good;
    const double goodput = per_second(b.landed - a.landed, all[i].to - all[i].from);
    const double of_best = goodput / (all[i].ramps ? best : std::max(best, last));
    if (of_best < f.of_best) {
      f.of_best = of_best;
      f.goodput = goodput;
      f.sum = goods + last;
      f.best = all[i].ramps ? best : std::max(best, last);
    }
    if (all[i].ramps) continue;
    f.of_sum = std::min(f.of_sum, goodput / (goods + last));
    uint64_t carried = 0;
    for (uint32_t r = 0; r < c.rails; ++r) carried += b.carried[r] - a.carried[r];
    const double part = static_cast<double>(b.carried[c.odd_rail()] - a.carried[c.odd_rail()]) /
                        static_cast<double>(std::max<uint64_t>(carried, 1));
    const double fair = fair_part(c, last, goods, all[i].slow, &f.failure);
    if (f.fair == 0 || part / fair > f.share / f.fair) {
      f.share = part;
      f.fair = fair;
    }
  }
  if (f.of_sum == 1e9) f.of_sum = 0;  // it is steady nowhere
  f.whole = per_second(samples.back().landed - samples[0].landed, all.back().to) / best;
  f.best_kept = f.of_best >= kOfBest;
  f.sum_kept = !sums(c) || f.of_sum >= kOfSum;
  f.share_kept = f.share <= kOfFair * f.fair;
  return f;
}

}  // namespace bfo::stack
