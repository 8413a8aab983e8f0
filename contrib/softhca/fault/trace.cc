// SPDX-License-Identifier: BSD-3-Clause
//
// The trace ring: writing and reading records. A record is copied word by word with atomic stores between two
// changes of the word with its sequence number (a sequence lock per slot), so that a reader in another
// process can tell a finished record from one that is being overwritten. The first change claims the slot:
// while its writer is stopped, no other writer uses the slot, however often the ring wraps.
#include "contrib/softhca/fault/trace.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {
namespace {

constexpr size_t kWords = kTraceWords;
static_assert(sizeof(MessageRecord) % sizeof(uint64_t) == 0);
static_assert(offsetof(MessageRecord, seq) == 0);

uint64_t* words_of(MessageRecord& record) {
  return reinterpret_cast<uint64_t*>(&record);
}

uint64_t load_word(const MessageRecord& record, size_t i) {
  auto* word = const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(&record)) + i;
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
}

/// Copies record `number` out; false when it is not there, unfinished or already replaced.
bool copy_out(const TraceRing& ring, uint64_t number, MessageRecord& into) {
  const MessageRecord& slot = ring.records[number % kTraceRecords];
  if (load_word(slot, 0) != number + 1) return false;
  uint64_t words[kWords];
  for (size_t i = 1; i < kWords; ++i) words[i] = load_word(slot, i);
  words[0] = number + 1;
  if (load_word(slot, 0) != number + 1) return false;
  memcpy(&into, words, sizeof into);
  return true;
}

std::string_view syndrome_name(const MessageRecord& r) {
  static constexpr std::string_view kAcks[] = {"ack", "rnr", "seq-err", "inv-req", "rem-access", "rem-op"};
  switch (r.opcode) {
    case Opcode::kAck:
      return r.syndrome < std::size(kAcks) ? kAcks[r.syndrome] : "?";
    case Opcode::kComplete:
      return word_for(status_words(), r.syndrome);
    case Opcode::kEvent:
      return word_for(event_words(), r.syndrome);
    default:
      return {};
  }
}

int64_t age_us(const MessageRecord& r, uint64_t start_ns) {
  return static_cast<int64_t>(r.time_ns - start_ns) / 1000;
}

}  // namespace

TraceWriter::TraceWriter(TraceRing& ring) {
  number_ = ring.next.fetch_add(1, std::memory_order_relaxed) + 1;
  slot_ = words_of(ring.records[(number_ - 1) % kTraceRecords]);
  const std::atomic_ref<uint64_t> state(slot_[0]);
  uint64_t seen = state.load(std::memory_order_relaxed);
  for (;;) {
    if ((seen & SlotWord::kNumber) >= number_)
      return;  // the ring has wrapped since this writer took its number
    const bool busy = (seen & SlotWord::kClaimed) != 0;
    const uint64_t mine = SlotWord::kClaimed | (busy ? SlotWord::kMissing : 0) | number_;
    if (!state.compare_exchange_weak(seen, mine, std::memory_order_acq_rel)) continue;
    taken_ = !busy;
    return;
  }
}

void TraceWriter::store(const MessageRecord& record, size_t first, size_t last) {
  if (!taken_) return;
  uint64_t words[kWords];
  memcpy(words, &record, sizeof words);
  for (size_t i = std::max<size_t>(first, 1); i < last; ++i)
    std::atomic_ref<uint64_t>(slot_[i]).store(words[i], std::memory_order_release);
}

void TraceWriter::finish() {
  if (!taken_) return;
  taken_ = false;
  const std::atomic_ref<uint64_t> state(slot_[0]);
  uint64_t seen = SlotWord::kClaimed | number_;
  // A writer that found the slot claimed meanwhile has stored the number of its lost record there.
  while (!state.compare_exchange_weak(seen, seen & ~SlotWord::kClaimed, std::memory_order_acq_rel)) {
  }
}

void append(TraceRing& ring, const MessageRecord& record) {
  TraceWriter writer(ring);
  writer.store(record, 1, kWords);
  writer.finish();
}

void restart(TraceRing& ring, bool on) {
  ring.on.store(0, std::memory_order_release);
  for (MessageRecord& record : ring.records) {
    const std::atomic_ref<uint64_t> state(words_of(record)[0]);
    uint64_t seen = state.load(std::memory_order_relaxed);
    // A record that is being written is not shown any more. The slot stays claimed until its writer finishes.
    while (!state.compare_exchange_weak(
        seen, (seen & SlotWord::kClaimed) != 0 ? SlotWord::kClaimed | SlotWord::kMissing : 0,
        std::memory_order_acq_rel)) {
    }
  }
  ring.next.store(0, std::memory_order_release);
  ring.on.store(on ? 1 : 0, std::memory_order_release);
}

TraceReader::TraceReader(const TraceRing& ring) : ring_(ring) {
  const uint64_t next = ring.next.load(std::memory_order_acquire);
  position_ = next > kTraceRecords ? next - kTraceRecords : 0;
  lost_ = position_;
}

