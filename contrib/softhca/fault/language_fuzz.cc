// SPDX-License-Identifier: BSD-3-Clause
//
// The parser under random text: it must not crash, every place it reports must lie inside the text, and what
// it accepts must survive the way to text and back. Built with -fsanitize=fuzzer by `make softhca-fuzz`; as a
// plain test program it tries its corpus (test/unit/corpus) and a fixed series of mutations of the example
// files.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/fuzz_corpus.h"

namespace {

using namespace bfo::softhca;

[[noreturn]] void broken(const char* what, const std::string& text) {
  fprintf(stderr, "language_fuzz: %s\n%s\n", what, text.c_str());
  abort();
}

void check(std::string_view text) {
  const ParseResult parsed = parse_rules(text);
  for (const Problem& problem : parsed.problems) {
    if (problem.line == 0 || problem.column == 0 || problem.line > text.size() + 1)
      broken("bad place", problem.message);
    if (problem.message.find("expected") == std::string::npos) broken("expects nothing", problem.message);
  }
  if (!parsed.ok()) return;
  for (Rule rule : parsed.rules) {
    const std::string once = describe(rule);
    std::vector<std::string> known;
    if (rule.after_name[0] != '\0') known.emplace_back(rule.after_name);
    const ParseResult again = parse_rules(once, known);
    if (!again.ok() || again.rules.size() != 1) broken("does not read back", once);
    rule.line = again.rules[0].line;
    // A fraction has 53 bits of its 64 in the text; the rest is compared exactly.
    rule.match.probability = again.rules[0].match.probability;
    if (memcmp(&rule, &again.rules[0], sizeof rule) != 0) broken("reads back differently", once);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

#ifndef SOFTHCA_LIBFUZZER
namespace {

const char* const kSeeds[] = {
    "kill-rail1: when device=softhca1 size>=16K offset=50% count=1 do port-down\n",
    "when node=1 peer=2 qpn=5 peer-qpn=0x99 service=RC|UD direction=any opcode=READ|ACK do drop\n",
    "a: when message=5..9 attempt=all seed=7 probability=0.125 do corrupt xor=3\nb: when after=a+5ms do "
    "release\n",
    "when at=3s every=250ms count=4 device=0 port=1 do port-flap down=10ms up=30ms\n",
    "when byte=1M attempt=2 \\\n until=9s do complete RNR_RETRY_EXC_ERR # why\n",
    "when verb=create_ah|modify_qp state=RTR call=3.. node=1 do block 1s fail=ETIMEDOUT\n"
    "when verb=reg_mr size>=1M do fail ENOMEM\n",
    "do max-qp 3\ndo memlock 8M\nwhen verb=create_ah reach=no do segment 4\ndo isolate\n",
    "when node=1 do gids v1,v2,v2-ipv4@5\ndo gids -,v2-ipv6\n",
    "do event PATH_MIG\ndo gid 0xff\ndo stop for=5ms on=self\ndo rate 10\n",
    "do speed 100G\ndo speed 4xHDR@150G\ndo speed 1x512\nwhen verb=query_port_speed do fail EIO\n",
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

void mutate(std::string& text, Dice& dice) {
  static const char kBytes[] = " \t\n\\#=<>.|:%+-0159KMGusmxandow_\xff\x01";
  const size_t at = dice(text.size() + 1);
  switch (dice(4)) {
    case 0:
      text.insert(at, 1, kBytes[dice(sizeof kBytes)]);
      break;
    case 1:
      if (at < text.size()) text.erase(at, 1 + dice(4));
      break;
    case 2:
      if (at < text.size()) text[at] = kBytes[dice(sizeof kBytes)];
      break;
    default:
      text.insert(at, kSeeds[dice(std::size(kSeeds))], 1 + dice(30));
  }
}

}  // namespace

int main() {
  const auto inputs = bfo::test::corpus("language");
  if (inputs.size() < 20) broken("test/unit/corpus/language.txt has too few inputs", "");
  for (const auto& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  Dice dice;
  for (int round = 0; round < 30'000; ++round) {
    std::string text = kSeeds[dice(std::size(kSeeds))];
    for (uint64_t n = dice(6); n > 0; --n) mutate(text, dice);
    check(text);
  }
  printf("language_fuzz: 30000 texts\n");
  return 0;
}
#endif
