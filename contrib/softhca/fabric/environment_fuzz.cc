// SPDX-License-Identifier: BSD-3-Clause
//
// The reader of the variables under random text: it must not crash; a value it takes lies within the bounds
// that are documented, and one that it refuses is named in one line of printable characters. Built with
// -fsanitize=fuzzer by test/build/fuzz_soak; as a plain test program it tries its corpus (test/unit/corpus)
// and a fixed series of mutations.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "contrib/softhca/fabric/environment.h"
#include "contrib/softhca/fault/fuzz_corpus.h"

namespace {

using namespace bfo::softhca;

const char* const kNames[] = {
    "SOFTHCA_RAILS",     "SOFTHCA_PORTS",        "SOFTHCA_RATE",         "SOFTHCA_LATENCY",
    "SOFTHCA_TIMESCALE", "SOFTHCA_PATH_SL",      "SOFTHCA_LMC",          "SOFTHCA_GIDS",
    "SOFTHCA_FAULTS",    "SOFTHCA_FABRIC",       "SOFTHCA_NODE",         "SOFTHCA_NODES",
    "SOFTHCA_SPIN",      "SOFTHCA_STRICT_PAGES", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
};

[[noreturn]] void broken(const char* what, const std::string& text) {
  fprintf(stderr, "environment_fuzz: %s\n%s\n", what, text.c_str());
  abort();
}

void check_refusal(const std::string& error) {
  size_t named = 0;
  for (const char* name : kNames) named += error.starts_with(std::string(name) + "=\"") ? 1 : 0;
  if (named != 1) broken("does not name the variable", error);
  if (error.size() > 500) broken("is long", error);
  for (const char c : error) {
    if (c < 0x20 || c > 0x7e) broken("is not one printable line", error);
  }
}

void check_values(const Environment& read) {
  const FabricConfig& config = read.config;
  const bool fits = config.devices >= 1 && config.devices <= kMaxDevices && config.ports >= 1 &&
                    config.ports <= kMaxPortsPerDevice && config.lmc <= kMostLmc &&
                    config.rate <= 1'000'000'000'000'000 && config.latency_ns <= 1'000'000'000'000 &&
                    config.timescale >= 1e-6 && config.timescale <= 1e6 &&
                    (config.path_level <= 15 || config.path_level == kPathRefused);
  if (!fits) broken("a value out of its bounds", "configuration");
  const auto fits_table = [](const GidList& list) { return list.count >= 1 && list.count <= kMaxGids; };
  bool tables = fits_table(config.gids.all);
  for (const GidPlan::Part& part : config.gids.parts) tables = tables && fits_table(part.list);
  if (!tables) broken("a value out of its bounds", "GIDs");
  if (read.node >= kMaxNodes || read.spin < 1 || read.fabric.empty() || read.fabric.size() > 100 ||
      read.fabric.find('/') != std::string::npos)
    broken("a value out of its bounds", read.fabric);
}

/// Lines VARIABLE-NUMBER VALUE: the first byte of a line chooses the variable.
void check(std::string_view text) {
  std::map<std::string, std::string> values;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    if (line.empty()) continue;
    // As in an environment, a value ends at its first zero byte.
    values[kNames[static_cast<uint8_t>(line[0]) % std::size(kNames)]] = std::string(line.substr(1)).c_str();
  }
  Environment read;
  std::string error;
  auto lookup = [&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
  if (read_environment(lookup, read, error)) {
    check_values(read);
  } else {
    check_refusal(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

#ifndef SOFTHCA_LIBFUZZER
namespace {

const char* const kValues[] = {
    "2",  "16",    "1000000000",      "1e-6", "0.5", "refuse", "shared", "per-rank",  "v1,v2-ipv4",
    "ib", "job-1", "184467440737095", "nan",  "-1",  "1.5",    "0x10",   "/dev/zero", "255",
};

struct Dice {
  uint64_t state = 88172645463325252ull;
  uint64_t operator()(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  }
};

std::string line_of(Dice& dice) {
  std::string value = kValues[dice(std::size(kValues))];
  for (uint64_t n = dice(4); n > 0; --n) {
    const size_t at = dice(value.size() + 1);
    static const char kBytes[] = " \t0123456789.,eE+-xvinf_/\xff\x01";
    if (dice(2) == 0) {
      value.insert(at, 1, kBytes[dice(sizeof kBytes)]);
    } else {
      value.erase(at, 1);
    }
  }
  if (dice(100) == 0) value.append(dice(100'000), '7');
  return std::string(1, static_cast<char>(dice(std::size(kNames)))) + value + "\n";
}

}  // namespace

int main() {
  const auto inputs = bfo::test::corpus("environment");
  if (inputs.size() < 20) broken("test/unit/corpus/environment.txt has too few inputs", "");
  for (const auto& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  Dice dice;
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (uint64_t n = 1 + dice(4); n > 0; --n) text += line_of(dice);
    check(text);
  }
  printf("environment_fuzz: 30000 environments\n");
  return 0;
}
#endif
