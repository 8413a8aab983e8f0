// SPDX-License-Identifier: BSD-3-Clause
//
// mixture.h: mixtures of rails that are not equal, and what a job gets out of them. A cell is one mixture
// under one traffic; it is measured against the same traffic over each of its rails alone, the others being
// absent, in the same simulator.
//
// Bounds of a cell, in each interval in which its rails are steady and had time to be learned:
//  best   goodput of at least 0.97 of what the best rail alone moves
//  sum    of at least 0.95 of what its rails move, each alone, added up: messages from 1 MiB on, 4 of them
//         under way (64, if all of them must end before the next ones begin). A rail that is far moves
//         nothing for a round trip; so what is under way must take ten of them over the other rails, else a
//         rail that delays no message cannot move that much
//  share  the rail that differs carries at most 1.3 times its fair part of the bytes
//  word   a rail that is used and from some moment on moves a tenth of the others is called degraded,
//         once by each end that measures it; one that is as fast, or moves a third, never is.
//         And no rail is lost
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pml/bfo/xfer/counters.h"
#include "test/stack/scenario.h"

namespace bfo::stack {

enum class Protocol : uint8_t { kRead, kPut, kCopy, kEager };
enum class When : uint8_t {
  kStart,    // a rail is slow all the time
  kStep,     // from a moment on
  kRamp,     // it becomes slow within a second
  kSecond,   // it is slow for a second
  kLatency,  // it is as fast, but far
  kWave,     // slow and fast in turn, each for a while
};
enum class Where : uint8_t {
  kRail,  // all ports of that rail are slow
  kPort,  // only process 0's
  kOut,   // .. and only what leaves there
};
enum class Pattern : uint8_t {
  kOne,
  kBoth,
  kRing,   // of four
  kAll,    // of four
  kCrowd,  // the same of eight
  kFan,    // from one to the seven others
};
enum class Cpu : uint8_t {
  kFree,  // the rails are the limit
  kBusy,  // the processor is
  kAway,  // it polls every two milliseconds
};

struct Cell {
  static constexpr uint32_t kLast = UINT32_MAX;
  Protocol protocol = Protocol::kRead;
  uint32_t rails = 2;
  uint32_t odd = kLast;  // the rail that is slow, or far
  uint32_t ratio = 1;    // of the rate of the others to that of this one; 0: all differ, 1, 1/2, 1/3, 1/10
  When when = When::kStart;
  Where where = Where::kRail;
  uint64_t wave_ns = 0;  // of kWave: half a period
  uint64_t size = 1 << 20;
  uint64_t least = 0;  // messages have from so many bytes to `size`; 0: all have `size`
  uint32_t window = 4;
  bool batch = false;    // of messages: the next begins when all of one are received
  bool ordered = false;  // received messages leave the window in their order
  Pattern pattern = Pattern::kOne;
  Cpu cpu = Cpu::kFree;
  /// kNominal: the ports are as fast as they say. kGiven: they all say the same, and a list tells.
  xfer::Weights weights = xfer::Weights::kMeasured;

  uint32_t odd_rail() const { return odd < rails ? odd : rails - 1; }
};
/// The product's defaults, a fabric without chance, and the traffic of the cell; its ports have no rates yet.
Scenario scenario_of(const Cell& c, uint64_t rate);
std::string name_of(const Cell& c);
/// False: no cell has that name.
bool cell_of(const std::string& name, Cell* out);
/// All of them, a choice that shows each kind, and those that a short test makes.
std::vector<Cell> all_cells();
std::vector<Cell> chosen_cells();
std::vector<Cell> few_cells();
/// Many processes that meet at one port, and messages of all sizes. Slow rails show more: what is under way
/// takes longer than the silence that makes a rail suspect.
std::vector<Cell> crowded_cells();
/// `n` that are drawn: ratios, sizes and windows between those of the others, and any rail is the slow one.
std::vector<Cell> drawn_cells(uint64_t seed, uint64_t n);

/// What was measured. Rates in bytes per second, each the worst interval's.
struct Figures {
  std::string failure;  // of a run: the rest is not there
  double goodput = 0;
  double best = 0;  // of the best rail alone
  double sum = 0;   // of all
  double of_best = 0;
  double of_sum = 0;
  double share = 0;  // of the rail that differs
  double fair = 0;
  double whole = 0;    // goodput from the first byte on, changes included, in parts of the best rail's
  uint64_t words = 0;  // events
  uint64_t degraded = 0;
  uint64_t recovered = 0;
  uint64_t losses = 0;  // of rails, which are all well
  bool best_kept = true;
  bool sum_kept = true;
  bool share_kept = true;
  bool word_kept = true;
};

class Mixtures {
 public:
  static constexpr double kOfBest = 0.97;
  static constexpr double kOfSum = 0.95;
  static constexpr double kOfFair = 1.3;

  /// `rate` is that of a good rail.
  explicit Mixtures(uint64_t rate) : rate_(rate) {}
  Figures measure(const Cell& c);
  /// Does the bound on the sum hold for this cell?
  bool sums(const Cell& c) const;

 private:
  struct Rail {
    uint64_t rate = 0;
    uint64_t latency_ns = 0;
  };
  Rail slow(const Cell& c) const;
  Rail rail(const Cell& c, uint32_t number) const;
  Course course(const Cell& c, uint32_t number) const;
  PortRate port(const Cell& c, uint32_t process, uint32_t number) const;
  double alone(const Cell& c, const Rail& r, std::string* failure);
  double fair_part(const Cell& c, double last, double goods, bool is_slow, std::string* failure);

  uint64_t rate_;
  std::map<std::string, double> alone_;
};

}  // namespace bfo::stack
