// SPDX-License-Identifier: BSD-3-Clause
//
// The trace ring as another process may have left it: any bytes, any position. It must be read to its end,
// and each record must become one line of text and one JSON object. libFuzzer target of
// test/build/fuzz_soak; as a plain test program it tries a fixed series of rings.
//
// Input: one byte for the position, then what the slots from there on hold.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "contrib/softhca/fault/trace.h"
#include "contrib/softhca/fault/fuzz_corpus.h"

namespace {

using namespace bfo::softhca;

[[noreturn]] void broken(const char* what, const std::string& text) {
  fprintf(stderr, "trace_fuzz: %s: %s\n", what, text.c_str());
  abort();
}

bool is_line(const std::string& text) {
  for (const char c : text)
    if (c < ' ' || c > '~') return false;
  return !text.empty();
}

/// One object of strings and numbers: its quotes pair, nothing is nested.
bool is_object(const std::string& text) {
  if (!is_line(text) || text.front() != '{' || text.back() != '}') return false;
  size_t quotes = 0;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    quotes += text[i] == '"';
    if (text[i] == '\\' || text[i] == '{' || text[i] == '}') return false;
  }
  return quotes % 2 == 0;
}

size_t read_ring(const uint8_t* data, size_t size) {
  static TraceRing ring;
  if (size < 1) return 0;
  const size_t first = data[0];
  ++data;
  --size;
  size_t number = first;
  for (size_t used = 0; used < size && number < first + 64; used += sizeof(MessageRecord), ++number) {
    MessageRecord& slot = ring.records[number];
    memcpy(&slot, data + used, std::min(sizeof slot, size - used));
    if (slot.seq % 2 != 0) slot.seq = number + 1;
  }
  ring.next.store(number);
  const auto records = read_all(ring);
  for (size_t i = first; i < number; ++i) ring.records[i] = MessageRecord{};
  if (records.size() > number) broken("too many", std::to_string(records.size()));
  for (const MessageRecord& r : records) {
    if (!is_line(trace_text(r, 0))) broken("no line", trace_text(r, 0));
    if (!is_object(trace_json(r, 0))) broken("no object", trace_json(r, 0));
  }
  return records.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_ring(data, size);
  return 0;
}

#ifndef SOFTHCA_LIBFUZZER
int main() {
  const auto inputs = bfo::test::corpus("trace");
  if (inputs.size() < 5) broken("test/unit/corpus/trace.txt has too few inputs", "");
  for (const auto& input : inputs) read_ring(input.data(), input.size());
  std::mt19937 dice(1);
  size_t seen = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<uint8_t> bytes(1 + sizeof(MessageRecord) * (dice() % 20));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(dice() % 3 == 0 ? dice() : dice() % 16);
    seen += read_ring(bytes.data(), bytes.size());
  }
  if (seen < 1000) broken("too few records", std::to_string(seen));
  printf("trace_fuzz: 500 rings, %zu records\n", seen);
  return 0;
}
#endif
