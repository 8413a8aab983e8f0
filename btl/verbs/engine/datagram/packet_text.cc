// SPDX-License-Identifier: BSD-3-Clause
//
// packet_text.cc: see packet_text.h.
#include "btl/verbs/engine/datagram/packet_text.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace bfo::engine {
namespace {

const char* need_text(uint8_t need) {
  switch (static_cast<Need>(need)) {
    case Need::kNone:
      return "none";
    case Need::kTalks:
      return "the peer is talked to";
    case Need::kWaits:
      return "messages wait";
  }
  return "unknown";
}

void describe_refusal(char* out, size_t size, const Packet& packet) {
  const bool known = packet.data_qpn < kObjects;
  const char* const object = object_verb(known ? static_cast<Object>(packet.data_qpn) : Object::kNone);
  const char* const error = errno_name(static_cast<int>(packet.data_psn));
  if (error != nullptr) {
    snprintf(out, size, "REFUSE of epoch %u: cannot %s: %s", packet.epoch, object, error);
  } else {
    snprintf(out, size, "REFUSE of epoch %u: cannot %s: errno %u", packet.epoch, object, packet.data_psn);
  }
}

void describe_inquiry(char* out, size_t size, const Packet& packet) {
  const bool ends = (packet.flags & kInquiryRequestEnd) != 0;
  snprintf(out, size, "%s %u about rail %016" PRIx64 " epoch %u, over epoch %u: %" PRIu64 " moved%s",
           packet_name(packet.type), packet.number, packet.rail, packet.epoch, packet.carrier, packet.count,
           ends ? ", end it" : "");
}

}  // namespace

const char* object_verb(Object object) {
  switch (object) {
    case Object::kNone:
      break;
    case Object::kCompletionQueue:
      return "make a completion queue";
    case Object::kQueuePair:
      return "make a queue pair";
    case Object::kQueuePairState:
      return "set up a queue pair";
    case Object::kAddressHandle:
      return "make an address handle";
    case Object::kMemory:
      return "register memory";
    case Object::kBuffers:
      return "allocate memory";
  }
  return "make a rail";
}

const char* errno_name(int error) {
  switch (error) {
    case ENOMEM:
      return "ENOMEM";
    case EAGAIN:
      return "EAGAIN";
    case EINVAL:
      return "EINVAL";
    case ENOSPC:
      return "ENOSPC";
    case EPERM:
      return "EPERM";
    case EACCES:
      return "EACCES";
    case EIO:
      return "EIO";
    case EBUSY:
      return "EBUSY";
    case EMFILE:
      return "EMFILE";
    case ETIMEDOUT:
      return "ETIMEDOUT";
    case ENETUNREACH:
      return "ENETUNREACH";
    case EHOSTUNREACH:
      return "EHOSTUNREACH";
    case ENODEV:
      return "ENODEV";
    default:
      return nullptr;
  }
}

const char* packet_name(uint8_t type) {
  switch (static_cast<PacketType>(type)) {
    case PacketType::kSolicit:
      return "SOLICIT";
    case PacketType::kRequest:
      return "REQ";
    case PacketType::kReply:
      return "REP";
    case PacketType::kReady:
      return "READY";
    case PacketType::kBye:
      return "BYE";
    case PacketType::kPing:
      return "PING";
    case PacketType::kPong:
      return "PONG";
    case PacketType::kRefuse:
      return "REFUSE";
    case PacketType::kQuestion:
      return "QUESTION";
    case PacketType::kAnswer:
      return "ANSWER";
  }
  return "unknown";
}

void describe_packet(char* out, size_t size, const Packet& packet) {
  const char* const name = packet_name(packet.type);
  switch (static_cast<PacketType>(packet.type)) {
    case PacketType::kSolicit:
      snprintf(out, size, "SOLICIT after epoch %u, need: %s", packet.epoch, need_text(packet.flags));
      return;
    case PacketType::kRequest:
      snprintf(out, size, "REQ of epoch %u, queue pairs 0x%x and 0x%x, need: %s", packet.epoch,
               packet.data_qpn, packet.probe_qpn, need_text(packet.flags));
      return;
    case PacketType::kReply:
    case PacketType::kReady:
      snprintf(out, size, "%s of epoch %u, queue pairs 0x%x and 0x%x", name, packet.epoch, packet.data_qpn,
               packet.probe_qpn);
      return;
    case PacketType::kBye:
      snprintf(out, size, "BYE of epoch %u, %" PRIu64 " messages have come%s", packet.epoch,
               packet.probe_target_address, (packet.flags & kByeHeard) != 0 ? ", the answer to a BYE" : "");
      return;
    case PacketType::kPing:
    case PacketType::kPong:
      snprintf(out, size, "%s %u since the last answer", name, packet.epoch);
      return;
    case PacketType::kRefuse:
      return describe_refusal(out, size, packet);
    case PacketType::kQuestion:
    case PacketType::kAnswer:
      return describe_inquiry(out, size, packet);
  }
  snprintf(out, size, "%s type %u", name, packet.type);
}

const char* drop_text(Drop reason) {
  switch (reason) {
    case Drop::kNone:
      return "none";
    case Drop::kShape:
      return "shape: its length, magic number, version or size is not that of this build";
    case Drop::kForeign:
      return "foreign: it is for another process, or another life of this one";
    case Drop::kSum:
      return "sum: it is not summed with the key of this port";
    case Drop::kType:
      return "type: this queue pair takes no such packet";
    case Drop::kStranger:
      return "stranger: nobody of that name and life is known here";
    case Drop::kLeft:
      return "left: its sender has left, or its rail will not come back";
    case Drop::kReplayed:
      return "replayed: it was taken before, or is too old to tell";
    case Drop::kMemory:
      return "memory: none for what the answer needs; it comes again";
    case Drop::kStale:
      return "stale: nothing is to be done about it in this phase and epoch";
    case Drop::kCount:
      break;
  }
  return "unknown";
}

}  // namespace bfo::engine
