// SPDX-License-Identifier: BSD-3-Clause
//
// cm_send.cc: how the datagrams of an endpoint are filled in and addressed.
#include "btl/verbs/engine/send/cm_send.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "btl/verbs/engine/port/own_address.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

GidType type_of(const PortAddress& address) {
  return static_cast<GidType>(address.gid_type);
}

/// Nobody has answered the last packets, or the way cannot be made.
bool unanswered(const Outbox& outbox) {
  const Address* const address = outbox.address;
  return address != nullptr && (address->unheard >= AddressCache::kPathUnheard ||
                                (address->handle == nullptr && address->failures != 0));
}

/// Before a packet that begins a connection: the peer's next address in the order of rank_theirs(), when the
/// port has none for the current one, or packets to it had no answer.
void try_next_address(Endpoint& endpoint) {
  const Port& port = *endpoint.port;
  const Host& host = port.host();
  PortAddress& known = endpoint.peer.address;
  if (port.config().read_gids == nullptr || host.peer_gids == nullptr || port.gids().count == 0) return;
  if (reaches(port.gids(), known.gid, type_of(known)) && !unanswered(endpoint.outbox())) return;
  PublishedGid theirs[kMaxGids];
  uint8_t ranked[kMaxGids];
  const size_t count = rank_theirs(port.gids(), theirs, host.peer_gids(host.ctx, endpoint, theirs), ranked);
  if (count == 0) return;
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const PublishedGid& gid = theirs[ranked[i]];
    if (gid.type == type_of(known) && memcmp(gid.gid.raw, known.gid.raw, sizeof known.gid.raw) == 0)
      next = (i + 1) % count;
  }
  const PublishedGid& gid = theirs[ranked[next]];
  known.gid = gid.gid;
  known.gid_type = static_cast<uint8_t>(gid.type) & 0xf;
  endpoint.outbox().address = nullptr;
}

/// The own address of a packet to the peer; that of a REP is the one its queue pairs are connected with.
void own_address(const Endpoint& endpoint, PacketType type, PortAddress* own) {
  const Port& port = *endpoint.port;
  QpSettings settings;
  static_cast<void>(set_own_address(port, endpoint.peer.address, &settings, own));
  const GidEntry* const connected = port.gids().at(endpoint.qps().own_gid);
  if (type != PacketType::kReply || connected == nullptr) return;
  own->gid = connected->gid;
  own->gid_type = static_cast<uint8_t>(connected->type) & 0xf;
}

Packet make_packet(Endpoint& endpoint, PacketType type, uint32_t epoch, uint8_t path) {
  const bool bye = type == PacketType::kBye;
  const Port& port = *endpoint.port;
  PortAddress own = port.address();
  own_address(endpoint, type, &own);
  Packet packet{};
  packet.type = static_cast<uint8_t>(type);
  packet.source = port.config().own_name;
  packet.target = endpoint.peer.name;
  packet.source_nonce = port.nonce();
  packet.target_nonce = endpoint.peer.nonce;
  packet.epoch = epoch;
  packet.sequence = ++endpoint.packets().sent;
  packet.data_qpn = endpoint.qps().data.exists() ? endpoint.qps().data.number() : 0;
  packet.data_psn = endpoint.qps().data_psn;
  packet.probe_qpn = endpoint.qps().probe.exists() ? endpoint.qps().probe.number() : 0;
  packet.probe_psn = endpoint.qps().probe_psn;
  packet.probe_target_rkey = port.probe_target_rkey();
  packet.probe_target_address = bye ? endpoint.delivered : reinterpret_cast<uint64_t>(port.probe_target());
  packet.cm_qpn = own.cm_qpn;
  packet.receive_bytes = port.config().receive_bytes;
  packet.lid = own.lid;
  packet.link_layer = own.link_layer;
  packet.mtu = own.mtu;
  packet.lmc = own.lmc;
  packet.path = path;
  packet.max_read = port.settings().max_read;
  memcpy(packet.gid, own.gid.raw, sizeof packet.gid);
  memcpy(packet.to_gid, endpoint.peer.address.gid.raw, sizeof packet.to_gid);
  packet.gid_type = own.gid_type;
  if (type == PacketType::kSolicit || type == PacketType::kRequest)
    packet.flags = static_cast<uint8_t>(own_need(endpoint));
  const bool begins =
      type == PacketType::kSolicit || type == PacketType::kRequest || type == PacketType::kRefuse;
  if (const ClosedEpoch* const last = endpoint.last_closed(); begins && last != nullptr)
    packet.number = last->event.cause;
  // Of a rail that is given back: the peer's half of it is to end, and why.
  if (endpoint.phase == Phase::kDraining) packet.number = endpoint.ending().cause;
  if (bye) packet.flags = endpoint.peer.left ? kByeHeard : 0;
  if (type == PacketType::kRefuse) {
    packet.data_qpn = static_cast<uint32_t>(endpoint.shortage().object);
    packet.data_psn = static_cast<uint32_t>(endpoint.shortage().error);
  }
  return packet;
}

