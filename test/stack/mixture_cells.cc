// SPDX-License-Identifier: BSD-3-Clause
//
// mixture_cells.cc: which cells there are (mixture.h), and their names.
#include <algorithm>
#include <iterator>
#include <sstream>

#include "test/sim/prng.h"
#include "test/stack/mixture.h"
#include "test/stack/port.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1 << 20;
constexpr const char* kProtocols[] = {"read", "put", "copy", "eager"};
constexpr const char* kWhen[] = {"start", "step", "ramp", "second", "latency", "wave"};
constexpr const char* kWhere[] = {"", "-port", "-out"};
constexpr const char* kPatterns[] = {"one", "both", "ring", "all", "crowd", "fan"};
constexpr const char* kCpu[] = {"free", "busy", "away"};
constexpr const char* kWeights[] = {"measured", "nominal", "given"};

std::string bytes(uint64_t n) {
  if (n % kMiB == 0) return std::to_string(n / kMiB) + "M";
  if (n % kKiB == 0) return std::to_string(n / kKiB) + "K";
  return std::to_string(n);
}

constexpr uint64_t kLong[] = {40 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB};
constexpr uint64_t kShort[] = {kKiB, 8 * kKiB};
constexpr uint32_t kRatios[] = {1, 2, 3, 10, 100};
constexpr uint32_t kWindows[] = {1, 4, 64};
constexpr Protocol kAllProtocols[] = {Protocol::kRead, Protocol::kPut, Protocol::kCopy, Protocol::kEager};
constexpr When kAllWhen[] = {When::kStart, When::kStep, When::kRamp, When::kSecond, When::kLatency};
constexpr Pattern kAllPatterns[] = {Pattern::kOne, Pattern::kBoth, Pattern::kRing, Pattern::kAll};

/// A mixture that changes from good to slow is none when both are equal; nor is one that is as near.
bool differs(const Cell& c) {
  return c.ratio != 1 || c.when == When::kStart;
}

template <class Each>
void for_sizes(Cell c, const Each& each) {
  const bool eager = c.protocol == Protocol::kEager;
  for (uint64_t size : kLong)
    if (c.size = size; !eager) each(c);
  for (uint64_t size : kShort)
    if (c.size = size; eager) each(c);
}

template <class E, size_t N>
bool find_word(const char* const (&words)[N], const std::string& word, E* out) {
  for (size_t i = 0; i < N; ++i) {
    if (word != words[i]) continue;
    *out = static_cast<E>(i);
    return true;
  }
  return false;
}
/// A number at the start of `word`; `used`: its digits.
template <class N>
bool number(const std::string& word, size_t* used, N* out) {
  *used = word.find_first_not_of("0123456789");
  if (*used == std::string::npos) *used = word.size();
  if (*used == 0 || *used > 9) return false;
  *out = static_cast<N>(std::stoul(word.substr(0, *used)));
  return true;
}
bool read_rails(const std::string& word, Cell* c) {
  size_t used = 0;
  if (!number(word, &used, &c->rails) || c->rails < 2 || c->rails > kMaxStackRails) return false;
  if (used == word.size()) return true;
  size_t rest = 0;
  return word[used] == '-' && number(word.substr(used + 1), &rest, &c->odd) && c->odd < c->rails;
}
bool read_size(const std::string& word, uint64_t* size) {
  size_t used = 0;
  if (!number(word, &used, size)) return false;
  const std::string unit = word.substr(used);
  *size *= unit == "M" ? kMiB : unit == "K" ? kKiB : 1;
  return *size != 0;
}
bool read_sizes(const std::string& word, Cell* c) {
  const size_t dash = word.find('-');
  if (dash == std::string::npos) return read_size(word, &c->size);
  return read_size(word.substr(0, dash), &c->least) && read_size(word.substr(dash + 1), &c->size);
}
bool read_when(const std::string& word, Cell* c) {
  const std::string unit = "ms";
  const size_t digits = std::min(word.find_first_of("0123456789"), word.size());
  const size_t dash = std::min(word.find('-'), digits);
  if (!find_word(kWhen, word.substr(0, dash), &c->when)) return false;
  if (!find_word(kWhere, word.substr(dash, digits - dash), &c->where)) return false;
  if (c->when != When::kWave) return digits == word.size();
  size_t used = 0;
  const std::string half = word.substr(digits);
  if (!number(half, &used, &c->wave_ns) || half.substr(used) != unit) return false;
  c->wave_ns *= kMs;
  return c->wave_ns != 0;
}

}  // namespace

