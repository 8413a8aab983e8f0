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
#include "pml/bfo/glue/other_end.h"
#include "pml/bfo/glue/trace.h"
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

// Is it the loss of a rail, as its event says? Else nothing broke: the rail, which was not up yet, was asked
// for in vain.
bool is_loss(const Rail& rail, const bfo_rail_event_t& ev) {
  return rail.up_epoch != 0 || (ev.cause != BFO_CAUSE_HANDSHAKE && ev.cause != BFO_CAUSE_RESOURCE);
}

Rail* rail_of(void* rail) {
  return static_cast<Rail*>(rail);
}

void message(void* ctx, void* rail, uint32_t epoch, uint8_t tag, const void* data, size_t length) {
  module_of(ctx).engine().on_message(rail_of(rail), epoch, tag, data, length);
}

// ---- what pml_bfo_verbose prints

bool traces(int level) {
  return mca_pml_bfo_component.params.verbose >= level;
}

void print(const char* text) {
  opal_output(mca_pml_bfo_component.output, "pml/bfo: %s", text);
}

// The peer that a traced message came from or goes to, with its name.
class Traced {
 public:
  Traced() = default;
  explicit Traced(const PeerHandle& peer)
      : host_(peer.proc->super), peer_{static_cast<int>(peer.proc->super.proc_name.vpid), host_.text()} {}
  const TracedPeer& peer() const { return peer_; }

 private:
  HostName host_;
  TracedPeer peer_;
};

// After the engine was told: the record of the rail is whole by then.
void trace_rail(const Rail& rail, const bfo_rail_event_t& ev, const char* what) {
  if (!traces(kTraceRails)) return;
  char text[400];
  describe_rail(text, sizeof(text), rail.index, Traced(rail.peer->handle).peer(), ev, what);
  print(text);
}

void trace_restart(const char* way, const TracedPeer& peer, uint8_t type, const void* bytes, size_t length) {
  char text[1600];
  describe_restart(text, sizeof(text), type, bytes, length);
  if (peer.rank >= 0)
    opal_output(mca_pml_bfo_component.output, "pml/bfo: %s rank %d on host %s: %s", way, peer.rank, peer.host,
                text);
  else
    opal_output(mca_pml_bfo_component.output, "pml/bfo: %s a peer that its BTL does not name: %s", way, text);
}

// Takes the place of the engine's entry while there is something to print, so that it costs nothing else.
void traced_message(Module& module, Rail* rail, uint32_t epoch, uint8_t tag, const void* data,
                    size_t length) {
  const Traced sender = rail != nullptr ? Traced(rail->peer->handle) : Traced();
  const TracedPeer& peer = sender.peer();
  if (traces(kTraceRestarts) && is_restart_message(tag)) trace_restart("from", peer, tag, data, length);
  const xfer::Counters before = module.engine().counters();
  module.engine().on_message(rail, epoch, tag, data, length);
  const char* const why = why_dropped(before, module.engine().counters(), tag, data, length);
  if (why == nullptr) return;
  if (peer.rank >= 0)
    opal_output(mca_pml_bfo_component.output,
                "pml/bfo: dropped %s (0x%02x), %zu bytes, of rank %d on host %s: %s", type_name(tag), tag,
                length, peer.rank, peer.host, why);
  else
    opal_output(mca_pml_bfo_component.output,
                "pml/bfo: dropped %s (0x%02x), %zu bytes, of a peer that its BTL does not name: %s",
                type_name(tag), tag, length, why);
}

void message_traced(void* ctx, void* rail, uint32_t epoch, uint8_t tag, const void* data, size_t length) {
  traced_message(module_of(ctx), rail_of(rail), epoch, tag, data, length);
}

// The first report about a rail can come while another thread is still adding it. That thread holds the
// engine's lock: the record of the rail is not read before the engine was entered.
void rail_up(void* ctx, void* user, const bfo_rail_event_t* ev) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_up(rail, xfer::event_of(*ev));
  trace_rail(*rail, *ev, "up");
  rail->handle.away = module.summary().up(names_of(*ev), rail->handle.away, ev->now_ns);
}

void rail_suspect(void* ctx, void* rail, const bfo_rail_event_t* ev) {
  module_of(ctx).engine().on_rail_suspect(rail_of(rail), xfer::event_of(*ev));
  trace_rail(*rail_of(rail), *ev, "suspect");
}

void rail_down(void* ctx, void* user, const bfo_rail_event_t* ev) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_down(rail, xfer::event_of(*ev));
  trace_rail(*rail, *ev, "down");
  Away& away = rail->handle.away;
  if (xfer::event_of(*ev).given_back) return;
  if (ev->cause == BFO_CAUSE_SHUTDOWN || rail->peer->standing.finalized()) {
    away = module.summary().left(names_of(*ev), away, ev->now_ns);
  } else if (!(ev->cause == BFO_CAUSE_HANDSHAKE && ev->code == EINPROGRESS)) {
    // One that is late is told of at the end, if it has not come by then.
    const OtherEnd there(rail->peer->handle, &rail->handle);
    EventNames names = names_of(*ev);
    there.name(names);
    away = module.summary().down(names, ev->text, away, is_loss(*rail, *ev), ev->now_ns);
  }
}

