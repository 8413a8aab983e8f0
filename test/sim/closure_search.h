// SPDX-License-Identifier: BSD-3-Clause
//
// closure_search.h: depth-first search of a model's whole state space. Finds broken properties, states where
// nothing but a fault can happen before the end (deadlock), and cycles (livelock; faults are counted in the
// state, so a cycle never contains one).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace bfo::closure {

struct Report {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint64_t ends = 0;
  bool complete = false;  ///< false: stopped at the limit
  std::string failure;    ///< empty: every property holds
  std::vector<std::string> trace;
};

struct Hash128 {
  std::uint64_t a, b;
  bool operator==(const Hash128&) const = default;
};
struct HashOf {
  std::size_t operator()(const Hash128& h) const { return h.a; }
};

template <class S>
Hash128 hash(const S& s) {
  static_assert(std::is_trivially_copyable_v<S>);
  const auto* p = reinterpret_cast<const unsigned char*>(&s);
  std::uint64_t a = 0x9e3779b97f4a7c15u;
  std::uint64_t b = 0xc2b2ae3d27d4eb4fu;
  for (std::size_t i = 0; i < sizeof s; i += 8) {
    std::uint64_t w = 0;
    std::memcpy(&w, p + i, sizeof s - i < 8 ? sizeof s - i : 8);
    a = (a ^ w) * 0xff51afd7ed558ccdu;
    a ^= a >> 32;
    b = (b + w) * 0xc4ceb9fe1a85ec53u;
    b ^= b >> 29;
  }
  return {a, b};
}

/// Model: initial(), successors(state, out), finished(state), violation(), canonical(state).
template <class Model>
Report search(Model& m, std::uint64_t limit) {
  using State = decltype(m.initial());
  using Next = typename Model::Next;
  struct Frame {
    Hash128 key;
    std::vector<Next> next;
    std::size_t at = 0;
    std::string label;
  };
  enum : std::uint8_t { kOnStack = 1, kDone = 2 };
  Report rep;
  std::unordered_map<Hash128, std::uint8_t, HashOf> seen;
  std::vector<Frame> stack;
  const auto fail = [&](const std::string& why, const std::string& last) {
    rep.failure = why;
    for (const Frame& f : stack)
      if (!f.label.empty()) rep.trace.push_back(f.label);
    rep.trace.push_back(last);
  };
  const auto push = [&](const State& s, const std::string& label) -> bool {
    Frame f;
    f.key = hash(s);
    f.label = label;
    seen[f.key] = kOnStack;
    ++rep.states;
    m.successors(s, f.next);
    rep.transitions += f.next.size();
    if (!m.violation().empty()) {
      fail(m.violation(), label);
      return false;
    }
    bool moves = false;
    for (const Next& n : f.next) moves = moves || !n.fault;
    if (!moves) {
      if (!m.finished(s)) {
        fail("deadlock", label);
        rep.trace.push_back(m.describe(s));
        return false;
      }
      ++rep.ends;
    }
    stack.push_back(std::move(f));
    return true;
  };
  if (!push(m.canonical(m.initial()), "")) return rep;
  while (!stack.empty()) {
    Frame& f = stack.back();
    if (f.at == f.next.size()) {
      seen[f.key] = kDone;
      stack.pop_back();
      continue;
    }
    const Next& n = f.next[f.at++];
    const State s = m.canonical(n.state);
    const auto it = seen.find(hash(s));
    std::string label = n.what;
    if (n.rail >= 0) label += std::string(", rail ") + static_cast<char>('A' + n.rail);
    if (it == seen.end()) {
      if (rep.states >= limit) return rep;
      if (!push(s, label)) return rep;
    } else if (it->second == kOnStack) {
      fail("livelock: a cycle without a fault", label);
      return rep;
    }
  }
  rep.complete = true;
  return rep;
}

}  // namespace bfo::closure
