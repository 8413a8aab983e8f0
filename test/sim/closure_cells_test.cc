// SPDX-License-Identifier: BSD-3-Clause
//
// closure_cells_test.cc: every Go and Ignore cell of both tables is changed into every other kind
// (cell_changes.h), and something must notice: a rule of the tables (table_rules.h), the closure, or the
// simulator (test/stack/cell_catches.txt, which test/stack/cells replays). What nothing notices is listed in
// cell_mutations.txt with the reason why it is harmless, or why the cell cannot be reached; a change that is
// listed there and noticed, or neither, fails the test.
//
// The small models run here; BFO_CLOSURE=cells (make soak) runs the large ones on what the small ones let
// pass and the simulator did not catch. bfo-time-limit: 900
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/sim/cell_changes.h"
#include "test/sim/closure_dance.h"
#include "test/sim/closure_search.h"
#include "test/sim/table_rules.h"

namespace bfo::closure {
namespace {

/// A model, and which cells the unchanged tables use in it: a change elsewhere cannot show there.
struct Config {
  Mode mode;
  int deaths, rails, ranges;
  Extra extra;
  uint64_t states = 0;
  decltype(Dance::send_used) send = {};
  decltype(Dance::recv_used) recv = {};
};
constexpr Mode kModes[] = {Mode::kGet, Mode::kCopy, Mode::kPut};
constexpr uint64_t kLimit = 4'000'000;
constexpr uint64_t kEnough = 1'500'000;  ///< states spent on one change, more only if it was not reached

std::vector<Config> small_models() {
  std::vector<Config> v;
  for (Mode m : kModes) v.push_back({m, 1, 1, 1, {1, true}});
  for (Mode m : kModes) v.push_back({m, 1, 2, 1, {0, true}});
  return v;
}
std::vector<Config> large_models() {
  std::vector<Config> v;
  for (Mode m : {Mode::kGet, Mode::kCopy}) v.push_back({m, 1, 2, 2, {0, true}});
  for (Mode m : kModes) v.push_back({m, 2, 2, 1, {1, true}});
  v.push_back({Mode::kGet, 2, 3, 2, {0, true}});
  v.push_back({Mode::kPut, 1, 2, 2, {0, true}});
  return v;
}

/// On two processors.
template <class Work>
void share(size_t n, Work&& work) {
  std::atomic<size_t> next{0};
  const auto some = [&] {
    for (size_t i = next++; i < n; i = next++) work(i);
  };
  std::thread other(some);
  some();
  other.join();
}

/// The unchanged tables: every property must hold.
void measure(std::vector<Config>& models) {
  std::vector<Report> reports(models.size());
  share(models.size(), [&](size_t i) {
    Config& s = models[models.size() - 1 - i];  // the longest first
    auto d =
        std::make_unique<Dance>(s.mode, Without::kNothing, Tables{}, s.deaths, s.rails, s.ranges, s.extra);
    reports[i] = search(*d, kLimit);
    s.states = reports[i].states;
    std::memcpy(s.send, d->send_used, sizeof s.send);
    std::memcpy(s.recv, d->recv_used, sizeof s.recv);
  });
  for (const Report& r : reports) {
    EXPECT_EQ(r.failure, "");
    EXPECT_TRUE(r.complete);
  }
}

struct Mutation {
  cells::Change change;
  bool reached = false;
  bool by_rule = false;
  bool by_small = false;
  bool by_large = false;
};

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all;
  for (cells::Change& c : cells::all_changes()) {
    Mutation m;
    m.by_rule = !(core::broken_rules<core::SendRules>(c.tables.send) +
                  core::broken_rules<core::RecvRules>(c.tables.recv) +
                  core::broken_wait(c.tables.send, c.tables.recv))
                     .empty();
    m.change = std::move(c);
    all.push_back(std::move(m));
  }
  return all;
}

/// Does a model notice? Each stops at its first counter-example.
bool noticed(const std::vector<Config>& models, Mutation& m) {
  uint64_t spent = 0;
  const cells::Change& c = m.change;
  for (const Config& s : models) {
    if ((c.recv ? s.recv[c.phase][c.event] : s.send[c.phase][c.event]) == 0) continue;
    if (m.reached && spent + s.states > kEnough) continue;
    m.reached = true;
    spent += s.states;
    Dance d(s.mode, Without::kNothing, c.tables, s.deaths, s.rails, s.ranges, s.extra);
    if (!search(d, kLimit).failure.empty()) return true;
  }
  return false;
}

/// A file of the tests: change and what is said about it.
std::map<std::string, std::string> listed(const char* file) {
  const char* const top = std::getenv("BFO_SRCDIR");
  std::map<std::string, std::string> out;
  std::string error;
  EXPECT_TRUE(cells::read_list(std::string(top ? top : ".") + "/test/" + file, out, error)) << error;
  return out;
}

TEST(ClosureCells, EveryChangeIsNoticedOrListed) {
  const char* const env = std::getenv("BFO_CLOSURE");
  const bool large = env && std::string(env) == "cells";
  std::vector<Mutation> all = all_mutations();
  std::vector<Config> models = small_models();
  measure(models);
  share(all.size(), [&](size_t i) { all[i].by_small = noticed(models, all[i]); });
  const auto catches = listed("stack/cell_catches.txt");
  const auto survivors = listed("sim/cell_mutations.txt");
  if (large) {
    models = large_models();
    measure(models);
    share(all.size(), [&](size_t i) {
      const auto c = catches.find(all[i].change.name);
      const bool wanted = c == catches.end() || c->second == "large";
      if (wanted && !all[i].by_small) all[i].by_large = noticed(models, all[i]);
    });
  }
  size_t rules = 0, small = 0, simulator = 0, by_large = 0, harmless = 0, unreachable = 0, known = 0;
  for (const Mutation& m : all) {
    const std::string& name = m.change.name;
    const auto c = catches.find(name);
    const auto s = survivors.find(name);
    const bool caught = c != catches.end();
    const bool survives = s != survivors.end();
    known += caught + survives;
    rules += m.by_rule;
    small += m.by_small;
    by_large += caught && c->second == "large";
    simulator += caught && c->second != "large";
    EXPECT_NE(m.by_rule || m.by_small || caught, survives)
        << name << (survives ? " is listed as harmless and noticed" : " is neither noticed nor listed");
    if (survives) {
      ++(s->second.rfind("unreachable: ", 0) == 0 ? unreachable : harmless);
      EXPECT_GE(s->second.size(), 20u) << "not a reason: " << name;
    }
    if (large && (survives || (caught && c->second == "large"))) {
      EXPECT_EQ(m.by_large, !survives) << name << ": the lists are wrong about the large models";
    }
  }
  EXPECT_EQ(known, catches.size() + survivors.size()) << "a list names a change that does not exist";
  std::printf(
      "%zu changes of cells, %zu caught: %zu break a rule of the tables, %zu are noticed by the small "
      "models, "
      "%zu by the simulator (cells), %zu only by the large models (make soak); of the rest %zu are "
      "harmless, %zu of cells that cannot be reached\n",
      all.size(), all.size() - harmless - unreachable, rules, small, simulator, by_large, harmless,
      unreachable);
}

}  // namespace
}  // namespace bfo::closure
