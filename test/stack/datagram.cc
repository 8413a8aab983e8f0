// SPDX-License-Identifier: BSD-3-Clause
//
// datagram.cc: datagrams of the fabric: lost, doubled or late as FabricTraits has it.
#include <cstring>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "test/stack/packet.h"

namespace bfo::stack {

namespace {
constexpr uint32_t kGrh = 40;
}  // namespace

int Fabric::copies(const Qp&, const ibv_send_wr& wr) {
  int copies = dice.chance(traits.datagram_loss) ? 0 : 1;
  if (traits.types_lost != 0) {
    engine::Packet packet;
    const auto* const bytes = reinterpret_cast<const char*>(wr.sg_list->addr);
    if (engine::packet_read(bytes, wr.sg_list->length, &packet) &&
        (traits.types_lost >> packet.type & 1) != 0)
      copies = 0;
  }
  if (copies != 0 && dice.chance(traits.datagram_twice)) ++copies;
  return copies;
}

void Fabric::datagram(Qp& qp, const ibv_send_wr& wr) {
  ibv_wc wc{};
  wc.wr_id = wr.wr_id;
  wc.qp_num = qp.qp_num;
  wc.status = qp.attr.qp_state == IBV_QPS_RTS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;
  push(qp.init.send_cq, wc);
  if (wc.status != IBV_WC_SUCCESS) return;
  const Qp* const peer = find(wr.wr.ud.remote_qpn);
  for (int left = copies(qp, wr); left > 0 && peer != nullptr; --left) {
    Packet* const p = make_packet();
    p->from = 0;
    p->opcode = IBV_WR_SEND;
    p->length = wr.sg_list->length;
    p->to = wr.wr.ud.remote_qpn;
    p->qkey = wr.wr.ud.remote_qkey;
    p->source = qp.device();
    p->target = peer->device();
    p->data.assign(reinterpret_cast<const char*>(wr.sg_list->addr), wr.sg_list->length);
    uint64_t ns = journey(p->data.size());
    const bool late = dice.chance(traits.datagram_late);
    if (late) ns += dice.below(traits.late_ns);
    if (!late && carry(p, false)) continue;
    time.in(
        ns,
        [](void* f, uint64_t, void* x) {
          static_cast<Fabric*>(f)->datagram_arrives(static_cast<Packet*>(x));
        },
        this, 0, p);
  }
}

void Fabric::datagram_arrives(Packet* p) {
  Qp* const qp = find(p->to);
  const bool takes = qp != nullptr && qp->qp_type == IBV_QPT_UD && qp->attr.qkey == p->qkey &&
                     (qp->attr.qp_state == IBV_QPS_RTR || qp->attr.qp_state == IBV_QPS_RTS);
  if (takes && path(*p->source, *p->target)) receive_datagram(*qp, p->data.data(), p->data.size());
  free_packet(p);
}

void Fabric::receive_datagram(Qp& qp, const void* data, size_t length, uint32_t source_qpn) {
  if (qp.rq.empty()) return;
  const auto [wr_id, sge] = qp.rq.front();
  qp.rq.pop_front();
  std::memcpy(reinterpret_cast<char*>(sge.addr) + kGrh, data, length);
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = qp.qp_num;
  wc.src_qp = source_qpn;
  wc.byte_len = static_cast<uint32_t>(length) + kGrh;
  push(qp.init.recv_cq, wc);
}

}  // namespace bfo::stack
