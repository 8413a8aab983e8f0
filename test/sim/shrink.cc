// SPDX-License-Identifier: BSD-3-Clause
//
// shrink.cc: delta debugging over a scenario's lists; see shrink.h.

#include "test/sim/shrink.h"

#include <algorithm>

namespace bfo::sim {
namespace {

class Shrinker {
 public:
  Shrinker(World& world, const Scenario& s, const Hooks& hooks, uint32_t runs)
      : world_(world), best_(s), hooks_(hooks), left_(runs) {
    kind_ = world_.run(best_, hooks_).violation.substr(0, 3);
  }

  Scenario work() {
    // A bound on virtual time makes hanging candidates cheap.
    best_.machine.limit_ns = std::min<uint64_t>(best_.machine.limit_ns, 1500000000);
    for (bool better = true; better && left_ > 0;) {
      better = false;
      better |= drop(&Scenario::faults);
      better |= drop(&Scenario::pairs);
      better |= simplify();
    }
    drop_unused_comms();
    return best_;
  }

 private:
  bool fails(const Scenario& s) {
    if (left_ == 0) return false;
    --left_;
    const Result r = world_.run(s, hooks_);
    return !r.ok && r.violation.substr(0, 3) == kind_;
  }
  bool accept(const Scenario& s) {
    if (!fails(s)) return false;
    best_ = s;
    return true;
  }

  template <class T>
  bool drop(std::vector<T> Scenario::*list) {
    bool better = false;
    for (size_t chunk = std::max<size_t>(1, (best_.*list).size() / 2);; chunk /= 2) {
      for (size_t at = 0; at < (best_.*list).size() && left_ > 0;) {
        Scenario s = best_;
        auto& l = s.*list;
        const auto from = l.begin() + static_cast<ptrdiff_t>(at);
        const auto to = l.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, l.size()));
        l.erase(from, to);
        if (accept(s))
          better = true;
        else
          at += chunk;
      }
      if (chunk <= 1) break;
    }
    return better;
  }

  template <class F>
  bool try_change(F change) {
    Scenario s = best_;
    if (!change(s)) return false;
    return accept(s);
  }

  bool simplify() {
    bool better = false;
    for (size_t i = 0; i < best_.pairs.size(); ++i) {
      auto on = [&](auto f) { better |= try_change([&](Scenario& s) { return f(s.pairs[i]); }); };
      on([](PairPlan& p) {
        const bool plain = p.recv_style == RecvStyle::kPlain && p.send_style == SendStyle::kStandard;
        p.recv_style = RecvStyle::kPlain;
        p.send_style = SendStyle::kStandard;
        return !plain;
      });
      on([](PairPlan& p) {
        const bool plain = p.contiguous && p.recv_contiguous && p.capacity >= p.length;
        p.contiguous = p.recv_contiguous = true;
        p.capacity = std::max(p.capacity, p.length);
        return !plain;
      });
    }
    const Machine plain;
    auto field = [&](auto Machine::*m) {
      better |= try_change([&](Scenario& s) {
        if (s.machine.*m == plain.*m) return false;
        s.machine.*m = plain.*m;
        return true;
      });
    };
    field(&Machine::frags);
    field(&Machine::sq_depth);
    field(&Machine::srq_depth);
    field(&Machine::lazy);
    field(&Machine::uneven);
    field(&Machine::fresh_conn);
    field(&Machine::get_alignment);
    field(&Machine::min_rdma);
    return better;
  }

  void drop_unused_comms() {
    for (size_t i = best_.comms.size(); i-- > 0;) {
      bool used = false;
      for (const PairPlan& p : best_.pairs) used |= p.comm == i;
      for (const CommPlan& c : best_.comms) used |= c.after == static_cast<int32_t>(i);
      if (used) continue;
      try_change([&](Scenario& s) {
        s.comms.erase(s.comms.begin() + static_cast<ptrdiff_t>(i));
        for (PairPlan& p : s.pairs)
          if (p.comm > i) --p.comm;
        for (CommPlan& c : s.comms)
          if (c.after > static_cast<int32_t>(i)) --c.after;
        return true;
      });
    }
  }

  World& world_;
  Scenario best_;
  Hooks hooks_;
  std::string kind_;
  uint32_t left_;
};

}  // namespace

Scenario shrink(World& world, const Scenario& failing, const Hooks& hooks, uint32_t runs) {
  return Shrinker(world, failing, hooks, runs).work();
}

}  // namespace bfo::sim
