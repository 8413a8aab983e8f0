// SPDX-License-Identifier: BSD-3-Clause
//
// rates.h: how fast the ports of the fabric are, each direction for itself and as time goes on, and the wires
// between them. A device without a rate has no wire: its packets take the fabric's latency and no more.
//
// A packet leaves through the outgoing side of one port in slices and comes in through the incoming side of
// another one; each side moves one slice at a time, at its rate. Connections take turns at the outgoing side,
// slice by slice, as in a device's arbiter; what one connection sends keeps its order. At the incoming side
// slices queue in the order they come; while the queue is long, whose turn it is to send there waits for
// credits, and lets others of its port pass. Everything follows from the order of calls and a seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "test/sim/prng.h"
#include "test/stack/timeline.h"

namespace bfo::stack {

/// One direction of a port at one moment.
struct Pace {
  uint64_t rate = 0;        // bytes per second; 0: no limit
  uint64_t latency_ns = 0;  // added to the fabric's
  unsigned loss = 0;        // of a slice, per mille
};

/// A pace that changes.
struct Change {
  enum class Shape : uint8_t {
    kStep,    // at `t` it is `to`
    kRamp,    // from `t` on it nears `to`, and reaches it after `ns`
    kSquare,  // from `t` on it is `to` for `ns`, what it was before for `ns`, and so on
  };
  Shape shape = Shape::kStep;
  uint64_t t = 0;  // since the start of the run
  uint64_t ns = 0;
  Pace to;
};

/// The pace of one direction over a run. Changes are in the order of their times; one that begins while
/// another is on its way goes on from what it finds. A ramp between a rate and no rate is a step.
class Course {
 public:
  Course() = default;
  explicit Course(const Pace& first) : first_(first) {}
  Course& then(const Change& c) {
    changes_.push_back(c);
    return *this;
  }
  Pace at(uint64_t t) const;

 private:
  Pace first_;
  std::vector<Change> changes_;
};

/// The courses of one port.
struct PortRate {
  uint32_t process = 0;
  uint32_t rail = 0;
  Course out;
  Course in;
};

/// A flow is what one queue pair sends in one role: its requests, or its answers.
constexpr uint32_t flow_of(uint32_t queue_pair, bool answers) {
  return queue_pair << 1 | (answers ? 1u : 0u);
}
constexpr uint32_t queue_pair_of(uint32_t flow) {
  return flow >> 1;
}
constexpr bool is_answer(uint32_t flow) {
  return (flow & 1) != 0;
}

/// Whose packets the wires carry.
class WireUser {
 public:
  virtual ~WireUser() = default;
  /// May the next slice of it leave? False: its queue pair has gone, and dropped() follows.
  virtual bool leaves(void* packet, uint32_t flow) = 0;
  virtual void arrived(void* packet, uint32_t flow) = 0;
  virtual void dropped(void* packet) = 0;
  /// A slice of this flow has come in, so many bytes from one port to another, of a packet that may be gone.
  virtual void moved(uint32_t flow, size_t from, size_t to, uint64_t bytes) = 0;
};

class Wires {
 public:
  static constexpr uint64_t kSlice = 16384;  // bytes, at most; and at a low rate what takes a millisecond
  static constexpr uint64_t kHeader = 64;    // bytes of each packet beside its payload
  static constexpr unsigned kMisses = 7;     // in a row, until a packet is lost for good
  static constexpr uint64_t kQueue = 4;      // slices that wait at an incoming side, about

  Wires(Timeline& time, WireUser& user, uint64_t seed)
      : time_(time), user_(user), dice_(seed), start_(time.now()) {}
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  /// Gives port number `port` its courses.
  void set(size_t port, const Course& out, const Course& in);
  /// All connections of a port share one queue, as in a switch: what was handed over first leaves first.
  void in_order(bool on) { in_order_ = on; }
  bool any() const { return !ports_.empty(); }
  /// `bytes` of payload, as a part of `flow`, from one port to the other.
  void send(size_t from, size_t to, uint32_t flow, uint64_t bytes, void* packet);
  /// Nothing of what `flow` has handed to this port, and what has not left entirely, leaves any more.
  void unsend(size_t port, uint32_t flow);
  /// Of the packets of `flow` of which nothing has left, those for which `gone` is true do not leave.
  template <class Gone>
  void withdraw(size_t port, uint32_t flow, Gone gone) {
    Flow* const f = find(port, flow);
    if (f == nullptr) return;
    std::erase_if(f->loads, [&](const Load& load) {
      const bool goes = !load.touched && gone(load.packet);
      if (goes) user_.dropped(load.packet);
      return goes;
    });
  }
  /// Is one of the packets of `flow` that have not left entirely `wanted`?
  template <class Wanted>
  bool holds(size_t port, uint32_t flow, Wanted wanted) {
    const Flow* const f = find(port, flow);
    return f != nullptr && std::any_of(f->loads.begin(), f->loads.end(),
                                       [&](const Load& load) { return wanted(load.packet); });
  }
  /// The oldest packet of `flow` that has not left entirely, if none of it has: nullptr if there is none.
  const void* untouched(size_t port, uint32_t flow) const;
  /// Bytes of payload that have left this port, and those that have come in.
  uint64_t bytes_out(size_t port) const { return port < ports_.size() ? ports_[port].bytes_out : 0; }
  uint64_t bytes_in(size_t port) const { return port < ports_.size() ? ports_[port].bytes_in : 0; }

 private:
  struct Load {
    void* packet;
    size_t to;
    uint64_t left;     // of payload and header
    uint64_t payload;  // of it
    uint64_t number;   // of all that were handed over
    bool touched = false;
  };
  struct Flow {
    std::deque<Load> loads;
    unsigned misses = 0;
    bool waits = false;  // for its turn, or until a loss is known
  };
  struct Port {
    Course out;
    Course in;
    std::unordered_map<uint32_t, Flow> flows;
    std::deque<uint32_t> turns;
    std::deque<std::pair<size_t, uint32_t>> waiting;  // for credits: ports and their flows
    bool busy = false;
    bool unsent = false;  // what leaves now does not count any more
    uint32_t flow = 0;    // that leaves now
    uint64_t slice = 0;
    uint64_t slice_ns = 0;
    uint64_t lane_ns = 0;  // slices come in in the order they left
    uint64_t in_free_ns = 0;
    uint64_t bytes_out = 0;
    uint64_t bytes_in = 0;
  };
  struct Slice {
    Wires* wires;
    void* packet;  // nullptr: not its last slice
    size_t from;
    size_t to;
    uint64_t bytes;
    uint64_t payload;
    uint64_t ns;  // in which it left
    uint32_t flow;
  };

  uint64_t since_start() const { return time_.now() - start_; }
  Port& port(size_t number);
  Flow* find(size_t port, uint32_t flow);
  void queue(size_t number, Port& p, uint32_t flow);
  bool full(const Port& p) const;
  bool waits(size_t number, uint32_t flow, const Load& load);
  void next(size_t number);
  void left(size_t number);
  void came(Slice* s);
  void end(Slice* s);
  Slice* make_slice();

  Timeline& time_;
  WireUser& user_;
  sim::Prng dice_;
  uint64_t start_;
  bool in_order_ = false;
  uint64_t loads_ = 0;
  std::deque<Port> ports_;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::vector<Slice*> free_;
};

}  // namespace bfo::stack
