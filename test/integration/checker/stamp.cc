// SPDX-License-Identifier: BSD-3-Clause
//
// The stamp: filling a payload is one permutation per 8 bytes; verifying is the same and a comparison. Only
// when a word differs the slow diagnosis runs and finds out whose bytes these are.
#include "test/integration/checker/stamp.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "test/integration/checker/rng.h"

namespace bfo::checker {
namespace {

constexpr uint64_t kMagic = 0x6266'6f63'6865'636bull;
constexpr uint64_t kHeaderWords = 6;
constexpr uint64_t kHeaderMinimum = 64;
constexpr uint64_t kSeqMask = (1u << 20) - 1;
constexpr uint64_t kIndexMask = (1u << 21) - 1;

// Bit layout before the permutation: 0 | comm 5 | source 5 | dest 5 | tag 7 | seq 20 | index 21.
uint64_t pack(const Stream& s, uint64_t seq, uint64_t index) {
  return uint64_t{s.comm & 31u} << 58 | uint64_t{s.source & 31u} << 53 | uint64_t{s.dest & 31u} << 48 |
         uint64_t{s.tag & 127u} << 41 | (seq & kSeqMask) << 21 | (index & kIndexMask);
}

uint64_t load(const uint8_t* from, uint64_t offset, uint64_t limit) {
  uint64_t value = 0;
  std::memcpy(&value, from + offset, std::min<uint64_t>(8, limit - offset));
  return value;
}

uint64_t low_bytes(uint64_t value, uint64_t count) {
  return count >= 8 ? value : value & ((uint64_t{1} << (8 * count)) - 1);
}

uint64_t fold(uint64_t hash, uint64_t value) {
  return ((hash << 5) | (hash >> 59)) ^ value;
}

uint64_t header_hash(const std::array<uint64_t, kHeaderWords>& h) {
  uint64_t hash = kMagic;
  for (uint64_t i = 1; i + 1 < kHeaderWords; ++i) hash = permute(hash ^ h[i]);
  return hash;
}

}  // namespace

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"ok",         "corrupt",   "torn",         "stale",   "early",
                                           "doubled",    "reordered", "misdelivered", "shifted", "late-read",
                                           "late-write", "overrun",   "status",       "mpi"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const Message& m) {
  char text[128];
  std::snprintf(text, sizeof text, "(comm %u source %u dest %u tag %u seq %u size %llu)", m.stream.comm,
                m.stream.source, m.stream.dest, m.stream.tag, m.seq,
                static_cast<unsigned long long>(m.bytes));
  return text;
}

void poison(void* to, size_t bytes, uint64_t word) {
  std::memset(to, static_cast<uint8_t>(word), bytes);
}

size_t first_unpoisoned(const void* from, size_t bytes, uint64_t word) {
  const auto* p = static_cast<const uint8_t*>(from);
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t value;
    std::memcpy(&value, p + i, 8);
    if (value != word) break;
  }
  for (; i < bytes; ++i)
    if (p[i] != static_cast<uint8_t>(word)) return i;
  return bytes;
}

uint64_t Stamp::word(const Message& m, uint64_t index) const {
  return permute(pack(m.stream, m.seq, index) ^ (seed_ >> 1));
}

bool Stamp::trace(uint64_t value, Message* m, uint64_t* index) const {
  const uint64_t x = unpermute(value) ^ (seed_ >> 1);
  if (x >> 63) return false;
  m->stream = {static_cast<uint8_t>(x >> 58 & 31), static_cast<uint8_t>(x >> 53 & 31),
               static_cast<uint8_t>(x >> 48 & 31), static_cast<uint8_t>(x >> 41 & 127)};
  m->seq = static_cast<uint32_t>(x >> 21 & kSeqMask);
  *index = x & kIndexMask;
  return true;
}

uint64_t Stamp::body_hash(const Message& m) const {
  uint64_t hash = 0;
  for (uint64_t i = kHeaderWords; i * 8 < m.bytes; ++i)
    hash = fold(hash, low_bytes(word(m, i), m.bytes - i * 8));
  return hash;
}

