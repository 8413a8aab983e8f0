// SPDX-License-Identifier: BSD-3-Clause
//
// lies.cc: makes the messages of a liar (lies.h).
#include "test/integration/liar/lies.h"

#include <algorithm>
#include <cstring>

namespace {

bool is_match(uint8_t type) {
  return type >= 0x41 && type <= 0x43;
}

template <class Header>
void put(const Header& header, std::vector<uint8_t>* bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(&header);
  bytes->assign(at, at + sizeof header);
}

}  // namespace

size_t header_size(uint8_t type) {
  switch (type) {
    case 0x42:
      return sizeof(layout::Rndv);
    case 0x43:
      return layout::rget_size(1);
    case 0x44:
      return sizeof(layout::Ack);
    case 0x46:
      return sizeof(layout::Frag);
    case 0x48:
      return sizeof(layout::Put);
    case 0x49:
      return sizeof(layout::Fin);
    case 0x50:
    case 0x51:
    case 0x52:
    case 0x53:
    case 0x56:
      return sizeof(layout::Restart);
    case 0x54:
    case 0x55:
    case 0x58:
      return sizeof(layout::Rail);
    case 0x57:
      return sizeof(layout::SeqSync);
    default:
      return sizeof(layout::Match);
  }
}

void Lies::pad(Message* message, size_t length) {
  length = std::min(length, most_);
  const size_t was = message->bytes.size();
  message->bytes.resize(length);
  for (size_t i = was; i < length; ++i) message->bytes[i] = static_cast<uint8_t>(i * 37 + 11);
}

Message Lies::sweep(uint32_t number) {
  Message m;
  m.kind = "sweep";
  m.cell = number % kCells;
  m.tag = static_cast<uint8_t>(kFirstTag + m.cell % kTags);
  const auto first = static_cast<uint8_t>(m.cell / kTags % kFirstBytes);
  const size_t header = header_size(random_.percent(50) ? m.tag : first);
  const size_t lengths[kLengths] = {0,  1,  header - 1, header, header + 1,       13,          14, 37, 38, 39,
                                    47, 48, 72,         80,     eager_limit_ - 1, eager_limit_};
  const bool known = std::find(std::begin(layout::kAllTypes), std::end(layout::kAllTypes), first) !=
                     std::end(layout::kAllTypes);
  fill(known ? first : m.tag, &m.bytes);
  pad(&m, lengths[m.cell / kTags / kFirstBytes]);
  if (!m.bytes.empty()) m.bytes[0] = first;
  return m;
}

Message Lies::field() {
  Message m;
  m.kind = "field";
  m.tag = layout::kAllTypes[random_.below(sizeof layout::kAllTypes)];
  fill(m.tag, &m.bytes);
  const size_t how = random_.below(10);
  if (how == 0) pad(&m, random_.below(m.bytes.size() + 1));
  if (how >= 7 || (is_match(m.tag) && how >= 4)) {
    const size_t room = std::min(random_.percent(80) ? size_t{600} : most_, most_) - m.bytes.size();
    if (room < most_) pad(&m, m.bytes.size() + random_.below(room));
  }
  return m;
}

Message Lies::about_rails() {
  static constexpr uint8_t kTypes[] = {0x54, 0x55, 0x58};
  Message m;
  m.kind = "about rails";
  m.tag = kTypes[random_.below(3)];
  about_rails_ = true;
  fill(m.tag, &m.bytes);
  about_rails_ = false;
  return m;
}

