// SPDX-License-Identifier: BSD-3-Clause
//
// mail.cc: how the datagrams of an endpoint are filled in and addressed.
#include "btl/verbs/engine/mail.h"

#include <cstring>

#include "btl/verbs/engine/port.h"

namespace bfo::engine {
namespace {

Packet make_packet(const Endpoint& endpoint, PacketType type, uint32_t epoch) {
  const bool bye = type == PacketType::kBye;
  const Port& port = *endpoint.port;
  const PortAddress& own = port.address();
  Packet packet{};
  packet.type = static_cast<uint8_t>(type);
  packet.source = port.config().own_name;
  packet.target = endpoint.peer_name;
  packet.source_nonce = port.nonce();
  packet.target_nonce = endpoint.peer_nonce;
  packet.epoch = epoch;
  packet.data_qpn = endpoint.data.exists() ? endpoint.data.number() : 0;
  packet.data_psn = endpoint.data_psn;
  packet.probe_qpn = endpoint.probe.exists() ? endpoint.probe.number() : 0;
  packet.probe_psn = endpoint.probe_psn;
  packet.landing_rkey = type == PacketType::kPing ? own.qkey : port.landing_rkey();
  packet.landing_address = bye ? endpoint.delivered : reinterpret_cast<uint64_t>(port.landing());
  packet.ud_qpn = own.ud_qpn;
  packet.receive_bytes = port.config().receive_bytes;
  packet.lid = own.lid;
  packet.link_layer = own.link_layer;
  packet.mtu = own.mtu;
  packet.max_read = port.settings().max_read;
  memcpy(packet.gid, own.gid.raw, sizeof packet.gid);
  packet_seal(&packet);
  return packet;
}

}  // namespace

void mail_send(Endpoint& endpoint, PacketType type, uint32_t epoch) {
  Port& port = *endpoint.port;
  if (endpoint.ah == nullptr) {
    ibv_ah_attr attr = address_vector(port.settings(), port.address(), endpoint.peer);
    endpoint.ah = port.api().create_ah(port.device().pd(), &attr);
    if (endpoint.ah == nullptr) return;  // the retransmission timer tries again
  }
  const Packet packet = make_packet(endpoint, type, epoch);
  const uint32_t to = type == PacketType::kPing ? endpoint.peer.pulse_qpn : endpoint.peer.ud_qpn;
  static_cast<void>(port.ud().send(endpoint.ah, to, endpoint.peer.qkey, &packet, sizeof packet));
}

void mail_learn_address(Endpoint& endpoint, const Packet& packet) {
  PortAddress now;
  now.lid = packet.lid;
  now.link_layer = packet.link_layer;
  now.mtu = packet.mtu;
  now.ud_qpn = packet.ud_qpn;
  now.pulse_qpn = endpoint.peer.pulse_qpn;
  now.qkey = endpoint.peer.qkey;
  memcpy(now.gid.raw, packet.gid, sizeof packet.gid);
  const PortAddress& old = endpoint.peer;
  if (old.lid == now.lid && memcmp(old.gid.raw, now.gid.raw, sizeof now.gid.raw) == 0 &&
      old.ud_qpn == now.ud_qpn && old.mtu == now.mtu) {
    return;
  }
  if (endpoint.ah != nullptr) endpoint.port->api().destroy_ah(endpoint.ah);
  endpoint.ah = nullptr;
  endpoint.peer = now;
}

}  // namespace bfo::engine
