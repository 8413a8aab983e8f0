// SPDX-License-Identifier: BSD-3-Clause
//
// device.cc: see device.h. The life of packets; verbs.cc has the verbs.
#include "test/stack/device.h"

#include <cerrno>
#include <cstring>
#include <iterator>

#include "btl/verbs/engine/packet.h"

namespace bfo::stack {

struct Fabric::Packet {
  std::uint32_t from = 0;  // queue pair numbers
  std::uint32_t to = 0;
  std::uint64_t number = 0;
  ibv_wr_opcode opcode{};
  std::uint32_t imm = 0;
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint32_t qkey = 0;
  const Device* source = nullptr;
  const Device* target = nullptr;
  ibv_wc_status status{};
  bool rnr = false;
  bool answers_read = false;
  bool again = false;        // a READ that was executed before
  bool tells_error = false;  // instead of an answer
  bool unread = false;       // see PacketFault::kUnread
  std::uint64_t local = 0;
  std::string data;
};

namespace {
constexpr std::uint64_t kRnrNs = 20'000;
constexpr std::uint64_t kNsPerKib = 80;
constexpr std::uint32_t kGrh = 40;
}  // namespace

Fabric::Fabric(Timeline& t, Observer& o, const FabricTraits& f, std::uint64_t seed)
    : time(t), observer(o), traits(f), dice(seed) {}
Fabric::~Fabric() = default;

Device* Fabric::add_device(std::uint32_t process, std::uint32_t rail) {
  auto d = std::make_unique<Device>();
  d->fabric = this;
  d->process = process;
  d->rail = rail;
  d->device_name = "p" + std::to_string(process) + "r" + std::to_string(rail);
  d->lid = static_cast<std::uint16_t>(devices.size() + 1);
  d->context.device = d.get();
  d->context.async_fd = -1;
  set_data_path(d->context);
  devices.push_back(std::move(d));
  return devices.back().get();
}

Device* Fabric::device(std::uint32_t process, std::uint32_t rail) const {
  const std::size_t rails = devices.empty() ? 1 : devices.back()->rail + std::size_t{1};
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
  p->rnr = p->answers_read = p->again = p->tells_error = p->unread = false;
  p->data.clear();
  return p;
}
void Fabric::free_packet(Packet* p) {
  free_packets_.push_back(p);
}

Qp* Fabric::find(std::uint32_t number) const {
  const std::size_t i = number - kFirstQp;
  return i < qps.size() ? qps[i].get() : nullptr;
}

bool Fabric::path(const Device& from, const Device& to) const {
  const std::uint64_t now = time.now();
  if (!from.up || !to.up || from.dead || to.dead) return false;
  if (from.silent_until > now || to.silent_until > now) return false;
  for (const OneWay& w : one_way_)
    if (w.from == &from && w.to == &to && w.until > now) return false;
  return true;
}

std::uint64_t Fabric::journey(std::size_t bytes) {
  std::uint64_t ns = traits.latency_ns + dice.below(traits.jitter_ns + 1) + bytes * kNsPerKib / 1024;
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

void Fabric::slow_verb(const ibv_context* context) {
  if (traits.verb_blocks == 0 || dice.below(1000) >= traits.verb_blocks) return;
  observer.blocked(static_cast<const Device*>(context->device)->process, dice.below(traits.verb_ns));
}

// ---- completions and events

void Fabric::push(ibv_cq* cq, const ibv_wc& wc) {
  auto& c = *static_cast<Cq*>(cq);
  if (c.broken) return;
  if (c.entries.size() + c.coming.size() >= static_cast<std::size_t>(c.cqe))
    return observer.broken("a completion queue overran");
  if (traits.cqe_late == 0 || !held_up(c, wc)) surface(c, wc);
}

void Fabric::surface(Cq& c, const ibv_wc& wc) {
  const Device& d = *static_cast<const Device*>(c.context->device);
  c.entries.push_back(wc);
  if (!c.has_channel) return observer.wake(d.process);
  if (!c.armed) return;
  c.armed = false;
  ++d.channel->events;
  observer.wake_events(d.process);
}

void Fabric::raise(Device& d, ibv_event_type type, ibv_qp* qp) {
  ibv_async_event e{};
  e.event_type = type;
  if (qp != nullptr)
    e.element.qp = qp;
  else
    e.element.port_num = 1;
  d.events.push_back(e);
  observer.wake_events(d.process);
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
  const std::uint32_t number = qp.qp_num;
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
  qps[number - kFirstQp].reset();
}

// ---- reliable connections

int Fabric::post_send(Qp& qp, const ibv_send_wr& wr) {
  if (qp.qp_type == IBV_QPT_UD) {
    datagram(qp, wr);
    return 0;
  }
  called(qp.context);
  if (qp.device()->dead) return EIO;
  if (qp.attr.qp_state != IBV_QPS_RTS && qp.attr.qp_state != IBV_QPS_ERR) return EINVAL;
  if (qp.sq.size() >= qp.init.cap.max_send_wr) return ENOMEM;
  Wqe w;
  w.wr_id = wr.wr_id;
  w.opcode = wr.opcode;
  w.flags = wr.send_flags;
  w.imm = wr.imm_data;
  if (wr.num_sge != 0) {
    w.local = wr.sg_list->addr;
    w.length = wr.sg_list->length;
  }
  if (wr.opcode == IBV_WR_RDMA_READ || wr.opcode == IBV_WR_RDMA_WRITE) {
    w.remote = wr.wr.rdma.remote_addr;
    w.rkey = wr.wr.rdma.rkey;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0)
    w.inlined.assign(reinterpret_cast<const char*>(w.local), w.length);
  if (qp.attr.qp_state == IBV_QPS_ERR) {
    complete(qp, w, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  qp.sq.push_back(std::move(w));
  if (qp.sq.size() == 1) start_timer(qp);
  transmit(qp);
  return 0;
}

void Fabric::transmit(Qp& qp) {
  if (qp.attr.qp_state != IBV_QPS_RTS || qp.rnr_until > time.now()) return;
  const Qp* const peer = find(qp.attr.dest_qp_num);
  for (; qp.sent < qp.acked + qp.sq.size(); ++qp.sent) {
    const Wqe& w = qp.sq[qp.sent - qp.acked];
    if (peer == nullptr) continue;  // nobody there: the timer ends it
    Packet* const p = make_packet();
    p->from = qp.qp_num;
    p->to = qp.attr.dest_qp_num;
    p->number = qp.sent;
    p->opcode = w.opcode;
    p->imm = w.imm;
    p->remote = w.remote;
    p->rkey = w.rkey;
    p->length = w.length;
    p->local = w.local;
    p->source = qp.device();
    p->target = peer->device();
    if (w.opcode != IBV_WR_RDMA_READ && w.length != 0)
      p->data.assign(
          (w.flags & IBV_SEND_INLINE) != 0 ? w.inlined.data() : reinterpret_cast<const char*>(w.local),
          w.length);
    if (qp.sent == qp.fresh) {
      ++qp.fresh;
      if (const PacketFault* const f = hit(qp, w, p->target); f != nullptr) {
        p->tells_error = suffer(qp, p->number, *f);
        p->unread = f->what == PacketFault::What::kUnread;
      }
    }
    qp.lane_ns = std::max(qp.lane_ns + 1, time.now() + journey(p->data.size()));
    time.at(
        qp.lane_ns,
        [](void* f, std::uint64_t, void* x) { static_cast<Fabric*>(f)->arrive(static_cast<Packet*>(x)); },
        this, 0, p);
  }
}

void Fabric::start_timer(Qp& qp) {
  const std::uint64_t ns = std::uint64_t{4096} << qp.attr.timeout;
  time.in(
      ns,
      [](void* f, std::uint64_t a, void*) {
        static_cast<Fabric*>(f)->timeout(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32));
      },
      this, std::uint64_t{++qp.timer} << 32 | qp.qp_num);
}

void Fabric::timeout(std::uint32_t number, std::uint32_t timer) {
  Qp* const qp = find(number);
  if (qp == nullptr || qp->timer != timer || qp->sq.empty()) return;
  if (qp->rnr_until > time.now()) return start_timer(*qp);
  if (qp->retries++ >= qp->attr.retry_cnt) {
    complete(*qp, qp->sq.front(), IBV_WC_RETRY_EXC_ERR);
    qp->sq.pop_front();
    return to_error(*qp);
  }
  qp->sent = qp->acked;
  transmit(*qp);
  start_timer(*qp);
}

bool Fabric::allowed(const Qp& qp, const Packet& p) const {
  if (p.length == 0) return true;
  const std::size_t i = p.rkey - kFirstKey;
  if (i >= mrs.size() || !mrs[i] || mrs[i]->context != qp.context) return false;
  const auto start = reinterpret_cast<std::uint64_t>(mrs[i]->addr);
  return p.remote >= start && p.remote - start <= mrs[i]->length &&
         p.length <= mrs[i]->length - (p.remote - start);
}

/// False: the receiver is not ready.
bool Fabric::execute(Qp& responder, Packet& p, ibv_wc_status* status) {
  const std::uint32_t process = responder.device()->process;
  const bool rdma = p.opcode == IBV_WR_RDMA_WRITE || p.opcode == IBV_WR_RDMA_READ;
  if (rdma && !allowed(responder, p)) {
    *status = IBV_WC_REM_ACCESS_ERR;
    return true;
  }
  if (rdma && p.length == 0) return true;
  if (p.opcode == IBV_WR_RDMA_WRITE) {
    const bool slow = traits.write_late != 0 || !responder.late.empty();
    if (slow && keep_back(responder, LateWrite{p.remote, p.rkey, p.data})) return true;
    observer.accessed(process, p.remote, p.length, p.rkey, true);
    std::memcpy(reinterpret_cast<void*>(p.remote), p.data.data(), p.length);
    return true;
  }
  land(responder);  // what comes later on the same connection sees it
  if (p.opcode == IBV_WR_RDMA_READ) {
    if (!p.again) observer.accessed(process, p.remote, p.length, p.rkey, false);
    p.data.assign(reinterpret_cast<const char*>(p.remote), p.length);
    return true;
  }
  auto* const srq = static_cast<Srq*>(responder.init.srq);
  if (srq == nullptr || srq->buffers.empty()) return false;
  const auto [wr_id, sge] = srq->buffers.front();
  srq->buffers.pop_front();
  if (srq->buffers.size() < srq->limit) {
    srq->limit = 0;
    raise(*responder.device(), IBV_EVENT_SRQ_LIMIT_REACHED);
  }
  std::memcpy(reinterpret_cast<void*>(sge.addr), p.data.data(), p.length);
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = responder.qp_num;
  wc.byte_len = p.length;
  wc.imm_data = p.imm;
  wc.wc_flags = IBV_WC_WITH_IMM;
  push(responder.init.recv_cq, wc);
  return true;
}

/// Data of a READ that was executed again is taken.
void Fabric::read_again(const Packet& p) {
  if (p.again) observer.accessed(p.target->process, p.remote, p.length, p.rkey, false);
}

/// A queue pair in ERR, but not destroyed: what had come before may still be on its way to memory.
bool Fabric::lands_in_error(const Qp* qp, const Packet& p) {
  return qp != nullptr && qp->attr.qp_state == IBV_QPS_ERR && path(*p.source, *p.target) &&
         dice.below(1000) < traits.err_lands;
}

void Fabric::arrive(Packet* p) {
  Qp* const qp = find(p->to);
  const Qp* const sender = find(p->from);
  const bool dropped = sender != nullptr && p->number >= sender->lost_from;
  if (!dropped && p->opcode == IBV_WR_RDMA_WRITE && lands_in_error(qp, *p) && p->number == qp->expected) {
    ibv_wc_status ignored = IBV_WC_SUCCESS;
    execute(*qp, *p, &ignored);
    ++late_landed;
    return free_packet(p);
  }
  const bool takes = qp != nullptr &&
                     (qp->attr.qp_state == IBV_QPS_RTR || qp->attr.qp_state == IBV_QPS_RTS) &&
                     qp->attr.dest_qp_num == p->from;
  if (!takes || dropped || !path(*p->source, *p->target) || p->number > qp->expected) {
    ++lost;
    return free_packet(p);
  }
  ibv_wc_status status = IBV_WC_SUCCESS;
  if (p->number == qp->expected) {
    if (!execute(*qp, *p, &status)) return answer(p, status, true);
    if (sender == nullptr || sender->attr.qp_state != IBV_QPS_RTS) ++late_landed;
    ++qp->expected;
    if (p->unread) overrun(*qp->device());
    if (status != IBV_WC_SUCCESS) to_error(*qp);
  } else if (p->opcode == IBV_WR_RDMA_READ) {
    // It is executed again. Its requester may have had an answer to the first one long ago, and drops this
    // one: it counts as an access when its data is taken.
    p->again = true;
    execute(*qp, *p, &status);
  }
  if (p->tells_error) fail_soon(p->from, journey(0));
  if (sender != nullptr && p->number >= sender->unanswered_from) return free_packet(p);
  answer(p, status, false);
}

void Fabric::answer(Packet* p, ibv_wc_status status, bool rnr) {
  p->status = status;
  p->rnr = rnr;
  p->answers_read = p->opcode == IBV_WR_RDMA_READ && status == IBV_WC_SUCCESS && !rnr;
  // Answers arrive in the order they left, too.
  std::uint64_t at = time.now() + journey(p->answers_read ? p->data.size() : 0);
  if (Qp* const responder = find(p->to); responder != nullptr)
    at = responder->answers_ns = std::max(responder->answers_ns + 1, at);
  time.at(
      at,
      [](void* f, std::uint64_t, void* x) { static_cast<Fabric*>(f)->acknowledged(static_cast<Packet*>(x)); },
      this, 0, p);
}

void Fabric::acknowledged(Packet* p) {
  Qp* const qp = find(p->from);
  // Not the answer to a READ that has its data.
  if (p->answers_read && lands_in_error(qp, *p) && p->number >= qp->acked) {
    read_again(*p);
    std::memcpy(reinterpret_cast<void*>(p->local), p->data.data(), p->length);
    ++late_landed;
    return free_packet(p);
  }
  const bool counts = qp != nullptr && qp->attr.qp_state == IBV_QPS_RTS && p->number >= qp->acked &&
                      p->number < qp->acked + qp->sq.size() && path(*p->target, *p->source);
  if (!counts) return free_packet(p);
  advance(*qp, *p);
  free_packet(p);
}

void Fabric::advance(Qp& qp, Packet& p) {
  const std::uint64_t before = qp.acked;
  const auto take = [&qp, this] {
    complete(qp, qp.sq.front(), IBV_WC_SUCCESS);
    qp.sq.pop_front();
    ++qp.acked;
  };
  // An answer says that everything before it was executed; but a READ needs its own.
  while (qp.acked < p.number && qp.sq.front().opcode != IBV_WR_RDMA_READ) take();
  if (qp.acked == p.number) {
    Wqe& w = qp.sq.front();
    if (p.rnr) {
      qp.rnr_until = time.now() + kRnrNs;
      qp.sent = qp.acked;
      qp.retries = 0;  // the responder lives: only what is not answered counts
      start_timer(qp);
      time.in(
          kRnrNs,
          [](void* f, std::uint64_t a, void*) {
            if (Qp* const q = static_cast<Fabric*>(f)->find(static_cast<std::uint32_t>(a)); q != nullptr)
              static_cast<Fabric*>(f)->transmit(*q);
          },
          this, qp.qp_num);
    } else if (p.status != IBV_WC_SUCCESS) {
      complete(qp, w, p.status);
      qp.sq.pop_front();
      return to_error(qp);
    } else {
      if (p.answers_read) {
        read_again(p);
        observer.accessed(qp.device()->process, w.local, w.length, 0, true);
        std::memcpy(reinterpret_cast<void*>(w.local), p.data.data(), w.length);
      }
      take();
    }
  }
  if (qp.acked == before) return;
  qp.sent = std::max(qp.sent, qp.acked);
  qp.retries = 0;
  ++qp.timer;
  if (!qp.sq.empty()) start_timer(qp);
}

// ---- datagrams

void Fabric::datagram(Qp& qp, const ibv_send_wr& wr) {
  ibv_wc wc{};
  wc.wr_id = wr.wr_id;
  wc.qp_num = qp.qp_num;
  wc.status = qp.attr.qp_state == IBV_QPS_RTS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;
  push(qp.init.send_cq, wc);
  if (wc.status != IBV_WC_SUCCESS) return;
  int copies = dice.chance(traits.datagram_loss) ? 0 : 1;
  if (traits.types_lost != 0) {
    engine::Packet packet;
    const auto* const bytes = reinterpret_cast<const char*>(wr.sg_list->addr);
    if (engine::packet_read(bytes, wr.sg_list->length, &packet) &&
        (traits.types_lost >> packet.type & 1) != 0)
      copies = 0;
  }
  if (copies != 0 && dice.chance(traits.datagram_twice)) ++copies;
  const Qp* const peer = find(wr.wr.ud.remote_qpn);
  if (peer == nullptr) return;
  for (; copies > 0; --copies) {
    Packet* const p = make_packet();
    p->to = wr.wr.ud.remote_qpn;
    p->qkey = wr.wr.ud.remote_qkey;
    p->source = qp.device();
    p->target = peer->device();
    p->data.assign(reinterpret_cast<const char*>(wr.sg_list->addr), wr.sg_list->length);
    std::uint64_t ns = journey(p->data.size());
    if (dice.chance(traits.datagram_late)) ns += dice.below(traits.late_ns);
    time.in(
        ns,
        [](void* f, std::uint64_t, void* x) {
          static_cast<Fabric*>(f)->datagram_arrives(static_cast<Packet*>(x));
        },
        this, 0, p);
  }
}

void Fabric::datagram_arrives(Packet* p) {
  Qp* const qp = find(p->to);
  const bool takes = qp != nullptr && qp->qp_type == IBV_QPT_UD && qp->attr.qkey == p->qkey &&
                     !qp->rq.empty() &&
                     (qp->attr.qp_state == IBV_QPS_RTR || qp->attr.qp_state == IBV_QPS_RTS);
  if (takes && path(*p->source, *p->target)) {
    const auto [wr_id, sge] = qp->rq.front();
    qp->rq.pop_front();
    std::memcpy(reinterpret_cast<char*>(sge.addr) + kGrh, p->data.data(), p->data.size());
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.qp_num = qp->qp_num;
    wc.byte_len = static_cast<std::uint32_t>(p->data.size()) + kGrh;
    push(qp->init.recv_cq, wc);
  }
  free_packet(p);
}

}  // namespace bfo::stack