std::string name_of(const Cell& c) {
  std::string n = kProtocols[static_cast<unsigned>(c.protocol)];
  n += "." + std::to_string(c.rails);
  if (c.odd_rail() + 1 != c.rails) n += "-" + std::to_string(c.odd_rail());
  n += ".";
  n += c.ratio == 0 ? std::string("mixed") : std::to_string(c.ratio) + ":1";
  n += std::string(".") + kWhen[static_cast<unsigned>(c.when)] + kWhere[static_cast<unsigned>(c.where)];
  if (c.when == When::kWave) n += std::to_string(c.wave_ns / kMs) + "ms";
  n += "." + (c.least != 0 ? bytes(c.least) + "-" : "") + bytes(c.size);
  n += (c.batch ? ".b" : c.ordered ? ".o" : ".w") + std::to_string(c.window);
  n += std::string(".") + kPatterns[static_cast<unsigned>(c.pattern)];
  if (c.cpu != Cpu::kFree) n += std::string(".") + kCpu[static_cast<unsigned>(c.cpu)];
  if (c.weights != xfer::Weights::kMeasured)
    n += std::string(".") + kWeights[static_cast<unsigned>(c.weights)];
  return n;
}

bool cell_of(const std::string& name, Cell* out) {
  std::vector<std::string> words;
  std::istringstream text(name);
  for (std::string w; std::getline(text, w, '.');) words.push_back(w);
  if (words.size() < 7 || words[5].empty()) return false;
  Cell c;
  size_t used = 0;
  if (!find_word(kProtocols, words[0], &c.protocol) || !read_rails(words[1], &c)) return false;
  if (words[2] != "mixed" && (!number(words[2], &used, &c.ratio) || words[2].substr(used) != ":1"))
    return false;
  if (words[2] == "mixed") c.ratio = 0;
  if (!read_when(words[3], &c) || !read_sizes(words[4], &c)) return false;
  c.batch = words[5].front() == 'b';
  c.ordered = words[5].front() == 'o';
  if (!number(words[5].substr(1), &used, &c.window) || c.window == 0) return false;
  if (!find_word(kPatterns, words[6], &c.pattern)) return false;
  for (size_t i = 7; i < words.size(); ++i)
    if (!find_word(kCpu, words[i], &c.cpu) && !find_word(kWeights, words[i], &c.weights)) return false;
  if (name_of(c) != name) return false;
  *out = c;
  return true;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> all;
  const auto add = [&all](const Cell& c) {
    if (differs(c)) all.push_back(c);
  };
  Cell c;
  for (const Protocol p : kAllProtocols)
    for (const uint32_t ratio : kRatios)
      for (const When when : kAllWhen)
        for (const Pattern pattern : kAllPatterns)
          for (const uint32_t window : kWindows) {
            c = Cell{};
            c.protocol = p;
            c.ratio = ratio;
            c.when = when;
            c.pattern = pattern;
            c.window = window;
            for_sizes(c, add);
            c.batch = true;
            if (window != 1 && pattern == Pattern::kOne && when <= When::kStep) for_sizes(c, add);
          }
  // square waves
  for (const Protocol p : kAllProtocols)
    for (const uint32_t ratio : {3u, 10u, 100u})
      for (const uint64_t wave_ns : {10 * kMs, 100 * kMs, kSecond, 10 * kSecond})
        for (const Pattern pattern : {Pattern::kOne, Pattern::kBoth}) {
          c = Cell{};
          c.protocol = p;
          c.ratio = ratio;
          c.when = When::kWave;
          c.wave_ns = wave_ns;
          c.pattern = pattern;
          c.size = p == Protocol::kEager ? 8 * kKiB : kMiB;
          if (p != Protocol::kEager || wave_ns < kSecond) add(c);
        }
  // more rails, one process's port, and a processor that is the limit or away
  for (const Protocol p : kAllProtocols)
    for (const uint32_t rails : {2u, 3u, 4u})
      for (const uint32_t ratio : {0u, 1u, 2u, 3u, 10u, 100u})
        for (const When when : {When::kStart, When::kStep})
          for (const uint32_t window : kWindows) {
            c = Cell{};
            c.protocol = p;
            c.rails = rails;
            c.ratio = ratio;
            c.when = when;
            c.window = window;
            if (rails > 2) for_sizes(c, add);
            if (rails == 3) continue;
            c.pattern = Pattern::kAll;
            c.where = Where::kPort;
            if (ratio > 1) for_sizes(c, add);
            c.pattern = Pattern::kBoth;
            c.where = Where::kOut;
            if (ratio > 1) for_sizes(c, add);
            c.pattern = Pattern::kOne;
            c.where = Where::kRail;
            for (const Cpu cpu : {Cpu::kBusy, Cpu::kAway}) {
              c.cpu = cpu;
              if (ratio != 0) for_sizes(c, add);
            }
          }
  for (const xfer::Weights weights : {xfer::Weights::kNominal, xfer::Weights::kGiven})
    for (const Protocol p : kAllProtocols)
      for (const uint32_t ratio : kRatios) {
        c = Cell{};
        c.protocol = p;
        c.ratio = ratio;
        c.weights = weights;
        for_sizes(c, add);
      }
  return all;
}

