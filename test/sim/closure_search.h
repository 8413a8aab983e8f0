// SPDX-License-Identifier: BSD-3-Clause
//
// closure_search.h: depth-first search of a model's whole state space. Finds broken properties, states where
// nothing but a fault can happen before the end (deadlock), and cycles (livelock; faults are counted in the
// state, so a cycle never contains one).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace bfo::closure {

struct Report {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint64_t ends = 0;
  bool complete = false;  ///< false: stopped at the limit
  std::string failure;    ///< empty: every property holds
  std::vector<std::string> trace;
};

struct Hash128 {
  uint64_t a, b;
  bool operator==(const Hash128&) const = default;
};

/// The states seen, by their hash, each with one bit: is it still on the stack? Open addressing, because a
/// search spends its time here.
class Seen {
 public:
  Seen() : slots_(size_t{1} << 14) {}
  enum Found : uint8_t { kNew, kOnStack, kDone };
  Found find(const Hash128& h) const {
    const Slot& s = slots_[place(slots_, h)];
    return s.a == 0 ? kNew : (s.b & 1) ? kDone : kOnStack;
  }
  void add(const Hash128& h) {
    if (++n_ * 2 > slots_.size()) grow();
    slots_[place(slots_, h)] = Slot{h.a | 1, h.b & ~uint64_t{1}};
  }
  void done(const Hash128& h) { slots_[place(slots_, h)].b |= 1; }

 private:
  using Slot = Hash128;
  static size_t place(const std::vector<Slot>& in, const Hash128& h) {
    size_t i = (h.a >> 8) & (in.size() - 1);
    while (in[i].a != 0 && (in[i].a != (h.a | 1) || ((in[i].b ^ h.b) >> 1) != 0))
      i = (i + 1) & (in.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Slot> to(slots_.size() * 4);
    for (const Slot& s : slots_)
      if (s.a != 0) to[place(to, s)] = s;
    slots_.swap(to);
  }
  std::vector<Slot> slots_;
  size_t n_ = 0;
};

template <class S>
Hash128 hash(const S& s) {
  static_assert(std::is_trivially_copyable_v<S>);
  static_assert(std::has_unique_object_representations_v<S>);  // no padding: it would count as state
  const auto* p = reinterpret_cast<const unsigned char*>(&s);
  uint64_t a = 0x9e3779b97f4a7c15u;
  uint64_t b = 0xc2b2ae3d27d4eb4fu;
  for (size_t i = 0; i < sizeof s; i += 8) {
    uint64_t w = 0;
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
Report search(Model& m, uint64_t limit) {
  using State = decltype(m.initial());
  using Next = typename Model::Next;
  struct Frame {
    Hash128 key;
    std::vector<Next> next;
    size_t at = 0;
    const char* what = nullptr;  ///< how it was reached
    int rail = -1;
  };
  Report rep;
  Seen seen;
  std::vector<Frame> stack;
  const auto say = [&](const char* what, int rail) {
    if (what)
      rep.trace.push_back(rail < 0 ? what : std::string(what) + ", rail " + static_cast<char>('A' + rail));
  };
  const auto fail = [&](const std::string& why, const char* what, int rail) {
    rep.failure = why;
    for (const Frame& f : stack) say(f.what, f.rail);
    say(what, rail);
  };
  const auto push = [&](const State& s, const char* what, int rail) -> bool {
    Frame f;
    f.key = hash(s);
    f.what = what;
    f.rail = rail;
    seen.add(f.key);
    ++rep.states;
    m.successors(s, f.next);
    rep.transitions += f.next.size();
    if (!m.violation().empty()) {
      fail(m.violation(), what, rail);
      return false;
    }
    bool moves = false;
    for (const Next& n : f.next) moves = moves || !n.fault;
    if (!moves) {
      if (!m.finished(s)) {
        fail("deadlock", what, rail);
        rep.trace.push_back(m.describe(s));
        return false;
      }
      ++rep.ends;
    }
    stack.push_back(std::move(f));
    return true;
  };
  if (!push(m.canonical(m.initial()), nullptr, -1)) return rep;
  while (!stack.empty()) {
    Frame& f = stack.back();
    if (f.at == f.next.size()) {
      seen.done(f.key);
      stack.pop_back();
      continue;
    }
    const Next& n = f.next[f.at++];
    const State s = m.canonical(n.state);
    const Seen::Found found = seen.find(hash(s));
    const char* const what = n.what;
    const int rail = n.rail;
    if (found == Seen::kNew) {
      if (rep.states >= limit) return rep;
      if (!push(s, what, rail)) return rep;
    } else if (found == Seen::kOnStack) {
      fail("livelock: a cycle without a fault", what, rail);
      return rep;
    }
  }
  rep.complete = true;
  return rep;
}

}  // namespace bfo::closure
