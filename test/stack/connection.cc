// SPDX-License-Identifier: BSD-3-Clause
//
// connection.cc: reliable connections of the fabric: requests leave, are executed where they arrive, and are
// answered or sent again (device.h).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "test/stack/packet.h"

namespace bfo::stack {

namespace {
constexpr uint64_t kRnrNs = 20'000;
}  // namespace

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
    if (!may_leave(qp, *peer)) return;
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
          bytes_of(w));
    if (qp.sent == qp.fresh) {
      ++qp.fresh;
      if (const PacketFault* const f = hit(qp, w, p->target); f != nullptr) {
        p->tells = suffer(qp, p->number, *f) ? f->status : IBV_WC_SUCCESS;
        p->unread = f->what == PacketFault::What::kUnread;
      }
    }
    if (carry(p, false)) continue;
    qp.lane_ns = std::max(qp.lane_ns + 1, time.now() + journey(p->data.size()));
    time.at(
        qp.lane_ns,
        [](void* f, uint64_t, void* x) { static_cast<Fabric*>(f)->arrive(static_cast<Packet*>(x)); }, this, 0,
        p);
  }
}

void Fabric::start_timer(Qp& qp) {
  if (traits.no_timers) return;
  const uint64_t ns = uint64_t{4096} << qp.attr.timeout;
  if (wires_.any()) return start_timer_lazily(qp, time.now() + ns);
  time.in(
      ns,
      [](void* f, uint64_t a, void*) {
        static_cast<Fabric*>(f)->timeout(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32));
      },
      this, uint64_t{++qp.timer} << 32 | qp.qp_num);
}

/// With rates each connection has one timer on its way, which is sent on when it comes too early: thousands
/// of them would be what the simulator does.
void Fabric::start_timer_lazily(Qp& qp, uint64_t due_ns) {
  qp.due_ns = due_ns;
  if (qp.timer_set) return;
  qp.timer_set = true;
  time.at(
      due_ns,
      [](void* f, uint64_t number, void*) {
        Fabric& fabric = *static_cast<Fabric*>(f);
        Qp* const qp = fabric.find(static_cast<uint32_t>(number));
        if (qp == nullptr) return;
        qp->timer_set = false;
        if (qp->sq.empty()) return;
        if (fabric.time.now() < qp->due_ns) return fabric.start_timer_lazily(*qp, qp->due_ns);
        fabric.timeout(qp->qp_num, qp->timer);
      },
      this, qp.qp_num);
}

void Fabric::timeout(uint32_t number, uint32_t timer) {
  Qp* const qp = find(number);
  if (qp == nullptr || qp->timer != timer || qp->sq.empty()) return;
  if (qp->rnr_until > time.now()) return start_timer(*qp);
  if (under_way(*qp)) return start_timer(*qp);
  if (qp->retries++ >= qp->attr.retry_cnt) {
    complete(*qp, qp->sq.front(), IBV_WC_RETRY_EXC_ERR);
    qp->sq.pop_front();
    return to_error(*qp);
  }
  send_again(*qp);
  start_timer(*qp);
}

void Fabric::send_again(Qp& qp) {
  unsend(qp);
  qp.sent = qp.acked;
  transmit(qp);
}

bool Fabric::allowed(const Qp& qp, const Packet& p) const {
  if (p.length == 0) return true;
  const ibv_mr* const mr = memory(p.rkey);
  if (mr == nullptr || mr->context != qp.context) return false;
  const auto start = reinterpret_cast<uint64_t>(mr->addr);
  return p.remote >= start && p.remote - start <= mr->length && p.length <= mr->length - (p.remote - start);
}