std::vector<Cell> chosen_cells() {
  std::vector<Cell> all;
  for (const uint64_t size : {64 * kKiB, kMiB, 4 * kMiB})
    for (const uint32_t ratio : {1u, 3u, 10u, 100u}) all.push_back(Cell{.ratio = ratio, .size = size});
  for (const uint64_t size : {64 * kKiB, kMiB}) all.push_back(Cell{.ratio = 10, .size = size, .batch = true});
  for (const Protocol p : {Protocol::kPut, Protocol::kCopy})
    for (const uint32_t ratio : {1u, 10u}) all.push_back(Cell{.protocol = p, .ratio = ratio});
  for (const uint32_t ratio : {1u, 10u})
    all.push_back(Cell{.protocol = Protocol::kEager, .ratio = ratio, .size = 8 * kKiB});
  for (const When when : {When::kStep, When::kRamp, When::kSecond, When::kLatency})
    all.push_back(Cell{.ratio = 10, .when = when});
  for (const Pattern pattern : {Pattern::kBoth, Pattern::kRing, Pattern::kAll})
    all.push_back(Cell{.ratio = 10, .pattern = pattern});
  all.push_back(Cell{.ratio = 10, .when = When::kWave, .wave_ns = 100 * kMs});
  all.push_back(Cell{.ratio = 10, .where = Where::kPort, .pattern = Pattern::kAll});
  all.push_back(Cell{.ratio = 10, .where = Where::kOut, .pattern = Pattern::kBoth});
  all.push_back(Cell{.rails = 4, .ratio = 0});
  all.push_back(Cell{.rails = 4, .ratio = 1});
  all.push_back(Cell{.ratio = 10, .window = 1});
  all.push_back(Cell{.ratio = 10, .size = 64 * kKiB, .window = 1});
  all.push_back(Cell{.ratio = 10, .size = 40 * kKiB, .window = 1});
  all.push_back(Cell{.ratio = 10, .when = When::kStep, .size = 40 * kKiB, .window = 1});
  all.push_back(Cell{.ratio = 2, .when = When::kStep, .size = 256 * kKiB, .window = 1});
  all.push_back(
      Cell{.protocol = Protocol::kPut, .ratio = 10, .when = When::kStep, .size = 256 * kKiB, .window = 1});
  all.push_back(Cell{.protocol = Protocol::kEager, .ratio = 100, .when = When::kLatency, .size = 8 * kKiB});
  all.push_back(Cell{.protocol = Protocol::kEager, .ratio = 10, .size = 100});
  all.push_back(Cell{.ratio = 1, .size = 64 * kKiB, .cpu = Cpu::kBusy});
  all.push_back(Cell{.protocol = Protocol::kCopy, .ratio = 10, .size = 256 * kKiB, .window = 1});
  all.push_back(
      Cell{.protocol = Protocol::kCopy, .ratio = 100, .size = 64 * kKiB, .pattern = Pattern::kRing});
  all.push_back(Cell{.protocol = Protocol::kPut, .ratio = 100, .size = 4 * kMiB});
  all.push_back(Cell{.protocol = Protocol::kPut, .ratio = 10, .size = 4 * kMiB, .batch = true});
  all.push_back(Cell{.protocol = Protocol::kPut, .ratio = 100, .when = When::kLatency, .window = 64});
  all.push_back(Cell{.protocol = Protocol::kPut, .ratio = 100, .when = When::kStep, .size = 4 * kMiB});
  all.push_back(Cell{.ratio = 10, .cpu = Cpu::kAway});
  all.push_back(Cell{.ratio = 10, .weights = xfer::Weights::kNominal});
  all.push_back(Cell{.ratio = 10, .weights = xfer::Weights::kGiven});
  return all;
}

