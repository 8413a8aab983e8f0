// SPDX-License-Identifier: BSD-3-Clause
//
// Tests of the trace ring: order, overwriting, concurrent writers, and the two ways of printing a record.
#include <gtest/gtest.h>

#include <infiniband/verbs.h>

#include <memory>
#include <thread>
#include <vector>

#include "contrib/softhca/fault/trace.h"

namespace bfo::softhca {
namespace {

class Trace : public ::testing::Test {
 protected:
  Trace() { restart(*ring_, true); }

  void add(uint64_t ordinal) {
    MessageRecord record{};
    record.message_ordinal = ordinal;
    record.remote_addr = ~ordinal;
    append(*ring_, record);
  }

  std::unique_ptr<TraceRing> ring_{new TraceRing()};
};

TEST_F(Trace, ZeroMemory_IsOffAndEmpty) {
  const std::unique_ptr<TraceRing> fresh{new TraceRing()};
  EXPECT_FALSE(enabled(*fresh));
  EXPECT_TRUE(read_all(*fresh).empty());
}

TEST_F(Trace, Records_ComeOutInOrderWithSequenceNumbers) {
  for (uint64_t i = 0; i < 100; ++i) add(i);
  const auto records = read_all(*ring_);
  ASSERT_EQ(records.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(records[i].seq, i + 1);
    EXPECT_EQ(records[i].message_ordinal, i);
  }
}

TEST_F(Trace, FullRing_KeepsTheNewestAndCountsTheLost) {
  TraceReader follower(*ring_);
  for (uint64_t i = 0; i < kTraceRecords + 10; ++i) add(i);
  const auto records = read_all(*ring_);
  ASSERT_EQ(records.size(), kTraceRecords);
  EXPECT_EQ(records.front().message_ordinal, 10u);
  MessageRecord record;
  ASSERT_TRUE(follower.next(record));
  EXPECT_EQ(record.message_ordinal, 10u);
  EXPECT_EQ(follower.lost(), 10u);
}

TEST_F(Trace, Restart_ForgetsAndSwitches) {
  add(1);
  restart(*ring_, false);
  EXPECT_FALSE(enabled(*ring_));
  EXPECT_TRUE(read_all(*ring_).empty());
}

TEST_F(Trace, RecordOfADeadWriter_IsSkipped) {
  add(1);
  ring_->next.fetch_add(1);  // took a number and died
  TraceReader reader(*ring_);
  MessageRecord record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_FALSE(reader.next(record)) << "nothing newer: it may still come";
  add(3);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.message_ordinal, 3u);
  EXPECT_EQ(reader.lost(), 1u);
}

/// What add() appends as record `ordinal`.
MessageRecord whole(uint64_t ordinal) {
  MessageRecord record{};
  record.message_ordinal = ordinal;
  record.remote_addr = ~ordinal;
  return record;
}

/// All records are whole; how many there are.
size_t count_whole(const TraceRing& ring) {
  const auto records = read_all(ring);
  for (const MessageRecord& r : records) EXPECT_EQ(r.remote_addr, ~r.message_ordinal) << "torn: " << r.seq;
  return records.size();
}

TEST_F(Trace, WriterThatSleepsForLaps_MixesItsWordsWithNoOthers) {
  for (const uint64_t laps : {1, 2}) {
    for (size_t half = 1; half < kTraceWords; ++half) {
      restart(*ring_, true);
      TraceWriter sleeper(*ring_);
      sleeper.store(whole(~uint64_t{0} / 3), 1, half);
      for (uint64_t i = 0; i < laps * kTraceRecords; ++i) add(i);
      sleeper.store(whole(~uint64_t{0} / 3), half, kTraceWords);
      EXPECT_EQ(count_whole(*ring_), kTraceRecords - 1) << "the one that found it in its slot is lost";
      sleeper.finish();
      EXPECT_EQ(count_whole(*ring_), kTraceRecords - 1) << "it came too late";
      for (uint64_t i = 0; i < kTraceRecords; ++i) add(i);
      EXPECT_EQ(count_whole(*ring_), kTraceRecords) << "its slot is free again";
    }
  }
}

TEST_F(Trace, LastRecordGivenUp_IsCountedAsLost) {
  TraceWriter sleeper(*ring_);
  for (uint64_t i = 1; i < kTraceRecords; ++i) add(i);
  TraceReader reader(*ring_);
  MessageRecord record;
  add(kTraceRecords);  // finds the sleeper in its slot
  uint64_t seen = 0;
  while (reader.next(record)) ++seen;
  EXPECT_EQ(seen + reader.lost(), kTraceRecords + 1) << "a follower waits for nothing that will not come";
  EXPECT_EQ(seen, kTraceRecords - 1);
}

TEST_F(Trace, WriterThatWakesAfterARestart_ShowsNothing) {
  TraceWriter sleeper(*ring_);
  sleeper.store(whole(7), 1, kTraceWords);
  restart(*ring_, true);
  add(1);  // the number and the slot that the sleeper had
  sleeper.finish();
  EXPECT_TRUE(read_all(*ring_).empty());
  for (uint64_t i = 0; i < kTraceRecords; ++i) add(i);
  EXPECT_EQ(count_whole(*ring_), kTraceRecords);
}

/// Stopped after it took its number, before it came to its slot.
TEST_F(Trace, WriterThatIsALapLate_OverwritesNothing) {
  ring_->next.fetch_add(1);
  for (uint64_t i = 0; i < kTraceRecords; ++i) add(i);
  ring_->next.fetch_sub(kTraceRecords + 1);
  append(*ring_, whole(5));  // number 0, as late as that
  ring_->next.fetch_add(kTraceRecords);
  EXPECT_EQ(count_whole(*ring_), kTraceRecords);
}

TEST_F(Trace, ConcurrentWritersAndReader_NeverShowATornRecord) {
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([this, t] {
      for (uint64_t i = 0; i < 20'000; ++i) add(t << 32 | i);
    });
  }
  TraceReader reader(*ring_);
  MessageRecord record;
  uint64_t seen = 0;
  uint64_t last = 0;
  const auto drain = [&] {
    while (reader.next(record)) {
      ++seen;
      ASSERT_EQ(record.remote_addr, ~record.message_ordinal);
      ASSERT_GT(record.seq, last);
      last = record.seq;
    }
  };
  while (seen + reader.lost() < 60'000) drain();
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(seen + reader.lost(), 60'000u);
}

TEST_F(Trace, Text_NamesWhatHappened) {
  MessageRecord r{};
  r.seq = 7;
  r.time_ns = 5'250'000;
  r.opcode = Opcode::kWrite;
  r.verdict = Verdict::kDroppedByRule;
  r.rule = 2;
  r.node = 3;
  r.device = 1;
  r.port = 1;
  const std::string text = trace_text(r, 5'000'000);
  EXPECT_NE(text.find("0.250 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("node 3 softhca1:1"), std::string::npos) << text;
  EXPECT_NE(text.find("WRITE"), std::string::npos) << text;
  EXPECT_NE(text.find("dropped-by-rule by rule 2"), std::string::npos) << text;
}

TEST_F(Trace, Json_NamesStatusAndEvent) {
  MessageRecord r{};
  r.opcode = Opcode::kComplete;
  r.syndrome = IBV_WC_RETRY_EXC_ERR;
  r.rule = 0xff;
  EXPECT_NE(trace_json(r, 0).find("\"syndrome\":\"RETRY_EXC_ERR\",\"rule\":-1"), std::string::npos)
      << trace_json(r, 0);
  r.opcode = Opcode::kEvent;
  r.syndrome = IBV_EVENT_PORT_ERR;
  EXPECT_NE(trace_json(r, 0).find("\"syndrome\":\"PORT_ERR\""), std::string::npos);
}

}  // namespace
}  // namespace bfo::softhca
