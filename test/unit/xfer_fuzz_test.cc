// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_fuzz_test.cc: the engine under random traffic while rails die and return. One seed is one run. Checks
// after each run: every message received once, in MPI order, unchanged; every request ended; nothing leaked;
// no buffer written after its receive completed. bfo-time-limit: 300
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "test/sim/sanitized.h"
#include "test/unit/fake_world.h"

namespace bfo::test {
namespace {

struct Plan {
  bool get = false;
  bool put = false;
  bool sendi = true;
  int rails = 2;
  int kills = 3;
  int messages = 40;
  int capacity = 1 << 30;
};

std::vector<uint8_t> payload(size_t n, uint64_t id) {
  std::vector<uint8_t> d(n);
  for (size_t i = 0; i < n; ++i) d[i] = static_cast<uint8_t>((i * 131 + id * 2654435761u) >> 3);
  for (size_t i = 0; i < 8 && i < n; ++i) d[i] = static_cast<uint8_t>(id >> (8 * i));
  return d;
}

class Run {
 public:
  Run(uint64_t seed, const Plan& plan) : rng_(seed), plan_(plan), world_(options(plan)) {}

  void go() {
    world_.late = true;
    for (int i = 0; i < plan_.messages; ++i) add_message(i);
    int kills = plan_.kills;
    int guard = 0;
    while (++guard < 200000) {
      const unsigned dice = rng_() % 100;
      if (dice < 8 && next_send_ < messages_.size()) {
        start_send();
      } else if (dice < 16 && next_recv_ < messages_.size()) {
        start_recv();
      } else if (dice < 17 && kills > 0 && next_send_ > 2) {
        --kills;
        kill();
      } else if (dice < 20) {
        revive();
      } else if (dice < 21) {
        world_.closures();
        world_.run_fences();
      } else if (dice < 30) {
        for (auto& e : world_.engines) e->progress(world_.now += 1'000'000);
      } else {
        step();
      }
      if (next_send_ == messages_.size() && next_recv_ == messages_.size() && world_.flights.empty() &&
          done())
        break;
    }
    revive_all();
    ASSERT_TRUE(world_.run());
    for (int i = 0; i < 3; ++i) {
      for (auto& e : world_.engines) e->progress(world_.now += 5'000'000);
      ASSERT_TRUE(world_.run());
    }
    check();
  }

 private:
  static World::Options options(const Plan& p) {
    World::Options o;
    o.rails = p.rails;
    o.get = p.get;
    o.put = p.put;
    o.sendi = p.sendi;
    o.capacity = p.capacity;
    return o;
  }
  struct Msg {
    int from, to, tag;
    size_t size;
    uint64_t id;
    bool sync;
    SendReq* send = nullptr;
    RecvReq* recv = nullptr;
  };

