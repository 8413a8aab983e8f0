// SPDX-License-Identifier: BSD-3-Clause
//
// lies.h: the messages of a liar. Made from the layouts of PROTOCOL.md and what was heard (tap.h) alone,
// with no look at what receives them. The same seed and the same things heard make the same lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "test/integration/liar/board.h"
#include "test/integration/liar/layout.h"
#include "test/integration/liar/tap.h"

/// Xorshift: cheap, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x1234567) { (*this)(); }
  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  size_t below(size_t n) { return static_cast<size_t>((*this)() >> 16) % n; }
  bool percent(unsigned p) { return below(100) < p; }

 private:
  uint64_t state_;
};

/// A communicator that a liar may name.
struct Context {
  uint16_t id;
  int32_t own;   ///< rank of the liar, -1: not a member
  int32_t size;  ///< 0: no such communicator
  bool honest;   ///< others exchange data in it
};

struct Message {
  uint8_t tag;
  std::vector<uint8_t> bytes;
  const char* kind;
  uint32_t cell = UINT32_MAX;  ///< of the sweep
};

/// Length of the header of a type; 14 of one that there is not.
size_t header_size(uint8_t type);

class Lies {
 public:
  /// `in_other_names`: of ranks and requests of others, too. A BTL that does not say who sends is believed.
  Lies(uint64_t seed, std::vector<Context> contexts, size_t eager_limit, size_t most, bool in_other_names)
      : random_(seed),
        contexts_(std::move(contexts)),
        eager_limit_(eager_limit),
        most_(most),
        in_other_names_(in_other_names) {}

  /// Every tag with every first byte and length: cell `number` of kCells.
  Message sweep(uint32_t number);
  /// A message of the protocol with fields at their extremes.
  Message field();
  /// The same of a type about rails, with the names of real ones, too: it ends much of what the two have.
  Message about_rails();
  /// Something heard, as it was or with a few bytes changed.
  Message replay();
  Message noise();
  /// With a tag that belongs to nobody. Those of BTLs are theirs alone.
  Message foreign();

  /// The parts that floods are made of.
  Message match(uint16_t ctx, uint16_t seq, size_t payload);
  Message rndv(uint16_t ctx, uint16_t seq, uint64_t sender, size_t payload);
  Message restart(uint8_t type, uint16_t seq, uint64_t sender, uint64_t receiver);
  Message rail(uint8_t type, uint64_t conn, uint32_t epoch);
  Message question(uint16_t number);
  Message names(uint8_t type, uint64_t sender, uint64_t receiver);

  uint64_t any_name();
  Random& random() { return random_; }
  uint16_t own_context() const { return contexts_[0].id; }
  /// The next number that the victim expects, as far as is known.
  uint16_t next = 0;
  /// Learns it from the answers to questions, and names, keys, connections.
  void learn(const Heard& heard);

 private:
  uint64_t extreme();
  uint64_t length();
  uint64_t connection(bool real);
  uint16_t number();
  uint8_t flags();
  const Context& context();
  int32_t source(const Context& context);
  void fill(uint8_t type, std::vector<uint8_t>* bytes);
  void match_fields(layout::Match* header);
  void key(layout::Key* key);
  void pad(Message* message, size_t length);

  Random random_;
  std::vector<Context> contexts_;  // the first one is that of the liar and its victim
  size_t eager_limit_, most_;
  bool in_other_names_;
  bool about_rails_ = false;
  std::vector<Heard> pool_;
  std::vector<uint64_t> names_, connections_, addresses_;
  std::vector<layout::Key> keys_;
};