uint64_t Stamp::expected_word(const Message& m, uint64_t index, uint64_t body) const {
  if (m.bytes < kHeaderMinimum || index >= kHeaderWords)
    return low_bytes(word(m, index), m.bytes - index * 8);
  std::array<uint64_t, kHeaderWords> h{kMagic ^ seed_, pack(m.stream, 0, 0), m.seq, m.bytes, body, 0};
  h[5] = header_hash(h);
  return h[index];
}

void Stamp::fill(void* to, const Message& m) const {
  auto* p = static_cast<uint8_t*>(to);
  uint64_t hash = 0;
  const uint64_t start = m.bytes < kHeaderMinimum ? 0 : kHeaderWords;
  for (uint64_t i = start; i * 8 < m.bytes; ++i) {
    const uint64_t left = m.bytes - i * 8;
    const uint64_t value = low_bytes(word(m, i), left);
    hash = fold(hash, value);
    std::memcpy(p + i * 8, &value, std::min<uint64_t>(8, left));
  }
  for (uint64_t i = 0; i < start; ++i) {
    const uint64_t value = expected_word(m, i, hash);
    std::memcpy(p + i * 8, &value, 8);
  }
}

Finding Stamp::verify(const void* from, const Message& m) const {
  const auto* p = static_cast<const uint8_t*>(from);
  uint64_t hash = 0;
  const uint64_t start = m.bytes < kHeaderMinimum ? 0 : kHeaderWords;
  for (uint64_t i = start; i * 8 < m.bytes; ++i) {
    const uint64_t value = low_bytes(word(m, i), m.bytes - i * 8);
    if (load(p, i * 8, m.bytes) != value) return diagnose(p, m);
    hash = fold(hash, value);
  }
  for (uint64_t i = 0; i < start; ++i)
    if (load(p, i * 8, m.bytes) != expected_word(m, i, hash)) return diagnose(p, m);
  return {};
}

// A header that agrees with itself and with the body behind it: an intact message, though maybe not the one
// due.
bool Stamp::whole_message_at(const uint8_t* p, uint64_t bytes, Message* found) const {
  uint64_t index = 0;
  if (bytes < kHeaderMinimum) {
    if (bytes < 8 || !trace(load(p, 0, bytes), found, &index) || index != 0) return false;
    found->bytes = bytes;
    for (uint64_t i = 0; i * 8 < bytes; ++i)
      if (load(p, i * 8, bytes) != low_bytes(word(*found, i), bytes - i * 8)) return false;
    return true;
  }
  std::array<uint64_t, kHeaderWords> h;
  std::memcpy(h.data(), p, sizeof h);
  if (h[0] != (kMagic ^ seed_) || h[5] != header_hash(h) || h[3] < kHeaderMinimum) return false;
  const uint64_t x = h[1];
  found->stream = {static_cast<uint8_t>(x >> 58 & 31), static_cast<uint8_t>(x >> 53 & 31),
                   static_cast<uint8_t>(x >> 48 & 31), static_cast<uint8_t>(x >> 41 & 127)};
  found->seq = static_cast<uint32_t>(h[2]);
  found->bytes = h[3];
  const uint64_t common = std::min(bytes, h[3]);
  for (uint64_t i = kHeaderWords; i * 8 < common; ++i) {
    const uint64_t width = std::min<uint64_t>(8, common - i * 8);
    if (load(p, i * 8, common) != low_bytes(word(*found, i), width)) return false;
  }
  return h[4] == body_hash(*found);
}

