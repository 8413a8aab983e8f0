// SPDX-License-Identifier: BSD-3-Clause
//
// loss_episode.h: when a port that loses packets is told of, of all processes of its host by one: the one
// that reads what the port counts. It may be another one at the end than at the start.
#pragma once

#include <cstdint>
#include <utility>

#include "btl/verbs/engine/port/host.h"
#include "common/claims.h"

namespace bfo::verbs {

/// Of one port, one way; `key` is its name. By the progress function.
class LossEpisode {
 public:
  /// What comes back soon is told later, if it lasts, and each time later still.
  static constexpr uint64_t kQuietNs = 10'000'000'000;
  static constexpr uint64_t kLongestQuietNs = 640'000'000'000;

  enum class Word : uint8_t { kNone, kLossy, kWell };

  /// This process reads from now on. True: the one before has told of an episode, and not of its end.
  bool begin(const Claims& claims, uint64_t key) {
    told_ = claims.lasts(key);
    return told_;
  }
  /// What is to be told now.
  Word hear(Claims& claims, uint64_t key, const engine::PortLoss& loss) {
    if (loss.stage == engine::LossStage::kIsOver)
      return std::exchange(told_, false) && claims.end(key) ? Word::kWell : Word::kNone;
    if (told_) {
      claims.renew(key, loss.now);
      return Word::kNone;
    }
    // Without numbers there is nothing to tell.
    if (loss.signs == 0 || !claims.take(key, loss.now, kQuietNs, kLongestQuietNs).mine) return Word::kNone;
    told_ = true;
    claims.begin(key);
    return Word::kLossy;
  }

 private:
  bool told_ = false;
};

}  // namespace bfo::verbs
