// SPDX-License-Identifier: BSD-3-Clause
//
// rdma.cc: see rdma.h.
#include "btl/verbs/engine/send/rdma.h"

namespace bfo::engine {

int ring_post_rdma(Endpoint& endpoint, Frag* frag) {
  SendRing& ring = endpoint.ring();
  const uint64_t seq = ring.head;
  ibv_sge sge = {reinterpret_cast<uint64_t>(frag->data), frag->length, frag->lkey};
  ibv_send_wr wr{};
  wr.wr_id = work_id(WorkKind::kSend, seq);
  wr.sg_list = &sge;
  wr.num_sge = frag->length == 0 ? 0 : 1;
  wr.opcode = frag->kind == Kind::kGet ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = frag->remote_address;
  wr.wr.rdma.rkey = frag->rkey;
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(ring.qp, &wr, &bad);
  if (rc != 0) return ring_post_failed(endpoint, rc);
  const bool control = frag->kind == Kind::kControl;
  ring.slots[seq & ring.mask] = SendSlot{control ? nullptr : frag, 0, frag->length, frag->kind, 0, false};
  ring.head = seq + 1;
  ring.signaled_end = seq + 1;
  ring.since_signal = 0;
  endpoint.port->note_posted();
  bfo_accounting_t& accounting = endpoint.port->accounting();
  ++accounting.posted[static_cast<size_t>(frag->kind)];
  accounting.bytes_posted += frag->length;
  return 0;
}

Accepted put(Endpoint& endpoint, Frag* frag) {
  frag->kind = Kind::kPut;
  return send(endpoint, frag);
}

Accepted get(Endpoint& endpoint, Frag* frag) {
  frag->kind = Kind::kGet;
  return send(endpoint, frag);
}

int post_bare(const Endpoint& endpoint, ibv_qp* qp, uint64_t wr_id) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = endpoint.probe_target().address;
  wr.wr.rdma.rkey = endpoint.probe_target().rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace bfo::engine
