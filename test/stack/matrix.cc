// SPDX-License-Identifier: BSD-3-Clause
//
// matrix.cc: matrix, the cells of mixture.h from the command line: what a job gets out of rails that are not
// equal, one line for each cell, and how many keep each bound.
#include <fnmatch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "test/stack/mixture.h"

namespace {

using namespace bfo::stack;

int usage() {
  std::fprintf(
      stderr,
      "usage: matrix [--all|--few|--crowded|--draw N] [--seed N] [--list] [--rate BYTES] [--known FILE] "
      "[--quiet]\n"
      "              [PATTERN|CELL...]\n"
      "Measures mixtures of rails in virtual time: a choice of them, all, a few, crowded ones, or N that "
      "are\n"
      "drawn. PATTERN chooses by name, as the shell matches file names; CELL is the name of any cell:\n"
      "PROTOCOL.RAILS[-SLOW].RATIO.WHEN.SIZE.WINDOW.TRAFFIC[.CPU][.WEIGHTS]\n"
      "(rails 3-0: three, and the first is the slow one, else the last; size 8-4M: messages of 8 B to 4 "
      "MiB;\n"
      "window w4: four messages are always under way; o4: they leave it in their order; b4: the next four "
      "begin\n"
      "when all four are there)\n"
      "  --seed   of what is drawn (1)\n"
      "  --rate   of a good rail, bytes per second (1000000000)\n"
      "  --known  a file of lines PATTERN BOUND # WHY: these cells need not keep that bound\n"
      "  --quiet  only cells that break a bound, and the summary\n"
      "Exit status 1: a cell breaks a bound that it is to keep.\n");
  return 2;
}

/// Cells that are known to break a bound.
struct Known {
  std::string pattern;
  std::string bound;
  std::string why;
  uint64_t broken = 0;
  uint64_t kept = 0;
};

bool read_known(const char* path, std::vector<Known>* out) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    Known k;
    std::string hash;
    std::istringstream words(line);
    if (!(words >> k.pattern >> k.bound >> hash) || hash != "#" || !std::getline(words, k.why)) {
      std::fprintf(stderr, "matrix: %s: \"%s\" is not PATTERN BOUND # WHY\n", path, line.c_str());
      return false;
    }
    out->push_back(k);
  }
  if (!file.eof()) std::fprintf(stderr, "matrix: cannot read %s\n", path);
  return file.eof();
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

struct Tally {
  uint64_t kept = 0;
  uint64_t known = 0;  // broken, as expected
  uint64_t broken = 0;
};

struct Run {
  std::vector<Known> known;
  Tally best, sum, share, word;
  uint64_t failed = 0;

  /// How a cell stands to one bound.
  const char* judge(const std::string& cell, const char* bound, bool kept, Tally* tally) {
    bool expected = false;
    for (Known& k : known) {
      if (k.bound != bound || !matches(k.pattern, cell)) continue;
      expected = true;
      ++(kept ? k.kept : k.broken);
    }
    ++(kept ? tally->kept : expected ? tally->known : tally->broken);
    return kept ? "kept" : expected ? "known" : "BROKEN";
  }
};

void print_tally(const char* name, const Tally& t) {
  const auto u = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf("bound %-5s %5llu kept, %5llu known to break it, %5llu BROKEN\n", name, u(t.kept), u(t.known),
              u(t.broken));
}

}  // namespace

int main(int argc, char** argv) {
  bool all = false, few = false, crowded = false, list = false, quiet = false;
  uint64_t rate = 1'000'000'000, draw = 0, seed = 1;
  std::vector<Cell> named;
  std::vector<std::string> patterns;
  Run run;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (a == "--all") {
      all = true;
    } else if (a == "--few") {
      few = true;
    } else if (a == "--crowded") {
      crowded = true;
    } else if (a == "--list") {
      list = true;
    } else if (a == "--quiet") {
      quiet = true;
    } else if (a == "--rate" && value != nullptr) {
      rate = std::strtoull(value, nullptr, 10);
      if (rate < 1'000'000) return usage();
      ++i;
    } else if ((a == "--draw" || a == "--seed") && value != nullptr) {
      (a == "--draw" ? draw : seed) = std::strtoull(value, nullptr, 10);
      ++i;
    } else if (a == "--known" && value != nullptr) {
      if (!read_known(value, &run.known)) return 2;
      ++i;
    } else if (a[0] == '-') {
      return usage();
    } else if (Cell c; cell_of(a, &c)) {
      named.push_back(c);
    } else {
      patterns.push_back(a);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  Mixtures mixtures(rate);
  uint64_t cells = 0;
  std::vector<Cell> choice;
  if (!patterns.empty() || named.empty())
    choice = all         ? all_cells()
             : few       ? few_cells()
             : crowded   ? crowded_cells()
             : draw != 0 ? drawn_cells(seed, draw)
                         : chosen_cells();
  const size_t by_name = choice.size();
  choice.insert(choice.end(), named.begin(), named.end());
  for (size_t i = 0; i < choice.size(); ++i) {
    const Cell& c = choice[i];
    const std::string name = name_of(c);
    bool chosen = patterns.empty() || i >= by_name;
    for (const std::string& p : patterns) chosen = chosen || matches(p, name);
    if (!chosen) continue;
    ++cells;
    if (list) {
      std::printf("%s\n", name.c_str());
      continue;
    }
    const Figures f = mixtures.measure(c);
    if (!f.failure.empty()) {
      ++run.failed;
      std::printf("cell name=%s FAILED %s\n", name.c_str(), f.failure.c_str());
      continue;
    }
    const char* const best = run.judge(name, "best", f.best_kept, &run.best);
    const char* const sum = mixtures.sums(c) ? run.judge(name, "sum", f.sum_kept, &run.sum) : "none";
    const char* const share = run.judge(name, "share", f.share_kept, &run.share);
    const char* const word = run.judge(name, "word", f.word_kept, &run.word);
    if (quiet && f.best_kept && f.sum_kept && f.share_kept && f.word_kept) continue;
    std::printf(
        "cell name=%s MB/s=%.1f best=%.1f sum=%.1f of_best=%.3f of_sum=%.3f share=%.4f fair=%.4f whole=%.3f "
        "words=%llu degraded=%llu recovered=%llu losses=%llu bounds=%s/%s/%s/%s\n",
        name.c_str(), f.goodput / 1e6, f.best / 1e6, f.sum / 1e6, f.of_best, f.of_sum, f.share, f.fair,
        f.whole, static_cast<unsigned long long>(f.words), static_cast<unsigned long long>(f.degraded),
        static_cast<unsigned long long>(f.recovered), static_cast<unsigned long long>(f.losses), best, sum,
        share, word);
    std::fflush(stdout);
  }
  if (list) return 0;
  bool bad = run.failed != 0 || run.best.broken + run.sum.broken + run.share.broken + run.word.broken != 0;
  for (const Known& k : run.known) {
    if (k.kept == 0 || k.broken != 0) continue;
    std::printf("no cell of \"%s\" breaks the bound %s any more: the line can go\n", k.pattern.c_str(),
                k.bound.c_str());
  }
  print_tally("best", run.best);
  print_tally("sum", run.sum);
  print_tally("share", run.share);
  print_tally("word", run.word);
  std::printf("%llu cells, %llu runs failed, %.1f s\n", static_cast<unsigned long long>(cells),
              static_cast<unsigned long long>(run.failed),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (cells == 0) {
    std::fprintf(stderr, "matrix: no cell has such a name\n");
    return 2;
  }
  return bad ? 1 : 0;
}
