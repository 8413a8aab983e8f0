// SPDX-License-Identifier: BSD-3-Clause
//
// closure_cells_test.cc: every Go and Ignore cell of both tables is changed into every other kind, and the
// closure must notice: Go becomes Ignore and Bug; Ignore becomes Bug and each Go that the same event has in
// another phase. What is not noticed is listed in cell_mutations.txt with the reason why it is harmless,
// or with what it would take to reach the cell; a
// change that is listed and noticed, or not listed and not noticed, fails the test.
//
// The small models run here; BFO_CLOSURE=cells (make soak) runs the large ones on what the small ones let
// pass, and BFO_CLOSURE=list prints the file's lines. bfo-time-limit: 900
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/sim/closure_dance.h"
#include "test/sim/closure_search.h"

namespace bfo::closure {
namespace {

/// A model, and which cells the unchanged tables use in it: a change elsewhere cannot show there.
struct Config {
  Mode mode;
  int deaths, rails, ranges;
  Extra extra;
  std::uint64_t states = 0;
  decltype(Dance::send_used) send = {};
  decltype(Dance::recv_used) recv = {};
};
constexpr Mode kModes[] = {Mode::kGet, Mode::kCopy, Mode::kPut};
constexpr std::uint64_t kLimit = 4'000'000;
constexpr std::uint64_t kEnough = 1'500'000;  ///< states spent on one change, more only if it was not reached

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
void share(std::size_t n, Work&& work) {
  std::atomic<std::size_t> next{0};
  const auto some = [&] {
    for (std::size_t i = next++; i < n; i = next++) work(i);
  };
  std::thread other(some);
  some();
  other.join();
}

/// The unchanged tables: every property must hold.
void measure(std::vector<Config>& models) {
  std::vector<Report> reports(models.size());
  share(models.size(), [&](std::size_t i) {
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
  std::string name;
  bool recv;
  std::size_t phase, event;
  Tables tables;
  bool reached = false;
  bool by_small = false;
  bool by_large = false;
};

template <class T>
void mutations_of(T Tables::*table, bool recv, const char* const* phases, const char* const* events,
                  std::vector<Mutation>& out) {
  using core::CellKind;
  const Tables plain;
  const T& t = plain.*table;
  const auto add = [&](std::size_t p, std::size_t e, const auto& cell, const std::string& to) {
    Mutation m{};
    m.recv = recv;
    m.phase = p;
    m.event = e;
    m.name = std::string(recv ? "recv " : "send ") + phases[p] + " " + events[e] + " -> " + to;
    (m.tables.*table)[p][e] = cell;
    out.push_back(m);
  };
  for (std::size_t p = 1; p < t.size(); ++p)
    for (std::size_t e = 0; e < t[p].size(); ++e) {
      auto cell = t[p][e];
      if (cell.kind == CellKind::kBug) continue;
      const bool was_go = cell.kind == CellKind::kGo;
      cell.kind = CellKind::kBug;
      add(p, e, cell, "Bug");
      if (was_go) {
        cell.kind = CellKind::kIgnore;
        add(p, e, cell, "Ignore");
        continue;
      }
      for (std::size_t q = 1; q < t.size(); ++q) {
        if (t[q][e].kind != CellKind::kGo) continue;
        bool before = false;
        for (std::size_t k = 1; k < q; ++k)
          before = before || (t[k][e].kind == CellKind::kGo && t[k][e].next == t[q][e].next &&
                              t[k][e].actions == t[q][e].actions);
        if (!before) add(p, e, t[q][e], std::string("Go as in ") + phases[q]);
      }
    }
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all;
  mutations_of(&Tables::send, false, core::kSendPhaseNames, core::kSendEventNames, all);
  mutations_of(&Tables::recv, true, core::kRecvPhaseNames, core::kRecvEventNames, all);
  return all;
}

/// Does a model notice? Each stops at its first counter-example.
bool noticed(const std::vector<Config>& models, Mutation& m) {
  std::uint64_t spent = 0;
  for (const Config& s : models) {
    if ((m.recv ? s.recv[m.phase][m.event] : s.send[m.phase][m.event]) == 0) continue;
    if (m.reached && spent + s.states > kEnough) continue;
    m.reached = true;
    spent += s.states;
    Dance d(s.mode, Without::kNothing, m.tables, s.deaths, s.rails, s.ranges, s.extra);
    if (!search(d, kLimit).failure.empty()) return true;
  }
  return false;
}

struct Listed {
  bool large = false;  ///< "large": noticed, but not by the small models
  std::string reason;
};

std::map<std::string, Listed> listed() {
  const char* const top = std::getenv("BFO_SRCDIR");
  std::ifstream in(std::string(top ? top : ".") + "/test/sim/cell_mutations.txt");
  EXPECT_TRUE(in) << "no test/sim/cell_mutations.txt: set BFO_SRCDIR";
  std::map<std::string, Listed> out;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      ADD_FAILURE() << "no reason: " << line;
      continue;
    }
    Listed l;
    l.reason = line.substr(colon + 2);
    l.large = l.reason == "large";
    EXPECT_GE(l.large ? 20u : l.reason.size(), 20u) << "not a reason: " << line;
    EXPECT_TRUE(out.emplace(line.substr(0, colon), l).second) << "twice: " << line;
  }
  return out;
}

TEST(ClosureCells, EveryChangeIsNoticedOrListed) {
  const char* const env = std::getenv("BFO_CLOSURE");
  const std::string asked = env ? env : "";
  const bool large = asked == "cells" || asked == "list";
  std::vector<Mutation> all = all_mutations();
  std::vector<Config> models = small_models();
  measure(models);
  share(all.size(), [&](std::size_t i) { all[i].by_small = noticed(models, all[i]); });
  if (large) {
    models = large_models();
    measure(models);
    share(all.size(), [&](std::size_t i) {
      if (!all[i].by_small) all[i].by_large = noticed(models, all[i]);
      if (asked == "list" && !all[i].by_small) {
        std::printf("%s: %s\n", all[i].name.c_str(),
                    all[i].by_large  ? "large"
                    : all[i].reached ? "why?"
                                     : "not reached: why?");
        std::fflush(stdout);
      }
    });
  }
  const auto list = listed();
  std::size_t unreached = 0;
  std::size_t by_small = 0, by_large = 0, survivors = 0, known = 0;
  for (const Mutation& m : all) {
    const auto l = list.find(m.name);
    const bool is_listed = l != list.end();
    known += is_listed;
    by_small += m.by_small;
    by_large += m.by_large;
    survivors += is_listed && !l->second.large;
    unreached += is_listed && l->second.reason.rfind("not reached: ", 0) == 0;
    EXPECT_NE(m.by_small, is_listed) << m.name
                                     << (is_listed ? " is listed and noticed"
                                                   : " is neither noticed nor listed");
    if (large && is_listed && !m.by_small) {
      EXPECT_EQ(m.by_large, l->second.large) << m.name << ": the list is wrong about the large models";
    }
  }
  EXPECT_EQ(known, list.size()) << "cell_mutations.txt lists a change that does not exist";
  std::printf(
      "%zu changes of cells: %zu noticed by the small models, %zu by the large ones%s, %zu harmless, %zu of "
      "cells no model reaches\n",
      all.size(), by_small, large ? by_large : list.size() - survivors, large ? "" : " (make soak)",
      survivors - unreached, unreached);
}

}  // namespace
}  // namespace bfo::closure
