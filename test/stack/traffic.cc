// SPDX-License-Identifier: BSD-3-Clause
//
// traffic.cc: see traffic.h.
//
// P1..P8: contrib/doc/design.md
#include "test/stack/traffic.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "pml/bfo/core/wire.h"

namespace bfo::stack {
namespace {

template <class... Args>
std::string text(const char* format, Args... args) {
  char line[240];
  std::snprintf(line, sizeof line, format, static_cast<unsigned long long>(args)...);
  return line;
}

}  // namespace

Traffic::Traffic(const Scenario& s) : scenario_(s), of_(s.program.pairs.size()) {
  size_t words = 0;
  for (size_t i = 0; i < of_.size(); ++i) {
    of_[i].bits = words;
    words += s.program.pairs[i].length / 64 + 1;
  }
  given_.resize(words);
  moved_.resize(words);
}

/// Bytes that were not marked before.
uint64_t Traffic::mark(std::vector<uint64_t>& bits, uint32_t pair, uint64_t offset, uint64_t n) {
  uint64_t fresh = 0;
  for (uint64_t i = offset, end = offset + n; i < end;) {
    const uint64_t k = std::min(end - i, 64 - i % 64);
    const uint64_t mask = (k == 64 ? ~uint64_t{0} : (uint64_t{1} << k) - 1) << i % 64;
    uint64_t& word = bits[of_[pair].bits + i / 64];
    fresh += static_cast<uint64_t>(std::popcount(mask & ~word));
    word |= mask;
    i += k;
  }
  return fresh;
}

void Traffic::moved(uint32_t pair, uint64_t offset, size_t n) {
  const uint64_t again = n - mark(moved_, pair, offset, n);
  of_[pair].moved_again += again;
  again_ += again;
}

void Traffic::message(uint32_t pair, size_t header, uint64_t offset, size_t payload) {
  if (of_stream(pair)) return;
  control_ += header;
  payload_ += payload;
  of_[pair].again += payload - mark(given_, pair, offset, payload);
  moved(pair, offset, payload);
}

void Traffic::read(uint32_t pair, uint64_t offset, size_t n) {
  if (of_stream(pair)) return;
  asked_ += n;
  payload_ += n;
  of_[pair].again += n - mark(given_, pair, offset, n);
}

void Traffic::stored(uint8_t tag, size_t size) {
  const bool eager = tag == static_cast<uint8_t>(core::MsgType::kMatch);
  const size_t header = eager ? sizeof(core::MatchHdr) : size;
  control_ += header;
  payload_ += size - header;
  again_ += size - header;
}

void Traffic::oneself(size_t length) {
  control_ += sizeof(core::MatchHdr);
  payload_ += length;
}

void Traffic::fetched(uint32_t pair, uint64_t offset, size_t n) {
  if (of_stream(pair)) return;
  fetched_ += n;
  moved(pair, offset, n);
}

void Traffic::failed(uint32_t pair, size_t n) {
  if (!of_stream(pair)) of_[pair].failed += n;
}

void Traffic::rounds(uint32_t pair, uint32_t restarts, bool both_ways) {
  if (of_stream(pair)) return;
  of_[pair].restarts = restarts;
  of_[pair].both_ways = both_ways;
}

std::string Traffic::resent(uint32_t pair, uint64_t repetitions) const {
  const Machine& m = scenario_.machine;
  const Message& x = of_[pair];
  const uint32_t length = scenario_.program.pairs[pair].length;
  const uint64_t window =
      uint64_t{m.rails} * std::max(m.pipeline, m.send_pipeline) * std::max(m.max_send, m.rdma_frag);
  const uint64_t heads = repetitions * std::min(length, m.rndv_eager != 0 ? m.rndv_eager : m.eager_limit);
  if (x.again <= x.failed + x.restarts * window + heads) return "";
  return text("P4: %llu bytes of message %llu of %llu bytes were sent again, %llu had failed, %llu restarts",
              x.again, pair, length, x.failed, x.restarts);
}

std::string Traffic::balance(const xfer::Counters& all) const {
  if (all.bytes_sent + asked_ != payload_)
    return text("P8: the PMLs counted %llu bytes sent, receivers read %llu, rails took %llu", all.bytes_sent,
                asked_, payload_);
  if (all.bytes_read != fetched_)
    return text("P8: the PMLs counted %llu bytes read, rails fetched %llu", all.bytes_read, fetched_);
  if (all.bytes_protocol() != control_)
    return text("P8: the PMLs counted %llu bytes of protocol, rails took %llu", all.bytes_protocol(),
                control_);
  // What one side moved in vain and the other moved then, only one of them can know, from the other's last
  // word: it is missing where a request failed or a process died. And a sender cannot tell whether the first
  // bytes of a message that does not fit came with its header or were read.
  uint64_t unknown = 0;
  uint64_t doubtful = 0;
  for (size_t i = 0; i < of_.size(); ++i) {
    if (of_[i].cut) unknown += of_[i].moved_again;
    if (of_[i].truncated && of_[i].both_ways)
      doubtful += std::min(scenario_.program.pairs[i].length, scenario_.machine.eager_limit);
  }
  if (all.bytes_resent > again_ + doubtful || all.bytes_resent + unknown < again_)
    return text(
        "P8: %llu bytes went again, the PMLs counted %llu; %llu are of messages that were cut, %llu doubtful",
        again_, all.bytes_resent, unknown, doubtful);
  if (told_ > all.bytes_resent)
    return text("P8: records of failovers tell of %llu bytes that went again, the PMLs counted %llu", told_,
                all.bytes_resent);
  return "";
}

}  // namespace bfo::stack