/// How the next datagram goes to the peer. nullptr when memory is short.
Address* way_of(Endpoint& endpoint, PacketType type) {
  Outbox& outbox = endpoint.outbox();
  if (type == PacketType::kSolicit || type == PacketType::kRequest) try_next_address(endpoint);
  Port& port = *endpoint.port;
  return outbox.address = port.addresses().way_to(endpoint.peer.address, outbox.address, port.env().now_ns());
}

/// The peer over path number `path`. nullptr when memory is short.
Address* over(const Endpoint& endpoint, uint8_t path) {
  Address* const used = endpoint.outbox().address;  // without a search
  if (used != nullptr && used->path == path) return used;
  return endpoint.port->addresses().find(endpoint.peer.address, path);
}

/// Gives the packet to the device.
bool hand_over(Endpoint& endpoint, ibv_ah* handle, uint32_t to, Packet* packet) {
  Port& port = *endpoint.port;
  packet_seal(packet, endpoint.peer.key);
  if (!port.cm_qp().send(handle, to, endpoint.peer.address.qkey, packet, sizeof *packet)) {
    port.tell_dropped("a datagram to send", "busy: no send buffer is free, or the queue pair is repaired",
                      packet);
    return false;
  }
  if (port.host().packet != nullptr) port.host().packet(port.host().ctx, endpoint, *packet, true);
  return true;
}

}  // namespace

bool cm_can_send(const Endpoint& endpoint) {
  return endpoint.outbox().address != nullptr && endpoint.outbox().address->handle != nullptr;
}

bool cm_find_way(Endpoint& endpoint) {
  if (endpoint.outbox().address == nullptr) return false;  // nothing was sent to it
  const uint8_t paths = path_count(endpoint.port->address(), endpoint.peer.address);
  for (uint8_t path = 0; path < paths && !cm_can_send(endpoint); ++path) {
    Address* const address = over(endpoint, path);
    if (address != nullptr && address->handle != nullptr) endpoint.outbox().address = address;
  }
  return cm_can_send(endpoint);
}

void cm_prepare_send(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  if (cm_can_send(endpoint)) return;
  const PacketType first = endpoint.initiator ? PacketType::kRequest : PacketType::kReply;
  if (Address* const address = way_of(endpoint, first); address != nullptr)
    port.addresses().handle(*address, port.env().now_ns());
}

namespace {

/// What cannot leave now leaves as soon as it can, if it still says something then.
void keep(Outbox& outbox, PacketType type, uint32_t epoch) {
  if (type == PacketType::kPing) {
    outbox.ping_waits = true;
    return;
  }
  if (type == PacketType::kBye) return;  // whoever says it says it again
  outbox.waits = true;
  outbox.type = type;
  outbox.epoch = epoch;
}

}  // namespace

bool cm_send(Endpoint& endpoint, PacketType type, uint32_t epoch) {
  Port& port = *endpoint.port;
  Address* const address = way_of(endpoint, type);
  if (address == nullptr) return false;  // the retransmission timer tries again
  ibv_ah* const handle = port.addresses().handle(*address, port.env().now_ns());
  if (handle == nullptr) {
    if (address->failures != 0) resource_unaddressed(endpoint, *address);
    keep(endpoint.outbox(), type, epoch);
    return false;
  }
  if (!port.cm_qp().can_send()) {
    // A process that was away has something for all of its peers: those at the end of the list have a turn,
    // too.
    keep(endpoint.outbox(), type, epoch);
    port.need_service();
    return false;
  }
  Packet packet = make_packet(endpoint, type, epoch, address->path);
  const bool ping = type == PacketType::kPing;
  const uint32_t to = ping ? endpoint.peer.address.heartbeat_qpn : endpoint.peer.address.cm_qpn;
  return hand_over(endpoint, handle, to, &packet);
}

