// SPDX-License-Identifier: BSD-3-Clause
//
// failover.cc: the BTL's side of common/failover_btl.h, and the reaction to a rail error under a PML that
// does not use that contract.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/glue/module.h"
#include "btl/verbs/glue/trace.h"
#include "common/version.h"
#include "common/wire_versions.h"

namespace bfo::verbs {
namespace {

static_assert(BFO_RC_DELIVERED == OPAL_SUCCESS);
static_assert(BFO_RC_UNKNOWN == OPAL_ERROR);
static_assert(BFO_RC_NEVER_SENT == OPAL_ERR_UNREACH);

Module& module_from(void* ctx) {
  return *static_cast<Module*>(ctx);
}

/// The pointer that the PML attached to `endpoint`; nullptr: events are not reported.
void* listener(const Module& module, const engine::Endpoint& endpoint) {
  return module.bound ? endpoint.user.load(std::memory_order_acquire) : nullptr;
}

/// The bfo PML was chosen, but it has not bound this BTL: it knows another contract, and is silent about it.
/// A build that asks what contract the BTL has says it itself.
void say_unbound() {
  Component& component = mca_btl_verbs_component;
  if (component.ever_bound || !component.wish.failover) return;
  if (!component.claims.take_once(claim_key("contract", "pml"))) return;
  char text[400];
  const int n = snprintf(
      text, sizeof text,
      "bfo: on host %s the PML bfo does not speak contract %u of the BTL verbs (build %s), and no rail will "
      "survive a failure: install mca_pml_bfo.so and mca_btl_verbs.so of one build\n",
      opal_process_info.nodename, BFO_FAILOVER_VERSION, kBuild);
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, std::min(sizeof text - 1, static_cast<size_t>(n)));
}

/// Without a failover PML a lost rail ends the job, as with any other BTL. Prints which rail and why.
void report_fatal(Module& module, engine::Endpoint& endpoint, const bfo_rail_event_t& event) {
  if (module.error_reported) return;
  module.error_reported = true;
  opal_proc_t* proc = proc_of(endpoint);
  say(false, "rail-lost", opal_process_info.nodename, event.info.device, event.info.port,
      HostName(*proc).text(), event.info.peer_port, event.text, event.code, event.vendor_err,
      mca_btl_verbs_component.wish.failover
          ? "The PML bfo in use does not know this BTL: install both components of one build."
          : "With \"--mca pml bfo\" the job would continue on its other rails.");
  if (module.error_cb != nullptr)
    module.error_cb(&module.super, MCA_BTL_ERROR_FLAGS_FATAL, proc, const_cast<char*>("verbs rail lost"));
}

/// The ports of this process.
engine::Port* const* all_ports() {
  return mca_btl_verbs_component.ports;
}
int port_count() {
  return mca_btl_verbs_component.module_count;
}

void on_rail_up(void* ctx, engine::Endpoint& endpoint, const bfo_rail_event_t& event) {
  Module& module = module_from(ctx);
  trace_rail(endpoint, endpoint.last_closed() != nullptr ? "back" : "up", event);
  const bool offered = (module.super.btl_flags & MCA_BTL_FLAGS_FAILOVER_SUPPORT) != 0;
  if (!module.bound && offered) say_unbound();  // a PML says by itself that the user has taken the flag away
  // A peer sends no connect request to a port that was down when its address was published. This side
  // connects such a port when another rail to the peer is up.
  engine::connect_others(all_ports(), port_count(), endpoint, true);
  if (void* const rail = listener(module, endpoint)) module.sink.rail_up(module.sink_ctx, rail, &event);
}

void on_rail_suspect(void* ctx, engine::Endpoint& endpoint, const bfo_rail_event_t& event) {
  Module& module = module_from(ctx);
  trace_rail(endpoint, "suspect", event);
  if (void* const rail = listener(module, endpoint)) module.sink.rail_suspect(module.sink_ctx, rail, &event);
}

void on_rail_down(void* ctx, engine::Endpoint& endpoint, const bfo_rail_event_t& event) {
  Module& module = module_from(ctx);
  const bool late = event.cause == BFO_CAUSE_HANDSHAKE && event.code == EINPROGRESS;
  trace_rail(endpoint, late ? "not up yet" : "down", event);
  if (module.bound) {
    if (void* const rail = listener(module, endpoint)) module.sink.rail_down(module.sink_ctx, rail, &event);
  } else if (event.cause != BFO_CAUSE_SHUTDOWN && !endpoint.drain().cause_open) {
    report_fatal(module, endpoint, event);
  }
}

void on_cause_known(void* ctx, engine::Endpoint& endpoint, const bfo_rail_event_t& event) {
  Module& module = module_from(ctx);
  trace_rail(endpoint, "down because", event);
  if (!module.bound) report_fatal(module, endpoint, event);
}

/// The loss of the rail was reported as any other is; that it stays lost is not seen there.
void say_not_destroyed(const Module& module, const engine::Endpoint& endpoint) {
  if (!endpoint.last().not_destroyed || endpoint.last().leaving || endpoint.peer.left) return;
  say(true, "not-destroyed", opal_process_info.nodename, module.port.device().name(), module.port.number(),
      HostName(*proc_of(endpoint)).text());
}

void on_rail_closed(void* ctx, engine::Endpoint& endpoint, const bfo_rail_event_t& event,
                    bfo_fence_result_t result, uint64_t delivered) {
  Module& module = module_from(ctx);
  trace_rail(endpoint, result == BFO_FENCED ? "closed (fenced)" : "closed (cannot be fenced)", event);
  if (module.bound) say_not_destroyed(module, endpoint);
  if (void* const rail = listener(module, endpoint))
    module.sink.rail_closed(module.sink_ctx, rail, &event, result, delivered);
}

void on_gap_lost(void* ctx, engine::Endpoint& endpoint, const bfo_rail_name_t& name, uint64_t lost) {
  Module& module = module_from(ctx);
  if (void* const rail = listener(module, endpoint)) module.sink.gap_lost(module.sink_ctx, rail, &name, lost);
}

/// The user's own figure (btl_verbs_bandwidth) stays.
void on_rate_changed(void* ctx, const engine::PortRate& before, const engine::PortRate& now, int32_t event) {
  Module& module = module_from(ctx);
  trace_rate(module, before, now, engine::event_name(event));
  if (module.fixed_rate) return;
  say_guessed_rate(module);
  __atomic_store_n(&module.super.btl_bandwidth, now.mbit, __ATOMIC_RELAXED);
  if (!module.bound) return;
  bfo_port_speed_t speed{};
  snprintf(speed.device, sizeof speed.device, "%s", module.port.device().name());
  speed.port = module.port.number();
  speed.before = before.mbit;
  speed.now = now.mbit;
  snprintf(speed.text, sizeof speed.text, "%s", engine::event_name(event));
  module.sink.port_speed(module.sink_ctx, &module.super, &speed);
}

int rails(void*, uint64_t peer_name, engine::Endpoint** out, int room) {
  return engine::rails_to(all_ports(), port_count(), peer_name, out, room);
}

bool other_rail_up(void*, engine::Endpoint& endpoint) {
  return engine::other_rail_up(all_ports(), port_count(), endpoint);
}

void connect_other_rails(void*, engine::Endpoint& endpoint) {
  engine::connect_others(all_ports(), port_count(), endpoint, false);
}

/// Called on changes only: before kUnknown the peer was alive and busy.
const char* pinged_text(engine::Pinged state) {
  switch (state) {
    case engine::Pinged::kAnswers:
      return "peer is alive, but busy";
    case engine::Pinged::kSilent:
      return "peer is silent";
    case engine::Pinged::kUnknown:
      break;
  }
  return "peer is not asked any more";
}

void on_peer_answers(void* ctx, engine::Endpoint& endpoint, bool answers) {
  Module& module = module_from(ctx);
  if (traces(kTraceRails))
    trace_rail(endpoint, pinged_text(endpoint.pings().state),
               engine::make_event(endpoint, BFO_CAUSE_NONE, 0, 0, 0));
  if (void* const rail = listener(module, endpoint))
    module.sink.peer_answers(module.sink_ctx, rail, answers ? 1 : 0);
}

// ---- the C ABI

int bind(mca_btl_base_module_t* btl, const bfo_failover_sink_t* sink, void* ctx) {
  Module& module = *module_of(btl);
  if (sink == nullptr) {
    module.bound = false;
    module.port.set_failover(false);
    module.port.stop_callbacks();
    return OPAL_SUCCESS;
  }
  if (sink->size < sizeof(bfo_failover_sink_t)) return OPAL_ERR_BAD_PARAM;
  module.sink = *sink;
  module.sink_ctx = ctx;
  module.bound = true;
  mca_btl_verbs_component.ever_bound = true;
  module.port.set_failover(true);
  return OPAL_SUCCESS;
}

uint32_t never_up(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, char* why, size_t size) {
  const engine::Guard guard(endpoint->engine.port->lock());
  return engine::never_up(endpoint->engine, why, size);
}

int leave(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint) {
  return engine::rail_leave(endpoint->engine) ? 1 : 0;
}

int rail_info(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, bfo_rail_info_t* out) {
  const engine::Guard guard(endpoint->engine.port->lock());
  engine::rail_info(endpoint->engine, out);
  return OPAL_SUCCESS;
}

int attach(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, void* rail, bfo_rail_info_t* now) {
  engine::rail_attach(endpoint->engine, rail, now);
  return OPAL_SUCCESS;
}

int connect(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint) {
  engine::rail_connect(endpoint->engine);
  return OPAL_SUCCESS;
}

int fence(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, uint32_t epoch) {
  engine::rail_fence(endpoint->engine, epoch);
  return OPAL_SUCCESS;
}

int peer_down(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, const bfo_rail_name_t* name,
              int32_t peer_cause) {
  engine::rail_peer_down(endpoint->engine, *name, peer_cause);
  return OPAL_SUCCESS;
}

int peer_closed(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, const bfo_rail_name_t* name,
                uint64_t delivered) {
  engine::rail_peer_closed(endpoint->engine, *name, delivered);
  return OPAL_SUCCESS;
}

// What no rail takes now is no module's: it counts with the first one's.
uint64_t outstanding(mca_btl_base_module_t* btl) {
  const Component& component = mca_btl_verbs_component;
  Module& module = *module_of(btl);
  const uint64_t kept = component.modules[0] == &module ? component.kept.count() : 0;
  return engine::port_outstanding(module.port) + kept;
}

int accounting(mca_btl_base_module_t* btl, bfo_accounting_t* out) {
  engine::Port& port = module_of(btl)->port;
  const engine::Guard guard(port.lock());
  *out = port.accounting();
  out->dropped += port.heartbeat().dropped();
  return OPAL_SUCCESS;
}

int work(mca_btl_base_module_t*, mca_btl_base_endpoint_t* endpoint, uint64_t* taken, uint64_t* ended) {
  const engine::Work now = engine::rail_work(endpoint->engine);
  *taken = now.taken;
  *ended = now.ended;
  return OPAL_SUCCESS;
}

// The list of modules changes at both ends of the process's life only.
void host_ports(bfo_host_ports_t* out) {
  const Component& component = mca_btl_verbs_component;
  *out = {};
  out->expected = component.shortfall.expected;
  static_assert(sizeof out->missing == sizeof component.shortfall.missing);
  static_assert(sizeof out->remedy == sizeof component.shortfall.remedy);
  memcpy(out->missing, component.shortfall.missing, sizeof out->missing);
  memcpy(out->remedy, component.shortfall.remedy, sizeof out->remedy);
  for (int i = 0; i < component.module_count; ++i) {
    engine::Port& port = component.modules[i]->port;
    const engine::Guard guard(port.lock());
    out->up += port.state() == engine::PortState::kActive ? 1 : 0;
  }
}

}  // namespace

