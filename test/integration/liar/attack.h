// SPDX-License-Identifier: BSD-3-Clause
//
// attack.h: the rank that lies. Step by step it names a state for its victim, waits until that one is in it,
// and sends lies of one kind.
#pragma once

#include <mpi.h>

#include <algorithm>

#include "common/ids.h"
#include "test/integration/liar/exchange.h"
#include "test/integration/liar/job.h"
#include "test/integration/liar/lies.h"
#include "test/integration/liar/raw.h"
#include "test/integration/liar/tap.h"

class Liar {
 public:
  explicit Liar(Job& job)
      : job_(job),
        board_(*job.board),
        comm_(job.with_victim[static_cast<size_t>(job.rank)]),
        raw_(0),
        lies_(job.seed * 16 + static_cast<unsigned>(job.rank), contexts(), raw_.eager_limit(), raw_.most(),
              job.in_other_names) {}

  void run() {
    Tap& tap = Tap::one();
    for (const Heard& h : tap.heard()) lies_.learn(h);
    learned_ = tap.count;
    tap.swallow(true);
    while (board_.turn != static_cast<uint32_t>(job_.rank)) {
      if (board_.over != 0) return;
      rest(2000);
      opal_progress();
    }
    while (!late() && board_.given_up == 0 && raw_.rails() > 0)
      if (!step()) break;
    std::fprintf(stderr, "liar %d: %u steps, %s\n", job_.rank, steps_,
                 board_.given_up != 0 ? "given up" : "done");
  }

  bool is_lost() const { return lost_; }

 private:
  enum Kind { kSweep, kField, kReplay, kNoise, kRace, kFlood, kRails, kForeign, kKinds };
  enum Flood {
    kQuestions,
    kNotify,
    kRecvErr,
    kDoubled,
    kUnknown,
    kUnknownLong,
    kDown,
    kAhead,
    kAcks,
    kFins,
    kFloods
  };

  std::vector<Context> contexts() const {
    const auto world = context_id(MPI_COMM_WORLD);
    std::vector<Context> all = {{context_id(comm_), 1, 2, false},
                                {world, job_.rank, job_.size, false},
                                {static_cast<uint16_t>(world + 1), -1, 1, false},
                                {0x7abc, -1, 0, false},
                                {0xffff, -1, 0, false},
                                {job_.honest_id, -1, 3, true}};
    return all;
  }

  /// The time of all liars together, from when the victim was warm.
  bool late() const { return now_s() - static_cast<double>(board_.began_us) * 1e-6 > job_.seconds; }

  // What the victim does is waited for outside MPI: its answers stay where they are.
  bool wait(const std::atomic<uint32_t>& word, bool progress) {
    const double until = MPI_Wtime() + kPatience;
    while (word != board_.step) {
      if (MPI_Wtime() > until) {
        std::fprintf(stderr, "liar %d: the victim does not come back in step %u\n", job_.rank,
                     board_.step.load());
        lost_ = true;
        return false;
      }
      rest(200);
      if (progress) opal_progress();
    }
    return true;
  }

  /// On a machine with much else to do a step is shorter.
  bool long_enough() const { return now_s() - fire_s_ > kStepSeconds; }

  bool step() {
    const Kind kind = choose();
    const auto state = static_cast<State>(lies_.random().below(kStates));
    board_.state = state;
    ++board_.step;
    ++steps_;
    if (!wait(board_.ready, true)) return false;
    cells_.clear();
    synchronize();
    fire_s_ = now_s();
    const bool fired = fire(kind, state);
    raw_.drain(1);
    board_.fired = board_.step.load();
    if (!wait(board_.done, true)) return false;
    hear();
    // What was sent to a victim that listened no more does not count.
    if (board_.given_up == 0)
      for (const uint32_t cell : cells_)
        board_.covered[state][cell / 8] =
            static_cast<uint8_t>(board_.covered[state][cell / 8] | 1u << cell % 8);
    return fired;
  }

  Kind choose() {
    static constexpr const char* kNames[kKinds] = {"sweep", "field", "replay", "noise",
                                                   "race",  "flood", "rails",  "foreign"};
    for (int k = 0; k < kKinds; ++k)
      if (job_.only == kNames[k]) return static_cast<Kind>(k);
    const size_t n = lies_.random().below(100);
    // The first byte is what the tag says.
    if (job_.only == "agreeing") return n < 55 ? kField : n < 75 ? kForeign : n < 97 ? kFlood : kRails;
    return n < 45   ? kSweep
           : n < 62 ? kField
           : n < 72 ? kReplay
           : n < 77 ? kNoise
           : n < 82 ? kForeign
           : n < 87 ? kRace
           : n < 98 ? kFlood
                    : kRails;
  }

  void hear() {
    Tap& tap = Tap::one();
    const std::vector<Heard>& heard = tap.heard();
    // The list goes round: what is new is at most all of it.
    const uint64_t fresh = std::min<uint64_t>(tap.count - learned_, heard.size());
    for (uint64_t i = 0; i < fresh; ++i) lies_.learn(heard[(tap.count - fresh + i) % heard.size()]);
    learned_ = tap.count;
  }

  /// Asks for the number that the victim expects, so that some lies are taken for messages.
  void ask() {
    send(lies_.question(question_++));
    opal_progress();
    hear();
  }

  void synchronize() {
    ask();
    const double until = MPI_Wtime() + 0.02;
    const uint64_t before = Tap::one().count;
    while (Tap::one().count == before && MPI_Wtime() < until) opal_progress();
    hear();
  }

