// SPDX-License-Identifier: BSD-3-Clause
//
// fields.cc: what a liar has learned, and the values of the fields of its headers (lies.h).
#include <algorithm>
#include <climits>
#include <cstring>

#include "common/ids.h"
#include "test/integration/liar/lies.h"

namespace {

constexpr size_t kMostRemembered = 256;
alignas(64) char own_memory[1 << 16];  // an address of this process that can be read and written

template <class T>
void remember(std::vector<T>* list, T value) {
  if (list->size() >= kMostRemembered) list->erase(list->begin());
  list->push_back(value);
}

template <class Header>
bool read(const Heard& heard, Header* header) {
  if (heard.length < sizeof *header || sizeof *header > sizeof heard.bytes) return false;
  std::memcpy(header, heard.bytes, sizeof *header);
  return true;
}

template <class Header>
void put(const Header& header, std::vector<uint8_t>* bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(&header);
  bytes->assign(at, at + sizeof header);
}

}  // namespace

void Lies::learn(const Heard& heard) {
  remember(&pool_, heard);
  if (heard.length == 0) return;
  layout::SeqSync answer;
  layout::Rget get;
  layout::Put put;
  layout::Rail rail;
  const size_t with_key = layout::rget_size(1);
  switch (heard.bytes[0]) {
    case 0x57:
      if (heard.from_peer && read(heard, &answer) && (answer.flags & layout::kFlagReply) != 0 &&
          answer.ctx == own_context())
        next = answer.seq;
      break;
    case 0x43:
      if (heard.length < with_key) break;
      std::memcpy(&get, heard.bytes, with_key);
      remember(&names_, get.rndv.sender);
      remember(&addresses_, get.address);
      remember(&keys_, get.keys[0]);
      remember(&connections_, get.keys[0].conn);
      break;
    case 0x42:
      if (read(heard, &get.rndv)) remember(&names_, get.rndv.sender);
      break;
    case 0x48:
      if (!read(heard, &put)) break;
      remember(&names_, put.sender);
      remember(&names_, put.receiver);
      remember(&addresses_, put.address);
      remember(&keys_, put.key);
      break;
    case 0x44:
    case 0x49: {
      layout::Ack ack;
      if (!read(heard, &ack)) break;
      remember(&names_, ack.sender);
      remember(&names_, ack.receiver);
      break;
    }
    case 0x46: {
      layout::Frag frag;
      if (read(heard, &frag)) remember(&names_, frag.receiver);
      break;
    }
    case 0x50:
    case 0x51:
    case 0x52:
    case 0x53:
    case 0x56: {
      layout::Restart restart;
      if (!read(heard, &restart)) break;
      remember(&names_, restart.sender);
      remember(&names_, restart.receiver);
      break;
    }
    case 0x54:
    case 0x55:
    case 0x58:
      if (read(heard, &rail)) remember(&connections_, rail.conn);
      break;
    default:
      break;
  }
}

// ---- values ----
uint64_t Lies::extreme() {
  static constexpr uint64_t kValues[] = {0,
                                         1,
                                         2,
                                         7,
                                         8,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x100000000,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         0xfffffffffffffff0,
                                         0xffffffffffffffff};
  const size_t n = random_.below(sizeof kValues / sizeof *kValues + 2);
  if (n < sizeof kValues / sizeof *kValues) return kValues[n];
  return random_.percent(50) ? random_() : random_.below(1 << 20);
}

uint64_t Lies::length() {
  return random_.percent(50) ? 1 + random_.below(400000) : extreme();
}

uint64_t Lies::connection(bool real) {
  if (real && !connections_.empty() && random_.percent(60)) {
    const uint64_t known = connections_[random_.below(connections_.size())];
    return random_.percent(80) ? known : known + 1 - 2 * random_.below(2);
  }
  return random_.percent(30) ? 0 : extreme();
}

uint64_t Lies::any_name() {
  const size_t how = random_.below(10);
  if (how < 6 && !names_.empty()) {
    const bfo::Name known(names_[random_.below(names_.size())]);
    if (how < 3) return known.value;
    if (how == 3) return known.at(static_cast<bfo::Round>(known.round() + 1)).value;
    if (how == 4) return known.at(static_cast<bfo::Round>(random_())).value;
    return bfo::Name(known.slot(), known.gen() + (in_other_names_ ? 1 : 0x8000), known.round()).value;
  }
  // Of a request that this process has no part in, if there is one.
  if (in_other_names_ && how < 9)
    return bfo::Name(static_cast<uint32_t>(random_.below(64)), static_cast<uint32_t>(1 + random_.below(4)),
                     static_cast<bfo::Round>(1 + random_.below(2)))
        .value;
  if (how == 8) return bfo::Name(bfo::Name::kSlotMask, 1, 1).value;
  const uint64_t value = extreme();
  return in_other_names_ || value < 16 || value > UINT32_MAX ? value : ~uint64_t{0};
}

uint16_t Lies::number() {
  static constexpr int kAway[] = {
      -1, 1, 2, 5, 1 << 13, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 1 << 15, (1 << 15) + 1, -(1 << 13)};
  if (random_.percent(60)) return next;
  if (random_.percent(20)) return static_cast<uint16_t>(random_());
  return static_cast<uint16_t>(next + kAway[random_.below(sizeof kAway / sizeof *kAway)]);
}

uint8_t Lies::flags() {
  const size_t how = random_.below(4);
  if (how == 0) return static_cast<uint8_t>(random_());
  return how == 1 ? static_cast<uint8_t>(1u << random_.below(8)) : 0;
}

const Context& Lies::context() {
  if (random_.percent(70)) return contexts_[0];
  while (true) {
    const Context& context = contexts_[random_.below(contexts_.size())];
    if (in_other_names_ || !context.honest) return context;
  }
}

