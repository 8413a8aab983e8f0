// SPDX-License-Identifier: BSD-3-Clause
//
// callbacks.cc: passes messages and reports of the BTLs to the engine, in the engine's types.
//
// P1..P8: contrib/doc/design.md
#include "pml/bfo/glue/callbacks.h"

#include <cerrno>

#include "common/version.h"
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/help.h"
#include "pml/bfo/xfer/contract.h"

namespace bfo::glue {
namespace {

Module& module_of(void* ctx) {
  return *static_cast<Module*>(ctx);
}

EventNames names_of(const bfo_rail_event_t& ev) {
  EventNames names;
  names.device = ev.info.device;
  names.port = ev.info.port;
  return names;
}

Rail* rail_of(void* rail) {
  return static_cast<Rail*>(rail);
}

void message(void* ctx, void* rail, uint32_t epoch, uint8_t tag, const void* data, size_t length) {
  module_of(ctx).engine().on_message(rail_of(rail), epoch, tag, data, length);
}

// The first report about a rail can come while another thread is still adding it. That thread holds the
// engine's lock: the record of the rail is not read before the engine was entered.
void rail_up(void* ctx, void* user, const bfo_rail_event_t* ev) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_up(rail, xfer::event_of(*ev));
  rail->handle.away = module.summary().up(names_of(*ev), rail->handle.away, ev->now_ns);
}

void rail_suspect(void* ctx, void* rail, const bfo_rail_event_t* ev) {
  module_of(ctx).engine().on_rail_suspect(rail_of(rail), xfer::event_of(*ev));
}

void rail_down(void* ctx, void* user, const bfo_rail_event_t* ev) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_down(rail, xfer::event_of(*ev));
  Away& away = rail->handle.away;
  if (xfer::event_of(*ev).given_back) return;
  if (ev->cause == BFO_CAUSE_SHUTDOWN || rail->peer->standing.finalized()) {
    away = module.summary().left(away, ev->now_ns);
  } else if (!(ev->cause == BFO_CAUSE_HANDSHAKE && ev->code == EINPROGRESS)) {
    // One that is late is told of at the end, if it has not come by then.
    away = module.summary().down(names_of(*ev), ev->text, away, rail->up_epoch != 0, ev->now_ns);
  }
}

void rail_closed(void* ctx, void* user, const bfo_rail_event_t* ev, bfo_fence_result_t result,
                 uint64_t delivered) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_closed(rail, xfer::event_of(*ev),
                                 result == BFO_FENCED ? FenceResult::kFenced : FenceResult::kUnfenceable,
                                 delivered);
  if (rail->handle.away != Away::kNo)
    module.summary().closed(names_of(*ev), ev->text, ev->cause == BFO_CAUSE_PEER_DOWN);
}

void sendi_failed(void* ctx, void* rail, uint8_t tag, const void* data, size_t length, int status) {
  module_of(ctx).engine().on_sendi_failed(rail_of(rail), tag, data, length, xfer::fate_of(status));
}

void gap_lost(void* ctx, void* rail, const bfo_rail_name_t* name, uint64_t lost) {
  module_of(ctx).engine().on_gap_lost(rail_of(rail), RailName{name->conn, name->epoch}, lost);
}

void peer_answers(void* ctx, void* rail, int answers) {
  module_of(ctx).engine().on_peer_alive(rail_of(rail), answers != 0);
}

constexpr bfo_failover_sink_t kSink = {sizeof(bfo_failover_sink_t),
                                       kBuild,
                                       message,
                                       rail_up,
                                       rail_suspect,
                                       rail_down,
                                       rail_closed,
                                       sendi_failed,
                                       gap_lost,
                                       peer_answers};

// A message in several segments (self, shared memory with single copy) is put together first.
[[gnu::noinline]] void deliver_gathered(Module& module, uint8_t tag, const mca_btl_base_descriptor_t& des) {
  size_t size = 0;
  for (size_t i = 0; i < des.des_segment_count; ++i) size += des.des_segments[i].seg_len;
  auto* whole = static_cast<uint8_t*>(module.port().alloc(size));
  if (OPAL_UNLIKELY(whole == nullptr)) {
    module.engine().on_message_unstored(nullptr, size);
    return;
  }
  size_t at = 0;
  for (size_t i = 0; i < des.des_segment_count; ++i) {
    const mca_btl_base_segment_t& segment = des.des_segments[i];
    memcpy(whole + at, segment.seg_addr.pval, segment.seg_len);
    at += segment.seg_len;
  }
  module.engine().on_message(nullptr, 0, tag, whole, size);
  module.port().free(whole);
}

}  // namespace

const bfo_failover_sink_t* failover_sink() {
  return &kSink;
}

void on_btl_message(mca_btl_base_module_t*, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* des,
                    void* cbdata) {
  Module& module = module_of(cbdata);
  module.port().note_answer();
  if (OPAL_UNLIKELY(des->des_segment_count != 1)) return deliver_gathered(module, tag, *des);
  const mca_btl_base_segment_t& segment = des->des_segments[0];
  module.engine().on_message(nullptr, 0, tag, segment.seg_addr.pval, segment.seg_len);
}

// Fatal or not, it ends the connection of that BTL to the peer, and never the job (P6). It can be called from
// inside a send that the engine posts, so it is only recorded here.
void on_btl_error(mca_btl_base_module_t* btl, int32_t, opal_proc_t* proc, char* info) {
  Module* module = mca_pml_bfo_component.module;
  if (module == nullptr || module->contract(btl) != nullptr || module->leaving()) return;
  module->note_broken(btl, proc, info);
}

int engine_progress() {
  Module* module = mca_pml_bfo_component.module;
  if (OPAL_UNLIKELY(module == nullptr)) return 0;
  module->keep_alive();
  module->handle_broken();
  if (OPAL_LIKELY(!module->engine().needs_progress())) {
    module->engine().turn();
    return 0;
  }
  return module->engine().progress(module->port().now_ns());
}

}  // namespace bfo::glue