  bool fire(Kind kind, State state) {
    switch (kind) {
      case kSweep:
        for (int i = 0; i < kSwept && !long_enough(); ++i) {
          uint32_t cell = 0;
          // A walk through all cells that starts elsewhere with each seed.
          do cell = static_cast<uint32_t>((job_.seed * 7919 + sweep_++ * 40503) % kCells);
          while (covered(state, cell) && sweep_ % kCells != 0);
          if (!send(lies_.sweep(cell))) return false;
          cells_.push_back(cell);
          if (i % 16 == 15) ask();
        }
        return true;
      case kField:
      case kReplay:
      case kNoise:
        for (int i = 0; i < kBatch && !long_enough(); ++i) {
          if (!send(kind == kField ? lies_.field() : kind == kReplay ? lies_.replay() : lies_.noise()))
            return false;
          if (i % 8 == 7) ask();
        }
        return true;
      case kRails:
        for (int i = 0; i < 64; ++i)
          if (!send(lies_.about_rails())) return false;
        return true;
      case kForeign:
        for (int i = 0; i < kBatch && !long_enough(); ++i)
          if (!send(lies_.foreign())) return false;
        return true;
      case kRace:
        for (int i = 0; i < kRaces && !long_enough(); ++i) {
          Message one = lies_.field();
          Message other = lies_.field();
          other.bytes.resize(one.bytes.size());
          if (one.bytes.empty()) continue;
          if (!race(one, other)) return false;
        }
        return true;
      default:
        return flood(static_cast<Flood>(job_.flood >= 0 ? job_.flood
                                                        : static_cast<int>(lies_.random().below(kFloods))));
    }
  }

  bool covered(State state, uint32_t cell) const {
    return (board_.covered[state][cell / 8] >> cell % 8 & 1) != 0;
  }

  bool flood(Flood what) {
    const uint64_t name = lies_.any_name();
    const uint16_t next = lies_.next;
    for (unsigned i = 0; i < kFlooding && !long_enough(); ++i) {
      const auto n = static_cast<uint16_t>(i);
      const bfo::Name made(i, 1, 1);
      bool sent = true;
      switch (what) {
        case kQuestions:
          sent = send(lies_.question(n));
          break;
        case kNotify:
          sent = send(lies_.restart(0x50, static_cast<uint16_t>(next - 1), made.value, name));
          break;
        case kRecvErr:
          sent = send(lies_.restart(0x53, static_cast<uint16_t>(next - 1), name, made.value));
          break;
        case kDoubled:
          sent = send(lies_.rndv(lies_.own_context(), next, bfo::Name(77, 1, 1).value, 100));
          break;
        case kUnknown:
          sent = send(lies_.rndv(0x7abc, n, made.value, 0));
          break;
        case kUnknownLong:
          sent = send(lies_.match(0x7abc, n, 3000));
          break;
        case kDown:
          sent = send(lies_.rail(i % 2 == 0 ? 0x54 : 0x58, mixed(i), i));
          break;
        case kAhead:
          sent = send(lies_.match(lies_.own_context(), static_cast<uint16_t>(next + 1 + i), 3000));
          break;
        case kAcks:
          sent = send(lies_.names(0x44, name, made.value));
          break;
        default:
          sent = send(lies_.names(0x49, name, made.value));
          break;
      }
      if (!sent) return false;
    }
    return true;
  }

  Lie& record(const Message& m) {
    const uint64_t number = ++board_.lies;
    Lie& lie = board_.ring[number % kRing];
    lie.step = board_.step;
    lie.state = board_.state;
    lie.length = static_cast<uint32_t>(m.bytes.size());
    lie.tag = m.tag;
    lie.racing = 0;
    std::snprintf(lie.kind, sizeof lie.kind, "%s", m.kind);
    std::memset(lie.head, 0, sizeof lie.head);
    if (!m.bytes.empty()) std::memcpy(lie.head, m.bytes.data(), std::min(m.bytes.size(), sizeof lie.head));
    lie.number = number;
    return lie;
  }

  bool send(const Message& m) {
    record(m);
    Tap::one().listening = false;
    const bool sent = raw_.send(m.tag, m.bytes.data(), m.bytes.size(), lies_.random().below(8),
                                lies_.random().percent(25), kRailPatience);
    Tap::one().listening = true;
    return sent;
  }

  bool race(const Message& one, const Message& other) {
    record(one).racing = 1;
    Tap::one().listening = false;
    const bool sent = raw_.race(one.tag, one.bytes.data(), other.bytes.data(), one.bytes.size(),
                                lies_.random().below(8), kRailPatience);
    Tap::one().listening = true;
    return sent;
  }

  static constexpr double kPatience = 60;  // with a victim that computes
  static constexpr int kBatch = 1024;
  static constexpr int kRaces = 64;
  static constexpr int kSwept = 4096;
  static constexpr unsigned kFlooding = 6000;
  static constexpr double kRailPatience = 5;
  static constexpr double kStepSeconds = 1;
  Job& job_;
  Board& board_;
  MPI_Comm comm_;
  Raw raw_;
  Lies lies_;
  std::vector<uint32_t> cells_;
  uint64_t learned_ = 0;
  uint64_t sweep_ = 0;
  double fire_s_ = 0;
  uint16_t question_ = 0;
  unsigned steps_ = 0;
  bool lost_ = false;
};
