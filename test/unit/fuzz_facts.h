// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_facts.h: arbitrary bytes as the files from which the line at the end of a job is made. Whatever they
// say, the line is one line, ends and has printable characters only. Used by the libFuzzer target and by a
// unit test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "pml/bfo/glue/summary.h"

namespace bfo::test {

/// The bytes as one file after another: how many of them were read.
inline int read_and_print(const uint8_t* data, size_t size) {
  std::vector<glue::Facts> all;
  int read = 0;
  for (size_t at = 0; at < size; at += sizeof(glue::Facts)) {
    const size_t left = size - at;
    const std::vector<uint8_t> exact(data + at, data + at + std::min(left, sizeof(glue::Facts)));
    glue::Facts facts;
    if (!glue::read_facts(exact.data(), exact.size(), &facts)) continue;
    all.push_back(facts);
    ++read;
  }
  for (const size_t room : {1024, 100, 1}) {
    std::vector<char> line(room, 'x');  // an access behind its end is seen
    glue::format_summary(all, "host", 1'000'000'000, line.data(), line.size());
    const void* const end = std::memchr(line.data(), 0, line.size());
    if (end == nullptr) std::abort();
    for (const char* c = line.data(); *c != 0; ++c) {
      if (*c < ' ' || *c > '~') std::abort();
    }
  }
  return read;
}

/// A whole file with random contents.
inline std::vector<uint8_t> facts_of_random(std::mt19937& rng) {
  std::vector<uint8_t> bytes(sizeof(glue::Facts));
  for (auto& byte : bytes) byte = static_cast<uint8_t>(rng() % 3 == 0 ? rng() : 0);
  const uint64_t magic = glue::Facts::kMagic;
  const uint32_t ports = static_cast<uint32_t>(rng() % (glue::Facts::kPorts + 1));
  std::memcpy(bytes.data() + offsetof(glue::Facts, magic), &magic, sizeof(magic));
  std::memcpy(bytes.data() + offsetof(glue::Facts, n_ports), &ports, sizeof(ports));
  return bytes;
}

}  // namespace bfo::test
