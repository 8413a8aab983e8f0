// SPDX-License-Identifier: BSD-3-Clause
//
// device.cc: see device.h. Devices, completions and events; connection.cc has reliable connections,
// datagram.cc datagrams, verbs.cc the verbs.
#include "test/stack/device.h"

#include <cerrno>
#include <iterator>

#include "test/stack/packet.h"

namespace bfo::stack {

namespace {
constexpr uint64_t kNsPerKib = 80;
}  // namespace

Fabric::Fabric(Timeline& t, Observer& o, const FabricTraits& f, uint64_t seed)
    : time(t), observer(o), traits(f), dice(seed), wires_(t, *this, sim::mix(seed, 0x3a7e)) {
  wires_.in_order(f.one_queue);
}
Fabric::~Fabric() = default;

Device* Fabric::add_device(uint32_t process, uint32_t rail) {
  auto d = std::make_unique<Device>();
  d->fabric = this;
  d->process = process;
  d->rail = rail;
  d->device_name = "p" + std::to_string(process) + "r" + std::to_string(rail);
  d->index = static_cast<uint32_t>(devices.size());
  d->attr.vendor_id = 0x2c9;
  d->attr.phys_port_cnt = 1;
  d->attr.max_cqe = d->attr.max_srq_wr = 4096;
  d->attr.max_qp_rd_atom = d->attr.max_qp_init_rd_atom = 16;
  d->port.state = IBV_PORT_ACTIVE;
  d->port.lid = static_cast<uint16_t>(d->index + 1);
  d->port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  d->port.active_mtu = IBV_MTU_4096;
  d->port.max_msg_sz = 1u << 30;
  d->context.device = d.get();
  d->context.async_fd = -1;
  set_data_path(d->context);
  devices.push_back(std::move(d));
  return devices.back().get();
}

Device* Fabric::device(uint32_t process, uint32_t rail) const {
  const size_t rails = devices.empty() ? 1 : devices.back()->rail + size_t{1};
  return devices[process * rails + rail].get();
}

Fabric::Packet* Fabric::make_packet() {
  ++packets;
  if (free_packets_.empty()) {
    all_packets_.push_back(std::make_unique<Packet>());
    return all_packets_.back().get();
  }
  Packet* const p = free_packets_.back();
  free_packets_.pop_back();
  p->status = IBV_WC_SUCCESS;
  p->rnr = p->answers_read = p->again = p->unread = false;
  p->tells = IBV_WC_SUCCESS;
  p->data.clear();
  return p;
}
void Fabric::free_packet(Packet* p) {
  free_packets_.push_back(p);
}

Qp* Fabric::find(uint32_t number) const {
  const size_t i = number - kFirstQp;
  return i < qps.size() ? qps[i].get() : nullptr;
}

const ibv_mr* Fabric::memory(uint32_t key) const {
  const size_t i = key - kFirstKey;
  return i < mrs.size() ? mrs[i].get() : nullptr;
}

bool Fabric::path(const Device& from, const Device& to) const {
  const uint64_t now = time.now();
  if (!from.up() || !to.up() || from.dead || to.dead) return false;
  if (from.silent_until > now || to.silent_until > now) return false;
  for (const OneWay& w : one_way_)
    if (w.from == &from && w.to == &to && w.until > now) return false;
  return true;
}

uint64_t Fabric::journey(size_t bytes) {
  uint64_t ns = traits.latency_ns + dice.below(traits.jitter_ns + 1) + bytes * kNsPerKib / 1024;
  if (traits.packet_late != 0 && dice.below(1000) < traits.packet_late) ns += dice.below(traits.packet_ns);
  return ns;
}

// ---- calls

void Fabric::called(const ibv_context* context) {
  Device& d = *static_cast<Device*>(context->device);
  if (d.dies_at_call != 0 && running && ++d.calls == d.dies_at_call) kill(d);
}

int Fabric::refused(const ibv_context* context) {
  const Device& d = *static_cast<const Device*>(context->device);
  called(context);
  if (d.dead) return EIO;
  static constexpr int kErrors[] = {ENOMEM, EINVAL, EIO, EAGAIN, EBUSY, ETIMEDOUT, EPERM};
  if (running && traits.verb_fails != 0 && dice.below(1000) < traits.verb_fails)
    return kErrors[dice.below(std::size(kErrors))];
  for (const Refusal& r : refusals_)
    if (r.process == d.process && r.until > time.now()) return r.error;
  return 0;
}

int Fabric::order(const char*, const ibv_context*) {
  return 0;
}
bool Fabric::may_leave(const Qp&, const Qp&) const {
  return true;
}

void Fabric::slow_verb(const ibv_context* context) {
  if (traits.verb_blocks == 0 || dice.below(1000) >= traits.verb_blocks) return;
  observer.blocked(static_cast<const Device*>(context->device)->process, dice.below(traits.verb_ns));
}

// ---- completions and events

void Fabric::push(ibv_cq* cq, const ibv_wc& wc) {
  auto& c = *static_cast<Cq*>(cq);
  if (c.broken) return;
  if (c.entries.size() + c.coming.size() >= static_cast<size_t>(c.cqe))
    return observer.broken("a completion queue overran");
  if (traits.cqe_late == 0 || !held_up(c, wc)) surface(c, wc);
}

void Fabric::surface(Cq& c, const ibv_wc& wc) {
  const Device& d = *static_cast<const Device*>(c.context->device);
  c.entries.push_back(wc);
  if (c.channel == nullptr) return observer.wake(d.process);
  if (!c.armed) return;
  c.armed = false;
  ++c.channel->events;
  observer.wake_events(d.process, c.channel->fd);
}

void Fabric::raise(Device& d, ibv_event_type type, ibv_qp* qp, int port) {
  ibv_async_event e{};
  e.event_type = type;
  if (qp != nullptr)
    e.element.qp = qp;
  else
    e.element.port_num = port;
  d.events.push_back(e);
  observer.wake_events(d.process, d.context.async_fd);
}

void Fabric::complete(Qp& qp, const Wqe& w, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && (w.flags & IBV_SEND_SIGNALED) == 0 && !qp.init.sq_sig_all) return;
  ibv_wc wc{};
  wc.wr_id = w.wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  wc.byte_len = w.length;
  push(qp.init.send_cq, wc);
}

