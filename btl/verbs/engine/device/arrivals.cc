// SPDX-License-Identifier: BSD-3-Clause
//
// arrivals.cc: see arrivals.h.
#include "btl/verbs/engine/device/arrivals.h"

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {

// Who has not asked for so many pauses does not watch the port.
constexpr uint64_t kPauses = 8;

}  // namespace

/// A thread that is left behind may still read when the port is gone: it writes here only.
struct Arrivals::Counting : Command {
  Arrivals* arrivals = nullptr;
  const VerbsApi* api = nullptr;
  ibv_context* context = nullptr;
  uint64_t bytes = 0;
  uint8_t number = 1;
};

void Arrivals::count(ControlLane& lane, const VerbsApi& api, ibv_context* context, uint8_t number,
                     uint64_t now_ns, uint64_t pause_ns) {
  // What came in while nobody watched says nothing of now.
  if (now_ns - called_ns_ > kPauses * pause_ns) {
    bytes_ = 0;
    outdated_ = under_way_;
  }
  called_ns_ = now_ns;
  if (under_way_ || api.port_received == nullptr) return;
  if (asked_ns_ != 0 && now_ns - asked_ns_ < pause_ns) return;
  auto* const counting = make<Counting>();
  if (counting == nullptr) return;  // without it nothing is known of the rail, as of one that cannot count
  counting->arrivals = this;
  counting->api = &api;
  counting->context = context;
  counting->number = number;
  counting->droppable = true;
  counting->run = [](Command& self) {
    auto& c = static_cast<Counting&>(self);
    if (c.api->port_received(c.context, c.number, &c.bytes) != 0) c.bytes = 0;
  };
  counting->done = [](Command& self) {
    auto* const c = static_cast<Counting*>(&self);
    Arrivals& arrivals = *c->arrivals;
    arrivals.under_way_ = false;
    if (!c->dropped && !arrivals.outdated_) arrivals.bytes_ = c->bytes;
    arrivals.outdated_ = false;
    unmake(c);
  };
  asked_ns_ = now_ns;
  under_way_ = true;
  lane.submit(*counting, Urgency::kNormal);
}

}  // namespace bfo::engine
