// SPDX-License-Identifier: BSD-3-Clause
//
// receives.cc: the number of a port's receive buffers follows what arrives. It doubles when they run short.
// When the most that was found waiting in a row would fit eight times, half of them retire (srq.h). An
// application whose bursts come back takes them again: each time that happens the wait before they retire
// doubles, so that registration does not become a part of its rhythm.
#include <algorithm>
#include <utility>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

constexpr uint64_t kRetryNs = 1'000'000'000;  // after memory was short
constexpr uint32_t kSpare = 8;                // buffers for each that was needed, before some retire
constexpr uint64_t kMostPauses = 64;          // times Config::receive_quiet_ns

/// A command of `port`.
template <typename Base>
struct Of : Base {
  Port* port = nullptr;
};

}  // namespace

void Port::grow_receives() {
  srq_.note_shortage();
  if (receives_.growing || state_ == PortState::kDead) return;
  if (receives_.shrank) {
    receives_.shrank = false;
    receives_.review_pause_ns =
        std::min(2 * receives_.review_pause_ns, kMostPauses * config_.receive_quiet_ns);
  }
  const uint64_t now = env_.now_ns();
  if (srq_.retiring()) {
    receives_.next_review_ns = now + receives_.review_pause_ns;
    srq_.keep();
    return arm_receives();
  }
  if (now < receives_.next_growth_ns) return;
  auto* const growth = make<Of<SrqGrowth>>();
  if (growth == nullptr) return receives_grown(SrqGrowth{});
  if (!srq_.plan(*growth)) return unmake(growth);
  growth->port = this;
  growth->done = [](Command& self) {
    auto& ended = static_cast<Of<SrqGrowth>&>(self);
    ended.port->receives_grown(ended);
    unmake(&ended);
  };
  receives_.growing = true;
  lanes_.registrations.submit(*growth, Urgency::kNormal);
}

/// One request at a time: the last one says how many buffers there are.
void Port::arm_receives() {
  if (receives_.arming != ReceiveSizing::Arming::kIdle) {
    receives_.arming = ReceiveSizing::Arming::kOutdated;
    return;
  }
  auto* const arm = make<Of<SrqArm>>();
  if (arm == nullptr) return;  // without memory it is noticed later that they run short
  if (!srq_.plan(*arm)) return unmake(arm);
  arm->port = this;
  arm->done = [](Command& self) {
    auto& ended = static_cast<Of<SrqArm>&>(self);
    ended.port->receives_armed();
    unmake(&ended);
  };
  receives_.arming = ReceiveSizing::Arming::kAsked;
  lanes_.registrations.submit(*arm, Urgency::kNormal);
}

void Port::receives_armed() {
  const auto was = std::exchange(receives_.arming, ReceiveSizing::Arming::kIdle);
  if (was == ReceiveSizing::Arming::kOutdated) arm_receives();
}

void Port::receives_grown(const SrqGrowth& growth) {
  receives_.growing = false;
  const uint64_t now = env_.now_ns();
  if (growth.chunk != nullptr) {
    receives_.next_review_ns = now + receives_.review_pause_ns;
    srq_.grown(growth);
    return arm_receives();
  }
  if (growth.dropped) return;
  // Messages go on with the buffers there are.
  ++resources_.failures[static_cast<size_t>(Object::kMemory)];
  receives_.next_growth_ns = now + kRetryNs;
}

void Port::review_receives(uint64_t now) {
  if (!srq_.grown() || receives_.growing || state_ == PortState::kDead) return;
  if (srq_.all_home()) return shrink_receives();
  if (srq_.retiring()) return;
  if (now < receives_.next_review_ns) return;
  receives_.next_review_ns = now + receives_.review_pause_ns;
  if (srq_.take_peak() > srq_.made() / kSpare) return;
  receives_.shrank = true;
  srq_.retire();
}

void Port::shrink_receives() {
  auto* const shrink = make<Of<SrqShrink>>();
  if (shrink == nullptr) return;
  srq_.plan(*shrink);
  arm_receives();
  shrink->port = this;
  shrink->done = [](Command& self) {
    auto& ended = static_cast<Of<SrqShrink>&>(self);
    ended.port->receives_shrunk(ended);
    unmake(&ended);
  };
  lanes_.registrations.submit(*shrink, Urgency::kLast);
}

void Port::receives_shrunk(const SrqShrink& shrink) {
  if (shrink.chunk != nullptr) srq_.refused(shrink);
}

}  // namespace bfo::engine