void Fabric::to_error(Qp& qp) {
  if (qp.attr.qp_state == IBV_QPS_ERR) return;
  qp.attr.qp_state = IBV_QPS_ERR;
  ++qp.timer;
  while (!qp.sq.empty()) {
    complete(qp, qp.sq.front(), IBV_WC_WR_FLUSH_ERR);
    qp.sq.pop_front();
  }
  for (const auto& [wr_id, sge] : qp.rq) {
    static_cast<void>(sge);
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = qp.qp_num;
    push(qp.init.recv_cq, wc);
  }
  qp.rq.clear();
  if (qp.init.srq == nullptr || qp.last_receive_raised || traits.no_last_receive != 0) return;
  raise_last_receive(qp);
}

/// Nothing of a queue pair that is gone is reported any more.
void Fabric::destroy(Qp& qp) {
  const uint32_t number = qp.qp_num;
  land(qp);
  look_for_thrown(qp);
  for (auto& cq : cqs) {
    if (cq->context != qp.context) continue;
    std::erase_if(cq->entries, [number](const ibv_wc& wc) { return wc.qp_num == number; });
    std::erase_if(cq->coming, [number](const auto& each) { return each.second.qp_num == number; });
  }
  std::erase_if(qp.device()->events, [&qp](const ibv_async_event& e) {
    return e.element.qp == &qp && e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
  });
  if (!traits.no_fence || !running || closing || qp.qp_type != IBV_QPT_RC) {
    qps[number - kFirstQp].reset();
    return;
  }
  qp.attr.qp_state = IBV_QPS_ERR;
  qp.sq.clear();
}

}  // namespace bfo::stack