/// False: the receiver is not ready.
bool Fabric::execute(Qp& responder, Packet& p, ibv_wc_status* status) {
  const uint32_t process = responder.device()->process;
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
    move_bytes(reinterpret_cast<void*>(p.remote), p.data.data(), p.length);
    return true;
  }
  land(responder);  // what comes later on the same connection sees it
  if (p.opcode == IBV_WR_RDMA_READ) {
    if (!p.again) observer.accessed(process, p.remote, p.length, p.rkey, false);
    if (!traits.no_bytes) p.data.assign(reinterpret_cast<const char*>(p.remote), p.length);
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
  if (memory(sge.lkey) == nullptr) observer.broken("a message was written to memory that is not registered");
  std::memcpy(reinterpret_cast<void*>(sge.addr), p.data.data(), p.data.size());
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = responder.qp_num;
  wc.byte_len = p.length;
  wc.imm_data = p.imm;
  wc.wc_flags = p.opcode == IBV_WR_SEND_WITH_IMM ? unsigned{IBV_WC_WITH_IMM} : 0u;
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
  const bool reached = takes && !dropped && path(*p->source, *p->target);
  if (reached && p->number > qp->expected) out_of_order(*qp, *p);
  if (!reached || p->number > qp->expected) {
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
  } else if (p->opcode == IBV_WR_RDMA_READ && goes_back(*p)) {
    return free_packet(p);
  } else if (p->opcode == IBV_WR_RDMA_READ) {
    // It is executed again. Its requester may have had an answer to the first one long ago, and drops this
    // one: it counts as an access when its data is taken.
    p->again = true;
    execute(*qp, *p, &status);
  }
  if (p->tells != IBV_WC_SUCCESS) fail_soon(p->from, journey(0), p->tells);
  if (sender != nullptr && p->number >= sender->unanswered_from) return free_packet(p);
  answer(p, status, false);
}

void Fabric::answer(Packet* p, ibv_wc_status status, bool rnr) {
  p->status = status;
  p->rnr = rnr;
  p->answers_read = p->opcode == IBV_WR_RDMA_READ && status == IBV_WC_SUCCESS && !rnr;
  if (carry(p, true)) return;
  // Answers arrive in the order they left, too.
  uint64_t at = time.now() + journey(p->answers_read ? p->data.size() : 0);
  if (Qp* const responder = find(p->to); responder != nullptr)
    at = responder->answers_ns = std::max(responder->answers_ns + 1, at);
  time.at(
      at, [](void* f, uint64_t, void* x) { static_cast<Fabric*>(f)->acknowledged(static_cast<Packet*>(x)); },
      this, 0, p);
}

void Fabric::acknowledged(Packet* p) {
  Qp* const qp = find(p->from);
  // Not the answer to a READ that has its data.
  if (p->answers_read && lands_in_error(qp, *p) && p->number >= qp->acked) {
    read_again(*p);
    move_bytes(reinterpret_cast<void*>(p->local), p->data.data(), p->length);
    ++late_landed;
    return free_packet(p);
  }
  const bool counts = qp != nullptr && qp->attr.qp_state == IBV_QPS_RTS && p->number >= qp->acked &&
                      p->number < qp->acked + qp->sq.size() && path(*p->target, *p->source);
  if (!counts) return free_packet(p);
  advance(*qp, *p);
  free_packet(p);
}

/// The receiver is not ready: it lives, and only what is not answered counts.
void Fabric::wait_for_receiver(Qp& qp) {
  unsend(qp);
  qp.sent = qp.acked;
  qp.retries = 0;
  if (traits.no_timers) return;
  qp.rnr_until = time.now() + kRnrNs;
  start_timer(qp);
  time.in(
      kRnrNs,
      [](void* f, uint64_t a, void*) {
        if (Qp* const q = static_cast<Fabric*>(f)->find(static_cast<uint32_t>(a)); q != nullptr)
          static_cast<Fabric*>(f)->transmit(*q);
      },
      this, qp.qp_num);
}

void Fabric::advance(Qp& qp, Packet& p) {
  const uint64_t before = qp.acked;
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
      wait_for_receiver(qp);
    } else if (p.status != IBV_WC_SUCCESS) {
      complete(qp, w, p.status);
      qp.sq.pop_front();
      return to_error(qp);
    } else {
      if (p.answers_read) {
        read_again(p);
        observer.accessed(qp.device()->process, w.local, w.length, 0, true);
        move_bytes(reinterpret_cast<void*>(w.local), p.data.data(), w.length);
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

}  // namespace bfo::stack