void rail_closed(void* ctx, void* user, const bfo_rail_event_t* ev, bfo_fence_result_t result,
                 uint64_t delivered) {
  Module& module = module_of(ctx);
  Rail* const rail = rail_of(user);
  module.engine().on_rail_closed(rail, xfer::event_of(*ev),
                                 result == BFO_FENCED ? FenceResult::kFenced : FenceResult::kUnfenceable,
                                 delivered);
  trace_rail(*rail, *ev, result == BFO_FENCED ? "closed (fenced)" : "closed (cannot be fenced)");
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

void port_speed(void* ctx, mca_btl_base_module_t* btl, const bfo_port_speed_t* speed) {
  module_of(ctx).port_speed(btl, *speed);
}

void port_loss(void* ctx, mca_btl_base_module_t* btl, const bfo_port_loss_t* loss) {
  module_of(ctx).port_loss(btl, *loss);
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
                                       peer_answers,
                                       port_speed,
                                       port_loss};

constexpr bfo_failover_sink_t traced_sink() {
  bfo_failover_sink_t sink = kSink;
  sink.message = message_traced;
  return sink;
}
constexpr bfo_failover_sink_t kTracedSink = traced_sink();

// A message in several segments (self, shared memory with single copy) is put together first.
[[gnu::noinline]] void deliver_gathered(Module& module, uint8_t tag, const mca_btl_base_segment_t* segments,
                                        size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) size += segments[i].seg_len;
  auto* whole = static_cast<uint8_t*>(module.port().alloc(size));
  if (whole == nullptr) [[unlikely]] {
    module.engine().on_message_unstored(nullptr, size);
    return;
  }
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    memcpy(whole + at, segments[i].seg_addr.pval, segments[i].seg_len);
    at += segments[i].seg_len;
  }
  module.engine().on_message(nullptr, 0, tag, whole, size);
  module.port().free(whole);
}

void on_message(void* ctx, uint8_t tag, const mca_btl_base_segment_t* segments, size_t count) {
  Module& module = module_of(ctx);
  module.port().stock().note_answer();
  if (count != 1) [[unlikely]]
    return deliver_gathered(module, tag, segments, count);
  module.engine().on_message(nullptr, 0, tag, segments[0].seg_addr.pval, segments[0].seg_len);
}

void on_message_traced(void* ctx, uint8_t tag, const mca_btl_base_segment_t* segments, size_t count) {
  if (count != 1) return on_message(ctx, tag, segments, count);
  Module& module = module_of(ctx);
  module.port().stock().note_answer();
  traced_message(module, nullptr, 0, tag, segments[0].seg_addr.pval, segments[0].seg_len);
}

}  // namespace

const bfo_failover_sink_t* failover_sink() {
  return traces(kTraceDrops) ? &kTracedSink : &kSink;
}

mca_btl_base_module_recv_cb_fn_t btl_message_callback() {
  return traces(kTraceDrops) ? receive_callback<on_message_traced> : receive_callback<on_message>;
}

void BtlPort::trace_sent(const PeerHandle& peer, const void* bytes, size_t size) {
  if (!traces(kTraceRestarts)) return;
  trace_restart("to", Traced(peer).peer(), *static_cast<const uint8_t*>(bytes), bytes, size);
}

void BtlPort::trace_plan(const PeerHandle& peer, const xfer::PlanTrace& plan) {
  char text[1600];
  describe_plan(text, sizeof(text), Traced(peer).peer(), plan);
  print(text);
}

// Fatal or not, it ends the connection of that BTL to the peer, and never the job (P6). It can be called from
// inside a send that the engine posts, so it is only recorded here.
void on_btl_error(mca_btl_base_module_t* btl, int32_t flags, opal_proc_t* proc, char* info) {
  Module* module = mca_pml_bfo_component.module;
  if (module == nullptr || module->leaving()) return;
  // Those that fail over report their rails to the sink, and here what others than the PML have sent by them.
  if (module->contract(btl) != nullptr) {
    if ((flags & MCA_BTL_ERROR_FLAGS_NONFATAL) != 0) module->at_lost_window(*proc);
    return;
  }
  module->note_broken(btl, proc, info);
}

int engine_progress() {
  Module* module = mca_pml_bfo_component.module;
  if (module == nullptr) [[unlikely]]
    return 0;
  module->keep_alive();
  module->handle_broken();
  if constexpr (kTellsOfTheDead) module->handle_death();
  if (!module->engine().needs_progress()) [[likely]] {
    module->engine().turn();
    return 0;
  }
  return module->engine().progress(module->port().now_ns());
}

}  // namespace bfo::glue