Message Lies::replay() {
  Message m;
  m.kind = "replay";
  if (pool_.empty()) return noise();
  const Heard& heard = pool_[random_.below(pool_.size())];
  m.tag = random_.percent(80) ? heard.tag : static_cast<uint8_t>(kFirstTag + random_.below(kTags));
  m.bytes.assign(heard.bytes, heard.bytes + std::min<size_t>(heard.length, sizeof heard.bytes));
  // A name with a byte changed could be that of a request with somebody else.
  if (!in_other_names_ && m.bytes.size() > 1 && random_.percent(50)) m.bytes[1] = flags();
  for (size_t changes = in_other_names_ ? random_.below(3) : 0; changes > 0 && m.bytes.size() > 8;
       --changes) {
    const size_t width = size_t{1} << random_.below(4);
    const uint64_t value = random_.percent(50) ? extreme() : any_name();
    std::memcpy(m.bytes.data() + random_.below(m.bytes.size() - width), &value, width);
  }
  // What was heard of it may be in the name of the victim.
  if (!in_other_names_ && !m.bytes.empty() && is_match(m.bytes[0]) &&
      m.bytes.size() >= sizeof(layout::Match)) {
    layout::Match h;
    std::memcpy(&h, m.bytes.data(), sizeof h);
    h.ctx = contexts_[0].id;
    h.src = contexts_[0].own;
    std::memcpy(m.bytes.data(), &h, sizeof h);
  }
  if (random_.percent(20)) pad(&m, heard.length);
  return m;
}

Message Lies::noise() {
  Message m;
  m.kind = "noise";
  m.tag = static_cast<uint8_t>(kFirstTag + random_.below(kTags));
  m.bytes.resize(random_.below(200));
  const size_t how = random_.below(3);
  for (uint8_t& byte : m.bytes) byte = how == 0 ? 0 : how == 1 ? 0xff : static_cast<uint8_t>(random_() >> 24);
  if (!m.bytes.empty() && random_.percent(50)) m.bytes[0] = m.tag;
  return m;
}

Message Lies::foreign() {
  Message m = random_.percent(50) ? field() : noise();
  m.kind = "foreign";
  // 0, 0xfe and 0xff are marks in the fast boxes of vader.
  const size_t n = 1 + random_.below(0xfe - 0x60 + 0x1f);
  m.tag = static_cast<uint8_t>(n < 0x20 ? n : n + 0x40);
  return m;
}

Message Lies::match(uint16_t ctx, uint16_t seq, size_t payload) {
  Message m{0x41, {}, "match flood"};
  put(layout::Match{0x41, 0, ctx, contexts_[0].own, 5, seq}, &m.bytes);
  pad(&m, m.bytes.size() + payload);
  return m;
}

Message Lies::rndv(uint16_t ctx, uint16_t seq, uint64_t sender, size_t payload) {
  Message m{0x42, {}, "rndv flood"};
  put(layout::Rndv{{0x42, 0, ctx, contexts_[0].own, 5, seq}, 100000, sender, 0}, &m.bytes);
  pad(&m, m.bytes.size() + payload);
  return m;
}

Message Lies::restart(uint8_t type, uint16_t seq, uint64_t sender, uint64_t receiver) {
  Message m{type, {}, "restart flood"};
  put(layout::Restart{type, 0, own_context(), contexts_[0].own, seq, 0, 0, sender, receiver}, &m.bytes);
  return m;
}

Message Lies::rail(uint8_t type, uint64_t conn, uint32_t epoch) {
  Message m{type, {}, "rail flood"};
  put(layout::Rail{type, 0, 0, conn, epoch, 1, 0}, &m.bytes);
  return m;
}

Message Lies::question(uint16_t number) {
  Message m{0x57, {}, "question"};
  put(layout::SeqSync{0x57, 0, own_context(), contexts_[0].own, static_cast<uint16_t>(next - 1), number},
      &m.bytes);
  return m;
}

Message Lies::names(uint8_t type, uint64_t sender, uint64_t receiver) {
  Message m{type, {}, "name flood"};
  if (type == 0x49)
    put(layout::Fin{type, 0, 0, sender, receiver, 1, static_cast<uint32_t>(random_.below(2))}, &m.bytes);
  else
    put(layout::Ack{type, 0, 0, sender, receiver}, &m.bytes);
  return m;
}
