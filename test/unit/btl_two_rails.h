// SPDX-License-Identifier: BSD-3-Clause
//
// btl_two_rails.h: two processes that are connected over two rails.
#pragma once

#include "btl/verbs/engine/watchdog/verdict.h"
#include "test/unit/btl_world.h"

namespace bfo::test {

/// Rail 1 is that of a World, between a (which decides) and b; rail 2 has the ports c, of a's process, and d.
struct TwoRails {
  World w;
  Process c;
  Process d;
  bool a_runs = true;  // the progress function of a process
  bool b_runs = true;

  explicit TwoRails(const engine::Config& config = small_config()) : w(config) {
    c.open(w.fabric, "left2", 1, config);
    d.open(w.fabric, "right2", 2, config);
    c.meet(d, 2);
    d.meet(c, 1);
    w.a.siblings = {&c};
    w.b.siblings = {&d};
    c.siblings = {&w.a};
    d.siblings = {&w.b};
    engine::cm_connect(w.a.endpoint);
    engine::cm_connect(c.endpoint);
    pass(5);
    EXPECT_EQ(w.a.endpoint.phase, engine::Phase::kUp);
    EXPECT_EQ(d.endpoint.phase, engine::Phase::kUp);
    for (Process* p : {&w.a, &w.b, &c, &d}) p->log.clear();
  }
  ~TwoRails() {
    c.port.remove(c.endpoint);
    d.port.remove(d.endpoint);
    EXPECT_TRUE(c.balanced());
    EXPECT_TRUE(d.balanced());
    c.port.close();
    d.port.close();
  }
  void turn() {
    for (Process* p : {&w.a, &w.b, &c, &d}) p->serve_heartbeat();
    w.fabric.run();
    if (a_runs) w.a.poll();
    if (a_runs) c.poll();
    if (b_runs) w.b.poll();
    if (b_runs) d.poll();
  }
  void pass(uint64_t ms) {
    for (uint64_t i = 0; i < ms * 10; ++i) step();
  }
  void step() {
    test_now() += 100'000;
    for (int k = 0; k < 32; ++k) turn();
  }
  /// Turns that take a microsecond each.
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      test_now() += 1000;
      turn();
    }
  }
  /// The same, in larger steps.
  void wait(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) {
      test_now() += 1'000'000;
      for (int k = 0; k < 32; ++k) turn();
    }
  }
  /// The work of both ends of a rail stands still.
  void hold(Process& x, Process& y) {
    for (Process* p : {&x, &y}) {
      w.fabric.held.insert(p->endpoint.qps().data.number());
      w.fabric.held.insert(p->endpoint.qps().probe.number());
    }
  }
  void release() {
    w.fabric.held.clear();
    w.fabric.deaf.clear();
    w.fabric.run();
  }
  /// Nothing passes over a rail any more, and nobody says so.
  void swallow(Process& x, Process& y) {
    hold(x, y);
    w.fabric.deaf.insert(x.port.address().cm_qpn);
  }
  bool probe_fails(Process& p) {
    return w.fabric.fail(p.endpoint.qps().probe.number(), IBV_WC_RETRY_EXC_ERR);
  }
  /// The peer asks `about` to end its rail, in a datagram that comes over `over` in its epoch `carrier`.
  static void request_end(Process& about, Process& over, uint32_t carrier) {
    const engine::Endpoint& endpoint = about.endpoint;
    engine::Packet request_end{};
    request_end.type = static_cast<uint8_t>(engine::PacketType::kQuestion);
    request_end.rail = engine::connection_id(about.port.nonce(), endpoint.peer.nonce);
    request_end.epoch = 1;
    request_end.number = 1;
    request_end.flags = engine::kInquiryRequestEnd;
    request_end.carrier = carrier;
    request_end.count = endpoint.delivered + endpoint.ring().tail;
    engine::verdict_packet(over.endpoint, request_end, test_now());
  }
  /// The peer's answer to the last question about the rail of `about`, in a datagram that comes over `over`.
  static engine::Packet answer_over(const Process& about, const Process& over) {
    const engine::Endpoint& rail = about.endpoint;
    engine::Packet answer{};
    answer.type = static_cast<uint8_t>(engine::PacketType::kAnswer);
    answer.rail = engine::connection_id(about.port.nonce(), rail.peer.nonce);
    answer.epoch = rail.epoch;
    answer.number = rail.watch().inquiry.round;
    answer.flags = engine::kInquiryAlive | engine::kInquiryCarrier;
    answer.carrier = over.endpoint.epoch;
    return answer;
  }
  /// All ports get four LIDs each. Ends the rails until the first one takes another path than datagrams do.
  void many_lids() {
    uint16_t lid = 64;
    for (Process* p : {&w.a, &w.b, &c, &d}) {
      p->hca->port.lid = lid;
      p->hca->port.lmc = 2;
      lid = static_cast<uint16_t>(lid + 4);
      w.fabric.raise(*p->hca, IBV_EVENT_LID_CHANGE, 1);
    }
    wait(3000);
    for (int i = 0; i < 4 && path() == 0; ++i) {
      engine::close_order(w.a.endpoint, w.a.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
      wait(1000);
    }
    ASSERT_NE(path(), 0);
    for (Process* p : {&w.a, &w.b, &c, &d}) {
      ASSERT_EQ(p->endpoint.phase, engine::Phase::kUp);
      p->log.clear();
      p->down = 0;
    }
  }
  /// Of the first rail.
  uint8_t path() const { return engine::path_number(w.a.endpoint, w.a.endpoint.epoch); }
  int downs() const { return w.a.down + w.b.down + c.down + d.down; }
};

}  // namespace bfo::test