// Payloads below 8 bytes do not hold a whole word: compare them with the neighbours of the stream.
Finding Stamp::judge_tiny(const uint8_t* p, const Message& m) const {
  Finding f{Kind::kCorrupt, 0, m.bytes - 1, "bytes that belong to no message near it"};
  const uint64_t value = load(p, 0, m.bytes);
  if (value == low_bytes(kRecvPoison, m.bytes)) return {Kind::kTorn, 0, m.bytes - 1, "never written"};
  if (value == low_bytes(kSendPoison, m.bytes))
    return {Kind::kLateRead, 0, m.bytes - 1, "the sender's poison"};
  for (uint32_t distance = 1; distance <= 64 && m.bytes > 1; ++distance) {
    Message other = m;
    for (int side = 0; side < 2; ++side) {
      other.seq = side ? m.seq + distance : m.seq - distance;
      if (low_bytes(word(other, 0), m.bytes) != value || (!side && distance > m.seq)) continue;
      f.kind = side ? Kind::kReordered : Kind::kDoubled;
      f.text = "holds " + describe(other);
      return f;
    }
  }
  return f;
}

Finding Stamp::diagnose(const uint8_t* p, const Message& m) const {
  if (m.bytes < 8) return judge_tiny(p, m);
  Message found;
  if (whole_message_at(p, m.bytes, &found)) {
    Finding f{Kind::kMisdelivered, 0, m.bytes - 1, "the whole of " + describe(found)};
    if (found.stream == m.stream && found.seq != m.seq)
      f.kind = found.seq < m.seq ? Kind::kDoubled : Kind::kReordered;
    return f;
  }
  // Count the wrong words by origin; the most frequent origin names the finding.
  const uint64_t body = body_hash(m);
  std::array<uint64_t, static_cast<size_t>(Kind::kCount)> counts{};
  std::array<std::string, static_cast<size_t>(Kind::kCount)> examples;
  uint64_t wrong = 0;
  Finding f;
  for (uint64_t i = 0; i * 8 < m.bytes; ++i) {
    const uint64_t value = load(p, i * 8, m.bytes);
    if (value == expected_word(m, i, body)) continue;
    if (wrong++ == 0) f.first = i * 8;
    f.last = std::min(i * 8 + 8, m.bytes) - 1;
    const uint64_t width = std::min<uint64_t>(8, m.bytes - i * 8);
    Kind kind = Kind::kCorrupt;
    Message origin = m;
    uint64_t index = 0;
    if (value == low_bytes(kRecvPoison, width)) {
      kind = Kind::kTorn;
    } else if (value == low_bytes(kSendPoison, width)) {
      kind = Kind::kLateRead;
    } else if (width == 8 && trace(value, &origin, &index)) {
      if (!(origin.stream == m.stream)) {
        // A random word decodes to something too: believe it only for a stream that ends here at a like
        // offset.
        if (origin.stream.dest == m.stream.dest && index == i) kind = Kind::kMisdelivered;
      } else if (origin.seq == (m.seq & kSeqMask)) {
        kind = Kind::kShifted;
      } else {
        kind = ((m.seq - origin.seq) & kSeqMask) < kSeqMask / 2 ? Kind::kStale : Kind::kEarly;
      }
    }
    const auto k = static_cast<size_t>(kind);
    if (counts[k]++ == 0 && (kind == Kind::kStale || kind == Kind::kEarly || kind == Kind::kMisdelivered))
      examples[k] = " of seq " + std::to_string(origin.seq) + " tag " + std::to_string(origin.stream.tag) +
                    " source " + std::to_string(origin.stream.source) + " offset " +
                    std::to_string(index * 8);
    if (counts[k] == 1 && kind == Kind::kShifted) examples[k] = " of offset " + std::to_string(index * 8);
  }
  const auto top = std::max_element(counts.begin(), counts.end()) - counts.begin();
  f.kind = static_cast<Kind>(top);
  f.text = std::to_string(wrong) + " wrong words in this range";
  for (size_t k = 0; k < counts.size(); ++k)
    if (counts[k])
      f.text += ", " + std::to_string(counts[k]) + " " + name_of(static_cast<Kind>(k)) + examples[k];
  return f;
}

}  // namespace bfo::checker
