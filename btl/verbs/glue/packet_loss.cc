// SPDX-License-Identifier: BSD-3-Clause
//
// packet_loss.cc: packets that a port loses: one process of a host reads what the device counts, and tells
// the PML of each episode. Ports are known by their address, as several hosts may be played on one.
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

/// Who has not asked for so long leaves the port to another process. All that compute for some seconds
/// between their messages still have the same reader, who sees one term after the other.
constexpr uint64_t kLapseNs = 30'000'000'000;
/// And who has ended, when it is not only late.
constexpr uint64_t kEndedNs = 3'500'000'000;

uint64_t key_of(const Module& module, const char* what) {
  char name[sizeof bfo_rail_info_t::own_port];
  engine::name_port(module.port.address(), name, sizeof name);
  return claim_key(what, name, module.port.number(), module.port.device().name());
}

uint64_t loss_key(const Module& module, bool in) {
  return key_of(module, in ? "packet loss in" : "packet loss out");
}

void tell(Module& module, const engine::PortLoss& loss, bool lossy) {
  if (!module.bound) return;
  bfo_port_loss_t told{};
  snprintf(told.device, sizeof told.device, "%s", module.port.device().name());
  told.port = module.port.number();
  told.in = loss.in ? 1 : 0;
  told.lossy = lossy ? 1 : 0;
  told.signs = loss.signs;
  told.packets = loss.packets;
  told.ns = loss.ns;
  module.sink.port_loss(module.sink_ctx, &module.super, &told);
}

}  // namespace

engine::LossTurn loss_turn(void* ctx, uint64_t now) {
  Claims& claims = mca_btl_verbs_component.claims;
  switch (claims.hold(key_of(*static_cast<Module*>(ctx), "packet loss is read"), now, kLapseNs, kEndedNs)) {
    case Claims::Hold::kOthers:
      return engine::LossTurn::kOthers;
    case Claims::Hold::kTaken:
      return engine::LossTurn::kTaken;
    case Claims::Hold::kKept:
      break;
  }
  return engine::LossTurn::kKept;
}

bool loss_goes_on(void* ctx, bool in) {
  Module& module = *static_cast<Module*>(ctx);
  return module.losses[in ? 1 : 0].begin(mca_btl_verbs_component.claims, loss_key(module, in));
}

void packet_loss(void* ctx, const engine::PortLoss& loss) {
  Module& module = *static_cast<Module*>(ctx);
  LossEpisode& episode = module.losses[loss.in ? 1 : 0];
  const LossEpisode::Word word =
      episode.hear(mca_btl_verbs_component.claims, loss_key(module, loss.in), loss);
  if (word != LossEpisode::Word::kNone) tell(module, loss, word == LossEpisode::Word::kLossy);
}

}  // namespace bfo::verbs