void payload_failed(void* ctx, engine::Endpoint& endpoint, uint8_t tag, const void* data, uint32_t length,
                    int status) {
  Module& module = module_from(ctx);
  if (!is_of_pml(tag)) {
    foreign_failed(module, endpoint, tag, data, length);
    return;
  }
  if (void* const rail = listener(module, endpoint))
    module.sink.sendi_failed(module.sink_ctx, rail, tag, data, length, status);
}

bool foreign_failed(Module& module, engine::Endpoint& endpoint, uint8_t tag, const void* data,
                    size_t length) {
  if (goes_elsewhere(tag))
    return send_elsewhere(endpoint, tag, data, length) || keep(endpoint, tag, data, length);
  if (!is_of_window(tag) || !module.bound || module.error_reported || module.error_cb == nullptr)
    return false;
  // It returns when the peer is a process that has died: a later loss is another matter.
  module.error_cb(&module.super, MCA_BTL_ERROR_FLAGS_NONFATAL, proc_of(endpoint),
                  const_cast<char*>("one-sided communication"));
  return false;
}

int register_error(mca_btl_base_module_t* btl, mca_btl_base_module_error_cb_fn_t callback) {
  module_of(btl)->error_cb = callback;
  return OPAL_SUCCESS;
}

engine::Host make_host(Module& module) {
  return engine::Host{
      .ctx = &module,
      .deliver = deliver,
      .frag_done = frag_done,
      .payload_failed = payload_failed,
      .rail_up = on_rail_up,
      .rail_suspect = on_rail_suspect,
      .rail_down = on_rail_down,
      .rail_closed = on_rail_closed,
      .cause_known = on_cause_known,
      .gap_lost = on_gap_lost,
      .rate_changed = on_rate_changed,
      .loss_turn = loss_turn,
      .loss_goes_on = loss_goes_on,
      .packet_loss = packet_loss,
      .find_peer = find_peer,
      .rails = rails,
      .other_rail_up = other_rail_up,
      .connect_other_rails = connect_other_rails,
      .peer_answers = on_peer_answers,
      .prepare = pools_prepare,
      .prepare_needs = pools_need,
      .rail_missing = rail_missing,
      .comes_seldom = [](void*, uint64_t ns) { mca_btl_verbs_component.stay_ns = ns; },
      .peer_gids = peer_gids,
      .path_unknown = path_unknown,
      .packet = packet_trace(),
      .thread_missing = thread_missing,
      .dropped = drop_trace(),
  };
}

}  // namespace bfo::verbs

extern "C" const bfo_failover_btl_t mca_btl_verbs_failover = {
    .magic = BFO_FAILOVER_MAGIC,
    .version = BFO_FAILOVER_VERSION,
    .size = sizeof(bfo_failover_btl_t),
    .build = bfo::kBuild,
    .bind = bfo::verbs::bind,
    .rail_info = bfo::verbs::rail_info,
    .attach = bfo::verbs::attach,
    .connect = bfo::verbs::connect,
    .fence = bfo::verbs::fence,
    .peer_down = bfo::verbs::peer_down,
    .peer_closed = bfo::verbs::peer_closed,
    .send_bytes = bfo::verbs::send_bytes,
    .outstanding = bfo::verbs::outstanding,
    .accounting = bfo::verbs::accounting,
    .work = bfo::verbs::work,
    .never_up = bfo::verbs::never_up,
    .peer_port = bfo::verbs::peer_port,
    .leave = bfo::verbs::leave,
    .host_ports = bfo::verbs::host_ports,
    .peer_ports = bfo::verbs::peer_ports,
};
