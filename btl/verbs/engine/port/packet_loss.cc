// SPDX-License-Identifier: BSD-3-Clause
//
// packet_loss.cc: see packet_loss.h.
#include "btl/verbs/engine/port/packet_loss.h"

#include <utility>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {

bool goes_on(const Host& host, bool in) {
  return host.loss_goes_on != nullptr && host.loss_goes_on(host.ctx, in);
}

}  // namespace

/// A thread that is left behind may still read when the port is gone: it writes here only.
struct PacketLoss::Reading : Command {
  PacketLoss* loss = nullptr;
  const VerbsApi* api = nullptr;
  ibv_context* context = nullptr;
  const Host* host = nullptr;
  const bool* finalizing = nullptr;
  uint64_t now = 0;
  uint8_t number = 1;
  bool skip = false;
  LossCounters files;
  LossCounts counts;
};

void PacketLoss::open(uint32_t per_million) {
  out_.set_limit(per_million);
  in_.set_limit(per_million);
  next_ns_ = per_million != 0 ? 0 : UINT64_MAX;
}

void PacketLoss::look(const Look& at) {
  next_ns_ = at.now + kLookNs;
  if (at.api.port_losses == nullptr || files_.none()) {
    next_ns_ = UINT64_MAX;
    return;
  }
  const bool idle = at.work == work_;
  work_ = at.work;
  // The next reading must know it, whenever that is.
  rail_ended_ = rail_ended_ || at.rails_ended != rails_ended_;
  rails_ended_ = at.rails_ended;
  if (idle || under_way_) return;
  const LossTurn turn =
      at.host.loss_turn != nullptr ? at.host.loss_turn(at.host.ctx, at.now) : LossTurn::kKept;
  if (turn == LossTurn::kOthers) return;
  if (turn == LossTurn::kTaken) {
    out_.begin(goes_on(at.host, false));
    in_.begin(goes_on(at.host, true));
  }
  auto* const reading = make<Reading>();
  if (reading == nullptr) return;  // the next second will do
  reading->loss = this;
  reading->api = &at.api;
  reading->context = at.context;
  reading->host = &at.host;
  reading->finalizing = &at.finalizing;
  reading->now = at.now;
  reading->number = at.number;
  reading->skip = std::exchange(rail_ended_, false);
  reading->files = files_;
  reading->droppable = true;
  reading->brief = true;
  reading->run = [](Command& self) {
    auto& r = static_cast<Reading&>(self);
    if (r.api->port_losses(r.context, r.number, &r.files, &r.counts) != 0) r.counts = {};
  };
  reading->done = [](Command& self) {
    auto* const r = static_cast<Reading*>(&self);
    r->loss->under_way_ = false;
    if (!r->dropped && !*r->finalizing) r->loss->take(*r);
    unmake(r);
  };
  under_way_ = true;
  at.lane.submit(*reading, Urgency::kLast);
}

void PacketLoss::take(const Reading& reading) {
  files_ = reading.files;
  take(out_, false, reading.counts.out, reading);
  take(in_, true, reading.counts.in, reading);
}

void PacketLoss::take(LossMeter& meter, bool in, const LossCount& count, const Reading& reading) {
  LossMeter::Word word = LossMeter::Word::kNone;
  if (reading.skip)
    meter.skip(count, reading.now);
  else
    word = meter.take(count, reading.now);
  if (word == LossMeter::Word::kLossy) ++found_;
  if ((word == LossMeter::Word::kNone && !meter.lossy()) || reading.host->packet_loss == nullptr) return;
  PortLoss loss{LossStage::kGoesOn, in, 0, 0, 0, reading.now};
  if (word == LossMeter::Word::kLossy) loss.stage = LossStage::kBegins;
  if (word == LossMeter::Word::kWell) loss.stage = LossStage::kIsOver;
  if (word != LossMeter::Word::kNone) {
    loss.signs = meter.signs();
    loss.packets = meter.packets();
    loss.ns = reading.now - meter.since_ns();
  }
  reading.host->packet_loss(reading.host->ctx, loss);
}

}  // namespace bfo::engine
