// SPDX-License-Identifier: BSD-3-Clause
//
// packet_loss.cc: packets that a port loses: one process of a host reads what the device counts, and tells
// the PML of each episode. Ports are known by their address, as several hosts may be played on one.
#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

/// Who has not asked for so long leaves the port to another process.
constexpr uint64_t kLapseNs = 3'500'000'000;
/// What goes on is not told again, and what comes back soon ever more seldom.
constexpr uint64_t kQuietNs = 10'000'000'000;
constexpr uint64_t kLongestQuietNs = 640'000'000'000;

uint64_t key_of(const Module& module, const char* what) {
  char name[sizeof bfo_rail_info_t::own_port];
  engine::name_port(module.port.address(), name, sizeof name);
  return claim_key(what, name, module.port.number(), module.port.device().name());
}

void tell(Module& module, const engine::PortLoss& loss) {
  if (!module.bound) return;
  bfo_port_loss_t told{};
  snprintf(told.device, sizeof told.device, "%s", module.port.device().name());
  told.port = module.port.number();
  told.in = loss.in ? 1 : 0;
  told.lossy = loss.stage == engine::LossStage::kBegins ? 1 : 0;
  told.signs = loss.signs;
  told.packets = loss.packets;
  told.ns = loss.ns;
  module.sink.port_loss(module.sink_ctx, &module.super, &told);
}

}  // namespace

engine::LossTurn loss_turn(void* ctx, uint64_t now) {
  Claims& claims = mca_btl_verbs_component.claims;
  switch (claims.hold(key_of(*static_cast<Module*>(ctx), "packet loss is read"), now, kLapseNs)) {
    case Claims::Hold::kOthers:
      return engine::LossTurn::kOthers;
    case Claims::Hold::kTaken:
      return engine::LossTurn::kTaken;
    case Claims::Hold::kKept:
      break;
  }
  return engine::LossTurn::kKept;
}

void packet_loss(void* ctx, const engine::PortLoss& loss) {
  Module& module = *static_cast<Module*>(ctx);
  Claims& claims = mca_btl_verbs_component.claims;
  const uint64_t key = key_of(module, loss.in ? "packet loss in" : "packet loss out");
  bool& mine = module.loss_told[loss.in ? 1 : 0];
  switch (loss.stage) {
    case engine::LossStage::kBegins:
      mine = claims.take(key, loss.now, kQuietNs, kLongestQuietNs).mine;
      if (mine) tell(module, loss);
      return;
    case engine::LossStage::kGoesOn:
      claims.renew(key, loss.now);
      return;
    case engine::LossStage::kIsOver:
      if (mine) tell(module, loss);
      mine = false;
      return;
  }
}

}  // namespace bfo::verbs