bool TraceReader::next(MessageRecord& record) {
  for (;;) {
    const uint64_t end = ring_.next.load(std::memory_order_acquire);
    if (position_ >= end) return false;
    const uint64_t oldest = end > kTraceRecords ? end - kTraceRecords : 0;
    if (position_ < oldest) {
      lost_ += oldest - position_;
      position_ = oldest;
    }
    if (copy_out(ring_, position_, record)) {
      ++position_;
      return true;
    }
    // Unfinished: wait for it, unless it is marked as lost, or its writer died and newer records are there.
    const uint64_t state = load_word(ring_.records[position_ % kTraceRecords], 0);
    const bool missing = (state & ~SlotWord::kClaimed) == (SlotWord::kMissing | (position_ + 1));
    if (!missing && end - position_ < kTraceRecords / 2) {
      MessageRecord newer;
      bool any_newer = false;
      for (uint64_t n = position_ + 1; n < end && !any_newer; ++n) any_newer = copy_out(ring_, n, newer);
      if (!any_newer) return false;
    }
    ++lost_;
    ++position_;
  }
}

std::vector<MessageRecord> read_all(const TraceRing& ring) {
  std::vector<MessageRecord> records;
  TraceReader reader(ring);
  MessageRecord record;
  while (records.size() < kTraceRecords && reader.next(record)) records.push_back(record);
  return records;
}

std::string_view opcode_name(Opcode opcode) {
  static constexpr std::string_view kNames[] = {"SEND",     "SEND_IMM",  "WRITE",    "WRITE_IMM", "READ",
                                                "CMP_SWAP", "FETCH_ADD", "SEND_INV", "ACK",       "EVENT",
                                                "QP_STATE", "COMPLETE",  "FAULT"};
  const auto at = static_cast<size_t>(opcode);
  return at < std::size(kNames) ? kNames[at] : "?";
}

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"delivered",
                                                "dropped-by-rule",
                                                "dropped-port-down",
                                                "dropped-no-peer",
                                                "dropped-bad-state",
                                                "ack-lost",
                                                "nak",
                                                "rnr-nak",
                                                "held",
                                                "released",
                                                "released-dropped",
                                                "delayed",
                                                "injected",
                                                "partial"};
  const auto at = static_cast<size_t>(verdict);
  return at < std::size(kNames) ? kNames[at] : "?";
}

std::string_view service_name(Service service) {
  static constexpr std::string_view kNames[] = {"RC", "UC", "UD"};
  const auto at = static_cast<size_t>(service);
  return at < std::size(kNames) ? kNames[at] : "?";
}

std::string trace_text(const MessageRecord& r, uint64_t start_ns) {
  char line[400];
  const int n = snprintf(line, sizeof line, "%8" PRIu64 " %10.3f ms  node %u softhca%u:%u ", r.seq,
                         static_cast<double>(age_us(r, start_ns)) * 1e-3, r.node, r.device, r.port);
  std::string text(line, static_cast<size_t>(n));
  if (r.opcode == Opcode::kState) {
    snprintf(line, sizeof line, "QP %u state %u -> %u", r.src_qpn, r.psn, r.length);
    return text + line;
  }
  if (r.opcode == Opcode::kFault) {
    snprintf(line, sizeof line, "rule %u fired", r.rule);
    return text + line;
  }
  const std::string syndrome(syndrome_name(r));
  if (r.opcode == Opcode::kEvent || r.opcode == Opcode::kComplete) {
    snprintf(line, sizeof line, "%s %s QP %u", opcode_name(r.opcode).data(), syndrome.c_str(), r.src_qpn);
    return text + line;
  }
  snprintf(line, sizeof line, "%s node %u softhca%u:%u  %s %s %u->%u psn %u len %u try %u%s%s  %s",
           r.direction == Direction::kTx ? "->" : "<-", r.peer_node, r.peer_device, r.peer_port,
           service_name(r.service).data(), opcode_name(r.opcode).data(), r.src_qpn, r.dst_qpn, r.psn,
           r.length, r.attempt, syndrome.empty() ? "" : " ", syndrome.c_str(),
           verdict_name(r.verdict).data());
  text += line;
  if (r.rule != 0xff) text += " by rule " + std::to_string(r.rule);
  return text;
}

std::string trace_json(const MessageRecord& r, uint64_t start_ns) {
  char line[900];
  snprintf(line, sizeof line,
           "{\"type\":\"trace\",\"seq\":%" PRIu64 ",\"time_us\":%" PRId64
           ",\"opcode\":\"%s\",\"service\":\"%s\",\"direction\":\"%s\",\"node\":%u,\"device\":\"softhca%u\","
           "\"port\":%u,"
           "\"peer_node\":%u,\"peer_device\":\"softhca%u\",\"peer_port\":%u,\"src_qpn\":%u,\"dst_qpn\":%u,"
           "\"psn\":%u,"
           "\"length\":%u,\"offset\":%u,\"message\":%" PRIu64 ",\"qp_message\":%" PRIu64
           ",\"attempt\":%u,\"flags\":%u,\"verdict\":\"%s\",\"syndrome\":\"%s\",\"rule\":%d,\"pid\":%d}",
           r.seq, age_us(r, start_ns), opcode_name(r.opcode).data(), service_name(r.service).data(),
           r.direction == Direction::kTx ? "tx" : "rx", r.node, r.device, r.port, r.peer_node, r.peer_device,
           r.peer_port, r.src_qpn, r.dst_qpn, r.psn, r.length, r.offset, r.message_ordinal, r.qp_ordinal,
           r.attempt, r.flags, verdict_name(r.verdict).data(), std::string(syndrome_name(r)).c_str(),
           r.rule == 0xff ? -1 : r.rule, r.pid);
  return line;
}

}  // namespace bfo::softhca
