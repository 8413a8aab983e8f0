// SPDX-License-Identifier: BSD-3-Clause
//
// book.cc: MPI's matching rules as an observer applies them; see book.h.

#include "test/sim/book.h"

#include <cstring>

namespace bfo::sim {

namespace {
constexpr uint64_t kStride = 0xd1b54a32d192ed03ull;
uint64_t word(uint32_t pair, uint32_t index) {
  return (static_cast<uint64_t>(pair) + 1) * 0x9e3779b97f4a7c15ull + index * kStride;
}
uint64_t stirred(uint64_t w) {
  return w ^ (w >> 29);
}
/// Eight words of the pattern at once, two per vector register.
struct Block {
  static constexpr uint32_t kBytes = 64;
  using Two = uint64_t __attribute__((vector_size(16)));
  Two words[4];
  Block(uint32_t pair, uint32_t offset) {
    const uint64_t first = word(pair, offset / 8);
    Two two{first, first + kStride};
    for (Two& w : words) {
      w = two ^ (two >> 29);
      two += 2 * kStride;
    }
  }
  bool equals(const uint8_t* bytes) const {
    Two there[4];
    std::memcpy(there, bytes, kBytes);
    const Two different =
        (there[0] ^ words[0]) | (there[1] ^ words[1]) | (there[2] ^ words[2]) | (there[3] ^ words[3]);
    return (different[0] | different[1]) == 0;
  }
};
}  // namespace

uint8_t pattern_byte(uint32_t pair, uint32_t offset) {
  return static_cast<uint8_t>(stirred(word(pair, offset / 8)) >> (8 * (offset % 8)));
}

void fill_pattern(uint8_t* to, uint32_t pair, uint32_t length) {
  uint32_t i = 0;
  for (; i + Block::kBytes <= length; i += Block::kBytes) {
    const Block b(pair, i);
    std::memcpy(to + i, b.words, Block::kBytes);
  }
  for (; i + 8 <= length; i += 8) {
    const uint64_t w = stirred(word(pair, i / 8));
    std::memcpy(to + i, &w, 8);
  }
  for (; i < length; ++i) to[i] = pattern_byte(pair, i);
}

int64_t check_pattern(const uint8_t* from, uint32_t pair, uint32_t length) {
  uint32_t i = 0;
  while (i + Block::kBytes <= length && Block(pair, i).equals(from + i)) i += Block::kBytes;
  for (; i + 8 <= length; i += 8) {
    const uint64_t w = stirred(word(pair, i / 8));
    if (std::memcmp(from + i, &w, 8) != 0) break;
  }
  for (; i < length; ++i)
    if (from[i] != pattern_byte(pair, i)) return i;
  return -1;
}

void Book::reset(const Program& s) {
  s_ = &s;
  const size_t n = s.procs;
  channels_.resize(s.comms.size() * n * n);
  receivers_.resize(s.comms.size() * n);
  for (Channel& c : channels_) {
    c.sent.clear();
    c.first = 0;
  }
  for (Receiver& r : receivers_) {
    r.posted.clear();
    r.first = 0;
  }
  taken_.assign(s.pairs.size(), 0);
}

void Book::sent(uint32_t pair) {
  const PairPlan& p = s_->pairs[pair];
  channel(p.comm, p.src, p.dst).sent.push_back(pair);
}

uint32_t Book::posted(uint32_t pair, int32_t src, int32_t tag) {
  Receiver& r = receiver(s_->pairs[pair].comm, s_->pairs[pair].dst);
  r.posted.push_back(Posted{pair, src, tag, true});
  return static_cast<uint32_t>(r.posted.size() - 1);
}

void Book::cancelled(uint32_t pair, uint32_t order) {
  receiver(s_->pairs[pair].comm, s_->pairs[pair].dst).posted[order].open = false;
}

int32_t Book::entitled(uint32_t pair, int32_t src, int32_t tag, int32_t got_src, int32_t got_tag,
                       uint64_t got_length) {
  const PairPlan& plan = s_->pairs[pair];
  if ((src >= 0 && src != got_src) || (tag >= 0 && tag != got_tag)) {
    ctx_.fail("P1: process %u asked for source %d tag %d and got source %d tag %d", plan.dst, src, tag,
              got_src, got_tag);
    return -1;
  }
  Channel& c = channel(plan.comm, static_cast<uint32_t>(got_src), plan.dst);
  while (c.first < c.sent.size() && taken_[c.sent[c.first]]) ++c.first;
  for (size_t i = c.first; i < c.sent.size(); ++i) {
    const uint32_t m = c.sent[i];
    if (taken_[m] || (tag >= 0 && s_->pairs[m].tag != tag)) continue;
    if (s_->pairs[m].tag == got_tag && s_->pairs[m].length == got_length) return static_cast<int32_t>(m);
    ctx_.fail(
        "P1: process %u got a message of tag %d, %llu bytes from process %d; message %u, tag %d, %u bytes, "
        "was sent before it",
        plan.dst, got_tag, static_cast<unsigned long long>(got_length), got_src, m, s_->pairs[m].tag,
        s_->pairs[m].length);
    return -1;
  }
  ctx_.fail(
      "P1: process %u got a message of tag %d, %llu bytes from process %d that was never sent, or twice",
      plan.dst, got_tag, static_cast<unsigned long long>(got_length), got_src);
  return -1;
}

void Book::take(uint32_t message) {
  taken_[message] = 1;
}

void Book::matched(uint32_t pair, uint32_t order, uint32_t message) {
  const PairPlan& m = s_->pairs[message];
  Receiver& r = receiver(s_->pairs[pair].comm, s_->pairs[pair].dst);
  while (r.first < r.posted.size() && !r.posted[r.first].open) ++r.first;
  for (size_t i = r.first; i < order; ++i) {
    const Posted& p = r.posted[i];
    const bool accepts =
        p.open && (p.src < 0 || p.src == static_cast<int32_t>(m.src)) && (p.tag < 0 || p.tag == m.tag);
    if (accepts) {
      ctx_.fail("P1: message %u was matched with receive %u of process %u, receive %u was posted before it",
                message, pair, m.dst, p.pair);
      return;
    }
  }
  r.posted[order].open = false;
}

}  // namespace bfo::sim