std::vector<Cell> drawn_cells(uint64_t seed, uint64_t n) {
  std::vector<Cell> all;
  sim::Prng dice(sim::mix(seed, n));
  // Each power of two is as likely as any other.
  const auto between = [&dice](uint64_t least, uint64_t most) {
    uint64_t low = least;
    for (uint64_t halves = dice.below(64); halves != 0; --halves) low = 2 * low > most ? least : 2 * low;
    return std::min(most, low + dice.below(low));
  };
  while (all.size() < n) {
    Cell c;
    c.protocol = static_cast<Protocol>(dice.below(std::size(kProtocols)));
    c.rails = static_cast<uint32_t>(dice.range(2, kMaxStackRails));
    c.odd = static_cast<uint32_t>(dice.below(c.rails));
    c.ratio = dice.chance(5) ? 0 : static_cast<uint32_t>(between(1, 100));
    c.when = static_cast<When>(dice.below(std::size(kWhen)));
    if (c.when == When::kWave) c.wave_ns = between(10, 2000) * kMs;
    if (dice.chance(30)) c.where = static_cast<Where>(dice.below(std::size(kWhere)));
    c.size = c.protocol == Protocol::kEager ? between(1, 12 * kKiB - 64) : between(16 * kKiB, 64 * kMiB);
    c.window = static_cast<uint32_t>(between(1, 64));
    c.pattern = static_cast<Pattern>(dice.below(std::size(kAllPatterns)));
    c.batch = c.pattern == Pattern::kOne && c.window != 1 && dice.chance(30);
    if (dice.chance(10)) c.cpu = static_cast<Cpu>(dice.below(std::size(kCpu)));
    if (dice.chance(10)) c.weights = static_cast<xfer::Weights>(dice.below(std::size(kWeights)));
    if (differs(c)) all.push_back(c);
  }
  return all;
}

