// SPDX-License-Identifier: BSD-3-Clause
//
// match_model.h: MPI's matching rules for one process and one communicator, as plainly as they can be
// written: every search walks from the oldest to the youngest. What the engine does is compared with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "pml/bfo/xfer/state.h"

namespace bfo::test {

struct ModelMessage {
  int src = 0;
  int tag = 0;
  uint16_t seq = 0;
  bool operator==(const ModelMessage&) const = default;
};

/// Receives are known by a number the test gives them.
class MatchModel {
 public:
  using Match = std::pair<int, ModelMessage>;  ///< receive and message

  /// A message reaches the process. What is matched by it and by those that waited for it.
  std::vector<Match> arrive(const ModelMessage& m) {
    std::vector<Match> made;
    auto& expected = expected_[m.src];
    early_[{m.src, m.seq}] = m;
    for (auto at = early_.find({m.src, expected}); at != early_.end();
         at = early_.find({m.src, ++expected})) {
      if (auto match = deliver(at->second)) made.push_back(*match);
      early_.erase(at);
    }
    return made;
  }
  /// The message that a new receive is matched with.
  std::optional<ModelMessage> post(int receive, int src, int tag) {
    auto m = take(src, tag);
    if (!m) posted_.push_back({receive, src, tag});
    return m;
  }
  bool cancel(int receive) {
    return std::erase_if(posted_, [&](const Posted& p) { return p.receive == receive; }) != 0;
  }
  std::optional<ModelMessage> probe(int src, int tag) const {
    for (const ModelMessage& m : unexpected_)
      if (matches(src, tag, m)) return m;
    return {};
  }
  std::optional<ModelMessage> take(int src, int tag) {
    auto m = probe(src, tag);
    if (m) unexpected_.erase(std::find(unexpected_.begin(), unexpected_.end(), *m));
    return m;
  }
  size_t posted() const { return posted_.size(); }
  size_t unexpected() const { return unexpected_.size(); }
  size_t posted(int src) const {
    return static_cast<size_t>(
        std::count_if(posted_.begin(), posted_.end(), [&](const Posted& p) { return p.src == src; }));
  }
  size_t unexpected(int src) const {
    return static_cast<size_t>(std::count_if(unexpected_.begin(), unexpected_.end(),
                                             [&](const ModelMessage& m) { return m.src == src; }));
  }

 private:
  struct Posted {
    int receive, src, tag;
  };
  static bool matches(int src, int tag, const ModelMessage& m) {
    if (src != xfer::kAnySource && src != m.src) return false;
    return tag == m.tag || (tag == xfer::kAnyTag && m.tag >= 0);
  }
  std::optional<Match> deliver(const ModelMessage& m) {
    for (auto p = posted_.begin(); p != posted_.end(); ++p) {
      if (!matches(p->src, p->tag, m)) continue;
      const Match made{p->receive, m};
      posted_.erase(p);
      return made;
    }
    unexpected_.push_back(m);
    return {};
  }

  std::map<int, uint16_t> expected_;
  std::map<std::pair<int, uint16_t>, ModelMessage> early_;
  std::vector<Posted> posted_;
  std::vector<ModelMessage> unexpected_;
};

}  // namespace bfo::test
