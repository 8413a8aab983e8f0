// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/program.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace player {
namespace {

// One line: a word, then KEY=VALUE pairs.
struct Line {
  std::string word;
  std::map<std::string, std::string> values;
  int number;

  const std::string& text(const char* key) const {
    const auto found = values.find(key);
    if (found != values.end()) return found->second;
    std::fprintf(stderr, "player: line %d of the program file has no %s=\n", number, key);
    std::exit(2);
  }
  long long whole(const char* key) const { return std::atoll(text(key).c_str()); }
  uint64_t seed(const char* key) const { return std::strtoull(text(key).c_str(), nullptr, 10); }
};

Line parse(const std::string& text, int number) {
  std::istringstream words(text);
  Line line{"", {}, number};
  words >> line.word;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) line.values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return line;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

Message message_of(const Line& line) {
  const auto elements = static_cast<size_t>(line.whole("n"));
  const auto room = static_cast<size_t>(line.whole("room"));
  return {static_cast<int>(line.whole("id")),
          line.text("comm"),
          static_cast<int>(line.whole("from")),
          static_cast<int>(line.whole("to")),
          static_cast<int>(line.whole("tag")),
          line.text("send"),
          line.text("receive"),
          line.text("wild"),
          {line.text("sender"), line.text("base"), elements, line.seed("sseed"), false},
          {line.text("receiver"), line.text("base"), room, line.seed("rseed"), true},
          line.whole("freed") != 0};
}

}  // namespace

std::vector<Program> read_programs(const std::string& path) {
  std::vector<Program> programs;
  std::ifstream in(path);
  if (!in) {
    std::fprintf(stderr, "player: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  int number = 0;
  for (std::string text; std::getline(in, text);) {
    const Line line = parse(text, ++number);
    if (line.word == "program") {
      programs.push_back({line.text("name"), line.seed("seed"), {}});
    } else if (line.word == "batch" && !programs.empty()) {
      programs.back().batches.push_back({static_cast<int>(line.whole("id")),
                                         static_cast<int>(line.whole("waves")),
                                         line.whole("ready") != 0,
                                         line.whole("end") != 0,
                                         split(line.text("finish")),
                                         {}});
    } else if (line.word == "message" && !programs.empty() && !programs.back().batches.empty()) {
      programs.back().batches.back().messages.push_back(message_of(line));
    } else if (!line.word.empty() && line.word[0] != '#') {
      std::fprintf(stderr, "player: line %d of %s: a program, then batches, then messages are expected\n",
                   number, path.c_str());
      std::exit(2);
    }
  }
  return programs;
}

}  // namespace player