std::vector<Cell> few_cells() {
  return {
      Cell{.ratio = 1},
      Cell{.ratio = 1, .size = 64 * kKiB},
      Cell{.ratio = 3, .size = 256 * kKiB},
      Cell{.ratio = 10},
      Cell{.ratio = 100},
      Cell{.ratio = 10, .size = 64 * kKiB, .batch = true},
      Cell{.ratio = 10, .size = 64 * kKiB, .window = 1},
      Cell{.protocol = Protocol::kPut, .ratio = 10},
      Cell{.protocol = Protocol::kPut, .ratio = 10, .when = When::kStep, .size = 256 * kKiB, .window = 1},
      Cell{.ratio = 2, .when = When::kStep, .size = 256 * kKiB, .window = 1},
      Cell{.protocol = Protocol::kPut, .ratio = 100, .size = 4 * kMiB},
      Cell{.protocol = Protocol::kPut, .ratio = 10, .size = 4 * kMiB, .batch = true},
      Cell{.protocol = Protocol::kCopy, .ratio = 10, .size = 256 * kKiB},
      Cell{.protocol = Protocol::kCopy, .ratio = 10, .size = 256 * kKiB, .window = 1},
      Cell{.protocol = Protocol::kEager, .ratio = 10, .size = 8 * kKiB},
      Cell{.protocol = Protocol::kEager, .ratio = 100, .when = When::kLatency, .size = 8 * kKiB},
      Cell{.protocol = Protocol::kEager, .ratio = 100, .when = When::kLatency, .size = 8, .window = 1},
      Cell{.protocol = Protocol::kEager, .ratio = 10, .size = 100},
      Cell{.protocol = Protocol::kEager, .ratio = 1, .size = 8 * kKiB, .window = 64, .batch = true},
      Cell{.protocol = Protocol::kEager, .ratio = 100, .size = 8 * kKiB, .window = 64, .batch = true},
      Cell{.ratio = 10, .when = When::kStep},
      Cell{.ratio = 10, .when = When::kSecond},
      Cell{.rails = 4, .ratio = 0},
      Cell{.ratio = 10, .weights = xfer::Weights::kNominal},
      Cell{.ratio = 10, .weights = xfer::Weights::kGiven},
  };
}

std::vector<Cell> crowded_cells() {
  const auto mixed = [](Cell c) {
    c.least = 8;
    c.ordered = true;
    return c;
  };
  return {
      mixed({.ratio = 10, .size = 4 * kMiB, .window = 16}),
      mixed({.ratio = 10, .size = 4 * kMiB, .window = 16, .pattern = Pattern::kBoth}),
      mixed({.ratio = 10, .size = 4 * kMiB, .pattern = Pattern::kAll}),
      mixed({.ratio = 10, .size = 4 * kMiB, .pattern = Pattern::kAll, .cpu = Cpu::kAway}),
      mixed({.ratio = 10, .size = kMiB, .pattern = Pattern::kCrowd, .cpu = Cpu::kAway}),
      {.ratio = 10, .size = 100 * kKiB, .window = 1, .pattern = Pattern::kCrowd},
      {.ratio = 10, .size = 100 * kKiB, .window = 1, .pattern = Pattern::kFan},
      {.ratio = 10, .window = 1, .pattern = Pattern::kFan},
      {.ratio = 2, .window = 1, .pattern = Pattern::kFan},
      {.protocol = Protocol::kPut, .ratio = 10, .size = 100 * kKiB, .pattern = Pattern::kCrowd},
      {.protocol = Protocol::kPut, .ratio = 10, .size = 64 * kKiB, .pattern = Pattern::kCrowd},
      {.protocol = Protocol::kCopy, .ratio = 10, .size = 256 * kKiB, .window = 1, .pattern = Pattern::kFan},
      {.protocol = Protocol::kCopy, .ratio = 10, .size = 256 * kKiB, .pattern = Pattern::kCrowd},
      {.protocol = Protocol::kEager, .ratio = 10, .size = 8 * kKiB, .window = 1, .pattern = Pattern::kFan},
      {.protocol = Protocol::kEager, .ratio = 10, .size = 8 * kKiB, .pattern = Pattern::kCrowd},
  };
}

}  // namespace bfo::stack
