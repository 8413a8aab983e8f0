// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_corpus.h: the inputs that libFuzzer found to reach everything that can be reached, one a line in
// hexadecimal: test/unit/corpus/NAME.txt. Minimised with -merge=1; test/build/fuzz_soak begins with them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace bfo::test {

/// The inputs of target `name`. Empty: the file is missing or damaged.
inline std::vector<std::vector<uint8_t>> corpus(const std::string& name) {
  const char* const root = std::getenv("BFO_SRCDIR");
  std::ifstream file(std::string(root != nullptr ? root : ".") + "/test/unit/corpus/" + name + ".txt");
  std::vector<std::vector<uint8_t>> inputs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      char* end = nullptr;
      const std::string digits = line.substr(i, 2);
      bytes.push_back(static_cast<uint8_t>(std::strtoul(digits.c_str(), &end, 16)));
      if (*end != 0) return {};
    }
    inputs.push_back(bytes);
  }
  return inputs;
}

}  // namespace bfo::test
