// SPDX-License-Identifier: BSD-3-Clause
//
// host.cc: what the BTL's engine reports, translated into the words of the PML's engine, as btl/verbs/glue
// and pml/bfo/glue/callbacks.cc do it.
#include <cstddef>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/contract.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

Nic& nic_of(void* ctx) {
  return *static_cast<Nic*>(ctx);
}
Link& link_of(engine::Endpoint& e) {
  return *static_cast<Link*>(e.user.load(std::memory_order_relaxed));
}
/// One message in so many comes with another tag first.
constexpr uint64_t kForgedTags = 7;

Engine& engine_of(void* ctx) {
  return nic_of(ctx).process->engine();
}

}  // namespace

/// The same bytes with the tag of another type: a peer can send that. The engine drops and counts it, or puts
/// it off while it is inside a port function.
void Process::forge_tag(engine::Endpoint& e, uint8_t tag, const char* data, uint32_t length) {
  const uint8_t other = core::kAllTypes[handed_in_ / kForgedTags % sizeof core::kAllTypes];
  if (other == tag) return;
  const auto dropped = [this] {
    const xfer::Counters& c = engine_->counters();
    return c.malformed + c.stale + c.deferred;
  };
  const uint64_t before = dropped();
  engine_->on_message(link_of(e).engine_rail, e.epoch, other, data, length);
  if (dropped() != before + 1)
    world_.ctx.fail("P5: process %u took a message of type 0x%x for one of type 0x%x", id_, tag, other);
}

void Process::deliver(engine::Endpoint& e, uint8_t tag, char* data, uint32_t length) {
  if (++handed_in_ % kForgedTags == 0) forge_tag(e, tag, data, length);
  if (!heard_.empty()) hear(link_of(e), tag, data, length);
  engine_->on_message(link_of(e).engine_rail, e.epoch, tag, data, length);
}

/// Work comes back as unknown: then nothing that the device has said about it may be unread.
void Process::may_be_unknown(const engine::Endpoint& e) {
  const Link& l = link_of(const_cast<engine::Endpoint&>(e));
  const ibv_qp* const qp = e.qps().data.ib();
  if (qp == nullptr || world_.fabric.closing || nics_[l.rail]->fake->dead) return;
  if (world_.fabric.success_waits(qp))
    world_.ctx.fail("H22: work of process %u on rail %u comes back as unknown, and its completion waits", id_,
                    l.rail);
}

void Process::frag_done(engine::Endpoint& e, engine::Frag* work, int status) {
  Frag* const f = static_cast<Frag::Work*>(work)->owner;
  if (!f->posted) return world_.ctx.fail("P3: process %u got the end of a fragment twice", id_);
  if (status == BFO_RC_UNKNOWN) may_be_unknown(e);
  f->posted = false;
  if (f->rdma != nullptr) --f->rdma->rdma_out;
  f->rdma = nullptr;
  const Fate fate = xfer::fate_of(status);
  if (f->payload != 0 && f->reads && fate != Fate::kNeverSent)
    world_.traffic.fetched(f->pair, f->xfer.offset, f->payload);
  if (f->payload != 0 && fate != Fate::kDelivered) world_.traffic.failed(f->pair, f->payload);
  f->reads = false;
  engine_->on_done(f, fate);
}

engine::Host Process::host(Nic& nic) {
  engine::Host h{};
  h.ctx = &nic;
  h.deliver = [](void* c, engine::Endpoint& e, uint8_t tag, char* data, uint32_t length) {
    nic_of(c).process->deliver(e, tag, data, length);
  };
  h.frag_done = [](void* c, engine::Endpoint& e, engine::Frag* f, int s) {
    nic_of(c).process->frag_done(e, f, s);
  };
  h.payload_failed = [](void* c, engine::Endpoint& e, uint8_t tag, const void* data, uint32_t length,
                        int status) {
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      engine_of(c).on_sendi_failed(r, tag, data, length, xfer::fate_of(status));
  };
  h.rail_up = [](void* c, engine::Endpoint& e, const bfo_rail_event_t& ev) {
    Process& p = *nic_of(c).process;
    SIM_TRACE(p.world_.ctx, "up    %u-%u rail %u epoch %u", p.id_, link_of(e).peer, link_of(e).rail,
              ev.info.name.epoch);
    engine::connect_others(p.ports_.data(), static_cast<int>(p.ports_.size()), e, true);
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      p.engine_->on_rail_up(r, xfer::event_of(ev));
  };
  h.rail_suspect = [](void* c, engine::Endpoint& e, const bfo_rail_event_t& ev) {
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      engine_of(c).on_rail_suspect(r, xfer::event_of(ev));
  };
  h.rail_down = [](void* c, engine::Endpoint& e, const bfo_rail_event_t& ev) {
    Process& p = *nic_of(c).process;
    ++p.world_.result.failovers;
    p.world_.rail_ended(link_of(e), ev.cause);
    SIM_TRACE(p.world_.ctx, "down  %u-%u rail %u epoch %u: %s", p.id_, link_of(e).peer, link_of(e).rail,
              ev.info.name.epoch, ev.text);
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      p.engine_->on_rail_down(r, xfer::event_of(ev));
  };
  h.rail_closed = [](void* c, engine::Endpoint& e, const bfo_rail_event_t& ev, bfo_fence_result_t result,
                     uint64_t delivered) {
    Process& p = *nic_of(c).process;
    ++p.world_.result.closed;
    SIM_TRACE(p.world_.ctx, "close %u-%u rail %u epoch %u: %s, %llu delivered", p.id_, link_of(e).peer,
              link_of(e).rail, ev.info.name.epoch, result == BFO_FENCED ? "fenced" : "unfenceable",
              static_cast<unsigned long long>(delivered));
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      p.engine_->on_rail_closed(r, xfer::event_of(ev),
                                result == BFO_FENCED ? FenceResult::kFenced : FenceResult::kUnfenceable,
                                delivered);
  };
  h.gap_lost = [](void* c, engine::Endpoint& e, const bfo_rail_name_t& name, uint64_t lost) {
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr)
      engine_of(c).on_gap_lost(r, RailName{name.conn, name.epoch}, lost);
  };
  h.find_peer = [](void*, uint64_t) -> engine::Endpoint* { return nullptr; };
  h.rails = [](void* c, uint64_t peer, engine::Endpoint** out, int room) {
    Process& p = *nic_of(c).process;
    return engine::rails_to(p.ports_.data(), static_cast<int>(p.ports_.size()), peer, out, room);
  };
  h.other_rail_up = [](void* c, engine::Endpoint& e) {
    Process& p = *nic_of(c).process;
    return engine::other_rail_up(p.ports_.data(), static_cast<int>(p.ports_.size()), e);
  };
  h.connect_other_rails = [](void* c, engine::Endpoint& e) {
    Process& p = *nic_of(c).process;
    engine::connect_others(p.ports_.data(), static_cast<int>(p.ports_.size()), e, false);
  };
  h.peer_answers = [](void* c, engine::Endpoint& e, bool answers) {
    if (EngineRail* const r = link_of(e).engine_rail; r != nullptr) engine_of(c).on_peer_alive(r, answers);
  };
  return h;
}

}  // namespace bfo::stack