int32_t Lies::source(const Context& context) {
  if (context.own >= 0 && random_.percent(75)) return context.own;
  static constexpr int32_t kNobody[] = {-1, -2, INT_MIN, INT_MAX, 1 << 16, 1 << 24};
  if (in_other_names_ && context.size > 0 && random_.percent(50))
    return static_cast<int32_t>(random_.below(static_cast<size_t>(context.size)));
  if (random_.percent(20)) return context.size;
  return kNobody[random_.below(sizeof kNobody / sizeof *kNobody)];
}

// ---- headers ----
void Lies::match_fields(layout::Match* header) {
  const Context& c = context();
  header->flags = flags();
  header->ctx = c.id;
  header->src = source(c);
  static constexpr int32_t kTagsOfUser[] = {5, 5, 5, 7, 0, 1, -1, -2, -10, INT_MAX, INT_MIN};
  header->tag = kTagsOfUser[random_.below(sizeof kTagsOfUser / sizeof *kTagsOfUser)];
  header->seq = number();
  if (&c == &contexts_[0] && header->src == c.own && header->seq == next) ++next;
}

void Lies::key(layout::Key* key) {
  if (!keys_.empty() && random_.percent(60))
    *key = keys_[random_.below(keys_.size())];
  else
    for (uint8_t& byte : key->handle) byte = static_cast<uint8_t>(random_());
  if (random_.percent(50)) key->conn = connection(true);
  if (random_.percent(40))
    key->epoch = static_cast<uint32_t>(random_.percent(50) ? 1 + random_.below(4) : extreme());
  if (random_.percent(40)) key->handle_len = static_cast<uint8_t>(random_.percent(50) ? 8 : random_());
}

void Lies::fill(uint8_t type, std::vector<uint8_t>* bytes) {
  const auto address = [this]() -> uint64_t {
    if (!addresses_.empty() && random_.percent(30)) return addresses_[random_.below(addresses_.size())];
    return random_.percent(50) ? reinterpret_cast<uint64_t>(own_memory) : extreme();
  };
  switch (type) {
    case 0x42:
    case 0x43: {
      layout::Rget h{};
      h.rndv.match.type = type;
      match_fields(&h.rndv.match);
      h.rndv.length = length();
      h.rndv.sender = any_name();
      h.rndv.receiver = random_.percent(50) ? 0 : any_name();
      if (type == 0x42) return put(h.rndv, bytes);
      h.address = address();
      static constexpr uint8_t kNumbers[] = {1, 1, 1, 2, 0, 8, 9, 255};
      h.n_keys = kNumbers[random_.below(sizeof kNumbers)];
      for (layout::Key& k : h.keys) key(&k);
      put(h, bytes);
      if (h.n_keys >= 1 && h.n_keys <= layout::kMostKeys && random_.percent(80))
        bytes->resize(layout::rget_size(h.n_keys));
      return;
    }
    case 0x44: {
      const layout::Ack h{type, flags(), 0, any_name(), any_name()};
      return put(h, bytes);
    }
    case 0x46: {
      const layout::Frag h{type, flags(), 0, any_name(), length()};
      return put(h, bytes);
    }
    case 0x48: {
      layout::Put h{};
      h.type = type;
      h.flags = flags();
      h.sender = any_name();
      h.receiver = any_name();
      h.offset = length();
      h.length = length();
      h.address = address();
      h.total = length();
      h.grant = static_cast<uint32_t>(random_.percent(60) ? 1 + random_.below(4) : extreme());
      key(&h.key);
      return put(h, bytes);
    }
    case 0x49: {
      const layout::Fin h{type,
                          flags(),
                          0,
                          any_name(),
                          any_name(),
                          static_cast<uint32_t>(random_.percent(60) ? random_.below(4) : extreme()),
                          static_cast<uint32_t>(random_.percent(80) ? random_.below(2) : extreme())};
      return put(h, bytes);
    }
    case 0x50:
    case 0x51:
    case 0x52:
    case 0x53:
    case 0x56: {
      layout::Match m{};
      match_fields(&m);
      static constexpr uint16_t kNumbers[] = {0, 0, 1, 2, 8, 9, 64, 65, 0x7fff, 0xffff};
      layout::Restart h{type,
                        flags(),
                        m.ctx,
                        m.src,
                        m.seq,
                        kNumbers[random_.below(10)],
                        static_cast<uint32_t>(random_.percent(70) ? random_.below(3) : extreme()),
                        any_name(),
                        any_name()};
      put(h, bytes);
      for (unsigned i = 0; i < std::min<unsigned>(h.n, 70); ++i)
        for (const uint64_t word : {type == 0x51 ? length() : connection(true), length()})
          bytes->insert(bytes->end(), reinterpret_cast<const uint8_t*>(&word),
                        reinterpret_cast<const uint8_t*>(&word) + 8);
      return;
    }
    case 0x54:
    case 0x55:
    case 0x58: {
      const layout::Rail h{type,
                           flags(),
                           0,
                           connection(about_rails_),
                           static_cast<uint32_t>(random_.percent(50) ? 1 + random_.below(4) : extreme()),
                           static_cast<int32_t>(random_.percent(70) ? random_.below(10) : extreme()),
                           length()};
      return put(h, bytes);
    }
    case 0x57: {
      layout::Match m{};
      const uint16_t believed = next;
      match_fields(&m);
      next = believed;
      const layout::SeqSync h{type, flags(), m.ctx, m.src, m.seq, static_cast<uint16_t>(random_())};
      return put(h, bytes);
    }
    default: {
      layout::Match h{};
      h.type = type;
      match_fields(&h);
      return put(h, bytes);
    }
  }
}
