// SPDX-License-Identifier: BSD-3-Clause
//
// carriage.cc: packets of the fabric on wires that have rates (rates.h).
#include <algorithm>
#include <cstring>

#include "test/stack/packet.h"

namespace bfo::stack {

void Fabric::set_rate(const Device& d, const Course& out, const Course& in) {
  wires_.set(d.index, out, in);
}
uint64_t Fabric::bytes_out(const Device& d) const {
  return wires_.bytes_out(d.index);
}
uint64_t Fabric::bytes_in(const Device& d) const {
  return wires_.bytes_in(d.index);
}

/// True: the wires have the packet, a request or the answer to one, and hand it back as arrived().
bool Fabric::carry(Packet* p, bool answers) {
  if (!wires_.any()) return false;
  const Device& from = answers ? *p->target : *p->source;
  const Device& to = answers ? *p->source : *p->target;
  const bool loaded = answers ? p->answers_read : p->opcode != IBV_WR_RDMA_READ;
  wires_.send(from.index, to.index, flow_of(answers ? p->to : p->from, answers), loaded ? p->length : 0, p);
  return true;
}

/// What a queue pair has not sent when it goes to ERR, or is destroyed, it does not send any more.
bool Fabric::leaves(void* packet, uint32_t flow) {
  const Packet& p = *static_cast<const Packet*>(packet);
  if (p.from == 0) return true;  // a datagram
  const Qp* const qp = find(queue_pair_of(flow));
  return qp != nullptr && (qp->attr.qp_state == IBV_QPS_RTS || qp->attr.qp_state == IBV_QPS_RTR);
}

/// It has come through the wires; now it takes the fabric's latency, in the order of its connection.
void Fabric::arrived(void* packet, uint32_t flow) {
  auto* const p = static_cast<Packet*>(packet);
  Qp* const qp = find(queue_pair_of(flow));
  uint64_t at = time.now() + journey(0);
  if (p->from == 0) {
    time.at(
        at,
        [](void* f, uint64_t, void* x) {
          static_cast<Fabric*>(f)->datagram_arrives(static_cast<Packet*>(x));
        },
        this, 0, p);
    return;
  }
  if (qp != nullptr) {
    uint64_t& lane = is_answer(flow) ? qp->answers_ns : qp->lane_ns;
    at = lane = std::max(lane + 1, at);
  }
  if (is_answer(flow))
    time.at(
        at,
        [](void* f, uint64_t, void* x) { static_cast<Fabric*>(f)->acknowledged(static_cast<Packet*>(x)); },
        this, 0, p);
  else
    time.at(
        at, [](void* f, uint64_t, void* x) { static_cast<Fabric*>(f)->arrive(static_cast<Packet*>(x)); },
        this, 0, p);
}

void Fabric::dropped(void* packet) {
  ++lost;
  free_packet(static_cast<Packet*>(packet));
}

/// A connection that moves is alive: the timer of its requester waits.
void Fabric::moved(uint32_t flow, size_t from, size_t to, uint64_t bytes) {
  if (path(*devices[from], *devices[to])) devices[to]->received += bytes;
  Qp* qp = find(queue_pair_of(flow));
  if (qp == nullptr || qp->qp_type != IBV_QPT_RC) return;
  Qp* const peer = find(qp->attr.dest_qp_num);
  if (peer == nullptr || !path(*qp->device(), *peer->device()) || !path(*peer->device(), *qp->device()))
    return;
  if (is_answer(flow)) {
    qp = peer;
    qp->retries = 0;  // a part of a response is progress, which reloads the counter
  }
  qp->moved_ns = time.now();
}

/// The timer of a requester waits: its oldest request has not left, or something of this connection came in
/// since.
bool Fabric::under_way(const Qp& qp) const {
  if (!wires_.any()) return false;
  if (qp.moved_ns != 0 && time.now() < qp.moved_ns + (uint64_t{4096} << qp.attr.timeout)) return true;
  const auto* const p =
      static_cast<const Packet*>(wires_.untouched(qp.device()->index, flow_of(qp.qp_num, false)));
  return p != nullptr && p->number <= qp.acked;
}

/// How much of a request's data travels.
size_t Fabric::bytes_of(const Wqe& w) const {
  constexpr uint32_t kHeaders = 512;
  if (!traits.no_bytes) return w.length;
  return w.opcode == IBV_WR_RDMA_WRITE ? 0 : std::min(w.length, kHeaders);
}
void Fabric::move_bytes(void* to, const void* from, size_t n) const {
  if (!traits.no_bytes) std::memcpy(to, from, n);
}

/// A READ that was answered comes again. A responder has one stream of answers, which goes back to what was
/// asked for last: what it has not begun to send of later ones is asked for again, too. True: the answer to
/// this one is still in that stream.
bool Fabric::goes_back(const Packet& p) {
  if (!wires_.any()) return false;
  const size_t port = p.target->index;
  const uint32_t flow = flow_of(p.to, true);
  const auto number = [](const void* packet) { return static_cast<const Packet*>(packet)->number; };
  wires_.withdraw(port, flow, [&](const void* packet) { return number(packet) > p.number; });
  return wires_.holds(port, flow, [&](const void* packet) { return number(packet) == p.number; });
}

/// It will send again from its oldest request on.
void Fabric::unsend(const Qp& qp) {
  if (wires_.any()) wires_.unsend(qp.device()->index, flow_of(qp.qp_num, false));
}

/// A request came before its predecessor, which is lost: the responder says so, once.
void Fabric::out_of_order(Qp& responder, const Packet& p) {
  if (!wires_.any() || responder.asked_again == responder.expected + 1) return;
  responder.asked_again = responder.expected + 1;
  time.in(
      journey(0),
      [](void* f, uint64_t number, void*) {
        Fabric& fabric = *static_cast<Fabric*>(f);
        Qp* const qp = fabric.find(static_cast<uint32_t>(number));
        if (qp == nullptr || qp->attr.qp_state != IBV_QPS_RTS || qp->sq.empty()) return;
        fabric.send_again(*qp);
      },
      this, p.from);
}

}  // namespace bfo::stack