  void add_message(int i) {
    static const size_t sizes[] = {0, 1, 60, 242, 243, 256, 1000, 1004, 2048, 5000, 9999, 20000, 40000};
    Msg m;
    m.from = static_cast<int>(rng_() % 2);
    m.to = 1 - m.from;
    m.tag = static_cast<int>(rng_() % 2);
    m.size = sizes[rng_() % std::size(sizes)];
    m.id = 1000 + static_cast<uint64_t>(i);
    m.sync = rng_() % 5 == 0;
    messages_.push_back(m);
  }
  void start_send() {
    Msg& m = messages_[next_send_++];
    m.send = world_.isend(m.from, m.to, m.tag, payload(m.size, m.id),
                          m.sync ? xfer::SendMode::kSync : xfer::SendMode::kStandard);
    // the application reuses its buffer as soon as the send completes
    SendReq* const s = m.send;
    auto poison = [s] { std::fill(s->data.begin(), s->data.end(), 0xdd); };
    if (s->done)
      poison();
    else
      s->then = poison;
  }
  void start_recv() {
    Msg& m = messages_[next_recv_++];
    m.recv = world_.irecv(m.to, rng_() % 3 ? m.from : xfer::kAnySource, m.tag, m.size + 64);
    RecvReq* const r = m.recv;
    auto snap = [this, r] { snapshots_[r] = r->data; };
    if (r->done)
      snap();
    else
      r->then = snap;
  }
  void step() {
    if (world_.flights.empty()) return;
    // any rail and direction, but in order within it
    const Flight& f = world_.flights[rng_() % world_.flights.size()];
    const size_t i = world_.first_of(f.from, f.to, f.rail);
    world_.take(i);
  }
  void kill() {
    const int r = static_cast<int>(rng_() % static_cast<unsigned>(plan_.rails));
    unsigned prefix[2] = {static_cast<unsigned>(rng_() % 6), static_cast<unsigned>(rng_() % 6)};
    world_.kill(0, 1, r, [&](const Flight& f) {
      unsigned& left = prefix[f.from];
      if (left == 0) return false;
      --left;
      return true;
    });
  }
  void revive() { world_.revive(0, 1, static_cast<int>(rng_() % static_cast<unsigned>(plan_.rails))); }
  void revive_all() {
    for (int r = 0; r < plan_.rails; ++r) world_.revive(0, 1, r);
  }
  bool done() const {
    for (const Msg& m : messages_)
      if (!m.send->done || !m.recv->done) return false;
    return true;
  }
  void check() {
    for (const Msg& m : messages_) {
      ASSERT_TRUE(m.send && m.send->done) << "send " << m.id << " size " << m.size;
      ASSERT_TRUE(m.recv && m.recv->done) << "recv " << m.id << " size " << m.size;
      EXPECT_EQ(m.send->outcome, Outcome::kOk);
      EXPECT_EQ(m.recv->status.outcome, Outcome::kOk);
      EXPECT_EQ(m.recv->status.length, m.size);
      auto got = m.recv->data;
      EXPECT_EQ(got, snapshots_[m.recv]) << "late write into message " << m.id;
      got.resize(m.size);
      ASSERT_EQ(got, payload(m.size, m.id)) << "message " << m.id << " size " << m.size;
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(world_.engines[i]->unfinished(), 0u);
      EXPECT_EQ(world_.ports[i]->frags_, 0);
      EXPECT_EQ(world_.ports[i]->registrations_, 0);
      EXPECT_EQ(world_.engines[i]->counters().malformed, 0u);
    }
  }

  std::mt19937_64 rng_;
  Plan plan_;
  World world_;
  std::vector<Msg> messages_;
  std::map<RecvReq*, std::vector<uint8_t>> snapshots_;
  size_t next_send_ = 0;
  size_t next_recv_ = 0;
};

void sweep(const Plan& plan, int runs, uint64_t first = 1) {
  const char* const only = std::getenv("BFO_SEED");
  if (only) {
    Run(std::strtoull(only, nullptr, 0), plan).go();
    return;
  }
#ifdef BFO_ADDRESS_SANITIZER
  runs /= 2;  // each takes seven times as long
#endif
  for (int i = 0; i < runs; ++i) {
    SCOPED_TRACE("BFO_SEED=" + std::to_string(first + static_cast<uint64_t>(i)));
    Run(first + static_cast<uint64_t>(i), plan).go();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Fuzz, NoFaults) {
  Plan p;
  p.kills = 0;
  sweep(p, 200);
}
TEST(Fuzz, Copy_RailsDie) {
  sweep({}, 800);
}
TEST(Fuzz, Copy_ManyKills) {
  Plan p;
  p.kills = 12;
  p.rails = 3;
  p.sendi = false;
  sweep(p, 400);
}
TEST(Fuzz, Copy_ScarceResources) {
  Plan p;
  p.capacity = 2;
  p.kills = 4;
  sweep(p, 400);
}
TEST(Fuzz, Get_RailsDie) {
  Plan p;
  p.get = true;
  p.rails = 3;
  p.kills = 5;
  sweep(p, 500);
}
TEST(Fuzz, Put_RailsDie) {
  Plan p;
  p.put = true;
  p.rails = 3;
  p.kills = 5;
  sweep(p, 500);
}
TEST(Fuzz, GetAndPut_ScarceResources) {
  Plan p;
  p.get = p.put = true;
  p.capacity = 2;
  p.kills = 6;
  sweep(p, 500);
}
TEST(Fuzz, Put_OneRail) {
  Plan p;
  p.put = true;
  p.rails = 1;
  p.kills = 6;
  sweep(p, 400);
}
TEST(Fuzz, Get_OneRail) {
  Plan p;
  p.get = true;
  p.rails = 1;
  p.kills = 6;
  sweep(p, 400);
}
TEST(Fuzz, OneRail_DiesAndReturns) {
  Plan p;
  p.rails = 1;
  p.kills = 5;
  sweep(p, 400);
}

}  // namespace
}  // namespace bfo::test
