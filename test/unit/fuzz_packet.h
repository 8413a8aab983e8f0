// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_packet.h: arbitrary bytes as datagrams to two processes in any phase of their connection. Must never
// crash, leave a queue pair or a piece of work behind, or keep an honest peer from connecting afterwards.
// Used by the libFuzzer target and by a unit test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "test/unit/btl_world.h"

namespace bfo::test {

class PacketTarget {
 public:
  /// `start`: how far the honest connection has come, and whether work is on its way.
  explicit PacketTarget(uint8_t start) {
    if (start & 1) engine::cm_connect(world_.a.endpoint);
    if (start & 2) engine::cm_connect(world_.b.endpoint);
    for (int i = 0; i < (start >> 2) % 24; ++i) {
      test_now() += 10'000;
      world_.a.poll();
      world_.b.poll();
    }
    if (start & 0x80) {
      engine::send(world_.a.endpoint, world_.frag("one"));
      engine::send(world_.b.endpoint, world_.frag("two"));
    }
  }

  /// One record: where it goes, which honest packet it is made from, what is changed. Returns the bytes used.
  size_t record(const uint8_t* data, size_t size) {
    if (size < 3) return size;
    const uint8_t how = data[0];
    Process& to = how & 1 ? world_.b : world_.a;
    Process& from = how & 1 ? world_.a : world_.b;
    char bytes[sizeof(engine::Packet)];
    honest(bytes, from, to, data[1]);
    const size_t edits = std::min<size_t>(data[2] % 8, (size - 3) / 2);
    for (size_t i = 0; i < edits; ++i)
      bytes[data[3 + 2 * i] % sizeof bytes] = static_cast<char>(data[4 + 2 * i]);
    if (how & 2) seal(to, bytes);
    knowing_ = knowing_ || (how & 2);
    const size_t length = how & 4 ? data[2] % (sizeof bytes + 1) : sizeof bytes;
    if (how & 8) {
      to_every_queue(to, bytes, length);
    } else {
      engine::cm_receive(to.port, bytes, length);
    }
    turn();
    return 3 + 2 * edits;
  }

  /// The two find each other once the forger is silent. One that knows the keys may have told either that
  /// the other is gone or far ahead; what a network does (loses, damages, doubles, delays) must pass.
  bool heals() {
    if (knowing_) return true;
    for (int i = 0; i < 20'000; ++i) {
      engine::cm_connect(world_.a.endpoint);
      engine::cm_connect(world_.b.endpoint);
      turn();
      test_now() += 800'000;
      if (world_.a.endpoint.usable && world_.b.endpoint.usable &&
          world_.a.endpoint.epoch == world_.b.endpoint.epoch)
        return true;
    }
    return false;
  }

  bool knowing() const { return knowing_; }
  uint64_t dropped() { return world_.a.port.accounting().dropped + world_.b.port.accounting().dropped; }

 private:
  /// What `from` could have sent: a packet it did send, or one with right names and nonces.
  void honest(char* bytes, const Process& from, const Process& to, uint8_t which) {
    engine::Packet packet{};
    if (which >= 64 && !world_.fabric.datagrams.empty()) {
      const std::string& sent = world_.fabric.datagrams[which % world_.fabric.datagrams.size()];
      std::memcpy(&packet, sent.data(), std::min(sent.size(), sizeof packet));
    } else {
      knowing_ = true;
      packet.type = static_cast<uint8_t>(which % 12);
      packet.source = from.port.config().own_name;
      packet.target = to.port.config().own_name;
      packet.source_nonce = from.port.nonce();
      packet.target_nonce = to.port.nonce();
      packet.epoch = to.endpoint.epoch + which / 12 % 3;
      packet.sequence = from.endpoint.packets().sent + ++numbers_;
      engine::packet_seal(&packet, to.port.key());
    }
    std::memcpy(bytes, &packet, sizeof packet);
  }

  static void seal(Process& to, char* bytes) {
    engine::Packet packet;
    std::memcpy(&packet, bytes, sizeof packet);
    engine::packet_seal(&packet, to.port.key());
    std::memcpy(bytes, &packet, sizeof packet);
  }

  /// The connection manager's and the heartbeat's, as anybody on the fabric can send to both.
  void to_every_queue(Process& to, const char* bytes, size_t length) {
    for (stack::Qp* const qp : world_.fabric.live())
      if (qp->qp_type == IBV_QPT_UD && qp->device() == to.hca)
        world_.fabric.receive_datagram(*qp, bytes, length);
  }

  void turn() {
    test_now() += 200'000;
    world_.a.serve_heartbeat();
    world_.b.serve_heartbeat();
    for (int i = 0; i < 4; ++i) {
      world_.fabric.run();
      world_.a.poll();
      world_.b.poll();
    }
  }

  bool knowing_ = false;
  uint64_t numbers_ = 0;
  World world_;  // its destructor holds the books to account
};

/// One byte for the state of the connection, then records. False: an honest peer cannot connect any more.
inline bool packet_input(const uint8_t* data, size_t size) {
  if (size == 0) return true;
  PacketTarget target(data[0]);
  for (size_t at = 1; at < size;) at += target.record(data + at, size - at);
  return target.heals();
}

}  // namespace bfo::test