bool cm_send_waiting(Endpoint& endpoint) {
  Outbox& outbox = endpoint.outbox();
  if (!outbox.waits && !outbox.ping_waits) return false;
  if (!cm_can_send(endpoint)) return false;
  if (!endpoint.port->cm_qp().can_send()) {
    endpoint.port->need_service();
    return false;
  }
  const bool datagram = std::exchange(outbox.waits, false);
  const bool ping = std::exchange(outbox.ping_waits, false);
  if (datagram && still_current(outbox.type, endpoint.phase, outbox.epoch, endpoint.epoch))
    cm_send(endpoint, outbox.type, outbox.epoch);
  return ping;
}

namespace {

/// Is it only said when one of ours has arrived? A REQ also comes by itself.
bool is_answer(PacketType type) {
  return type == PacketType::kReply || type == PacketType::kReady || type == PacketType::kPong;
}

}  // namespace

void cm_note_heard(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  Address*& address = endpoint.outbox().address;
  if (address == nullptr) return;
  AddressCache& addresses = endpoint.port->addresses();
  if (packet.path != address->path &&
      packet.path < path_count(endpoint.port->address(), endpoint.peer.address)) {
    Address* const other = addresses.find(endpoint.peer.address, packet.path);
    if (other != nullptr) address = other;
  }
  addresses.heard(*address, is_answer(static_cast<PacketType>(packet.type)), now);
}

void cm_refuse(Endpoint& endpoint) {
  cm_send(endpoint, PacketType::kRefuse, endpoint.epoch);
}

void cm_prepare_inquiries(Endpoint& carrier) {
  Port& port = *carrier.port;
  const uint8_t path = path_number(carrier, carrier.epoch);
  if (path == 0) return;  // the handshake's
  Address* const address = over(carrier, path);
  if (address != nullptr && address->handle == nullptr)
    port.addresses().handle(*address, port.env().now_ns());
}

void cm_note_answer(const Endpoint& carrier, const Packet& packet, uint64_t now) {
  if (packet.path >= path_count(carrier.port->address(), carrier.peer.address)) return;
  if (Address* const address = over(carrier, packet.path); address != nullptr)
    carrier.port->addresses().heard(*address, true, now);
}

void cm_send_inquiry(Endpoint& carrier, PacketType type, const InquiryDatagram& inquiry) {
  const uint8_t path = path_number(carrier, carrier.epoch);
  Address* const address = over(carrier, path);
  if (address == nullptr) return;
  Packet packet = make_packet(carrier, type, inquiry.epoch, path);
  packet.rail = inquiry.rail;
  packet.number = inquiry.number;
  packet.flags = inquiry.flags;
  packet.carrier = carrier.epoch;
  packet.count = inquiry.count;
  packet.probe_target_address = inquiry.arrived;
  Port& port = *carrier.port;
  ibv_ah* const handle = port.addresses().handle(*address, port.env().now_ns());
  if (handle == nullptr)  // it is lost, and asked again
    return port.tell_dropped("a datagram to send", "unaddressed: the handle of its path is not there",
                             &packet);
  static_cast<void>(hand_over(carrier, handle, carrier.peer.address.cm_qpn, &packet));
}

void cm_learn_address(Endpoint& endpoint, const Packet& packet) {
  PortAddress& known = endpoint.peer.address;
  const uint8_t lmc = std::min(packet.lmc, kMaxLmc);
  const uint8_t type =
      packet.gid_type <= static_cast<uint8_t>(GidType::kRoceV2) ? packet.gid_type : uint8_t{0};
  if (known.lid == packet.lid && known.gid_type == type &&
      memcmp(known.gid.raw, packet.gid, sizeof packet.gid) == 0 && known.mtu == packet.mtu &&
      known.lmc == lmc) {
    return;
  }
  endpoint.outbox().address = nullptr;
  // Not the numbers of its queue pairs: they stay, and the event thread reads them.
  known.lid = packet.lid;
  known.link_layer = packet.link_layer & 0xf;
  known.gid_type = type & 0xf;
  known.mtu = packet.mtu;
  known.lmc = lmc;
  memcpy(known.gid.raw, packet.gid, sizeof packet.gid);
}

}  // namespace bfo::engine
