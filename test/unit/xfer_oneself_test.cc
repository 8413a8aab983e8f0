// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of a process to itself (oneself.h): they use no rail, whatever their length and mode.
#include <gtest/gtest.h>

#include <numeric>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

using xfer::SendMode;

/// One rank that knows itself. Its rail carries nothing: there is no flight and no fragment.
struct Alone : World {
  Alone() : World(options_of()) {}
  ~Alone() {
    EXPECT_TRUE(flights.empty());
    EXPECT_EQ(ports[0]->frags_, 0);
    EXPECT_EQ(ports[0]->registrations_, 0);
    EXPECT_EQ(engines[0]->unfinished(), 0u);
  }
  static Options options_of() {
    Options o;
    o.ranks = 1;
    o.own = true;
    return o;
  }
};

constexpr size_t kSizes[] = {0, 1, 242, 243, 50000};  // 242 and its header are an eager message

/// Each length around what is kept until the receive comes, and a long one.
std::vector<size_t> lengths() {
  std::vector<size_t> all(300);
  std::iota(all.begin(), all.end(), 0);
  all.push_back(50000);
  return all;
}

TEST(Oneself, PostedReceive_IsFilledInsideTheSend) {
  for (const SendMode mode : {SendMode::kStandard, SendMode::kSync, SendMode::kReady})
    for (const size_t size : lengths()) {
      Alone w;
      RecvReq* const r = w.irecv(0, 0, 1, size);
      SendReq* const s = w.isend(0, 0, 1, pattern(size, 4), mode);
      EXPECT_TRUE(s->done && r->done) << size;
      EXPECT_EQ(r->data, s->data);
      EXPECT_EQ(r->status.source, 0);
      EXPECT_EQ(r->status.tag, 1);
      EXPECT_EQ(r->status.length, size);
    }
}

TEST(Oneself, ReceiveLater_FindsTheBytes) {
  for (const SendMode mode : {SendMode::kStandard, SendMode::kSync})
    for (const size_t size : lengths()) {
      Alone w;
      SendReq* const s = w.isend(0, 0, 1, pattern(size, 4), mode);
      EXPECT_EQ(s->done, mode == SendMode::kStandard && size <= 242) << size;
      const auto sent = s->data;
      if (s->done) s->data.assign(size, 0);  // the buffer is the program's again
      RecvReq* const r = w.irecv(0, xfer::kAnySource, xfer::kAnyTag, size);
      EXPECT_TRUE(s->done && r->done);
      EXPECT_EQ(r->data, sent);
    }
}

TEST(Oneself, OrderHoldsBetweenShortAndLong) {
  Alone w;
  SendReq* const first = w.isend(0, 0, 1, pattern(5000, 1));
  SendReq* const second = w.isend(0, 0, 1, pattern(10, 2));
  SendReq* const third = w.isend(0, 0, 1, pattern(20, 3), SendMode::kSync);
  EXPECT_FALSE(first->done);
  EXPECT_FALSE(third->done);
  for (SendReq* const s : {first, second, third}) {
    RecvReq* const r = w.irecv(0, 0, 1, s->data.size());
    EXPECT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
  }
}

TEST(Oneself, LongerThanTheReceive_IsTruncated) {
  for (const bool receive_first : {true, false})
    for (const size_t size : {100u, 5000u}) {
      Alone w;
      RecvReq* r = receive_first ? w.irecv(0, 0, 1, 40) : nullptr;
      SendReq* const s = w.isend(0, 0, 1, pattern(size, 4));
      if (!r) r = w.irecv(0, 0, 1, 40);
      EXPECT_TRUE(s->done && r->done);
      EXPECT_EQ(s->outcome, Outcome::kOk);
      EXPECT_EQ(r->status.outcome, Outcome::kTruncated);
      EXPECT_EQ(r->status.length, 40u);
      EXPECT_TRUE(std::equal(r->data.begin(), r->data.end(), s->data.begin()));
    }
}

TEST(Oneself, ProbesSeeIt_AndTakeIt) {
  for (const size_t size : kSizes) {
    Alone w;
    Engine& e = *w.engines[0];
    SendReq* const s = w.isend(0, 0, 7, pattern(size, 4));
    xfer::ProbeResult probed;
    ASSERT_TRUE(e.iprobe(w.comms[0], xfer::kAnySource, 7, probed));
    EXPECT_EQ(probed.length, size);
    EXPECT_EQ(probed.source, 0);
    Engine::Message* const m = e.improbe(w.comms[0], 0, xfer::kAnyTag, probed);
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(probed.length, size);
    EXPECT_EQ(probed.tag, 7);
    EXPECT_FALSE(e.iprobe(w.comms[0], 0, 7, probed));
    RecvReq r;
    r.data.resize(size);
    e.imrecv(m, &r, size);
    EXPECT_TRUE(s->done && r.done);
    EXPECT_EQ(r.data, s->data);
  }
}

TEST(Oneself, CancelledReceive_IsNotFilled) {
  Alone w;
  RecvReq* const cancelled = w.irecv(0, 0, 1, 10);
  ASSERT_TRUE(w.engines[0]->cancel(cancelled));
  SendReq* const s = w.isend(0, 0, 1, pattern(5000, 4));
  EXPECT_FALSE(s->done || cancelled->done);
  RecvReq* const r = w.irecv(0, 0, 1, 5000);
  EXPECT_TRUE(s->done && r->done);
  EXPECT_FALSE(cancelled->done);
}

TEST(Oneself, InlineSend_TakesWhatFitsOrIsWaitedFor) {
  Alone w;
  const auto data = pattern(200, 4);
  FakePort::InlineSource source{data.data()};
  xfer::SendArgs<FakePort> args;
  args.comm = w.comms[0];
  args.dst = 0;
  args.tag = 1;
  args.length = data.size();
  Engine& e = *w.engines[0];
  RecvReq* const posted = w.irecv(0, 0, 1, 200);
  EXPECT_TRUE(e.send_inline(args, source));
  EXPECT_TRUE(posted->done);
  EXPECT_EQ(posted->data, data);
  EXPECT_TRUE(e.send_inline(args, source));
  RecvReq* const late = w.irecv(0, 0, 1, 200);
  EXPECT_TRUE(late->done);
  EXPECT_EQ(late->data, data);
  args.mode = SendMode::kSync;
  EXPECT_FALSE(e.send_inline(args, source));
}

TEST(Oneself, NoMemory_EndsTheSend) {
  for (const size_t size : {100u, 5000u}) {
    Alone w;
    w.peer(0, 0);
    w.irecv(0, 0, 2, 1);  // what is made on first use is there
    w.isend(0, 0, 2, pattern(1, 1));
    w.ports[0]->refuse_ = [](size_t) { return true; };
    SendReq* const s = w.isend(0, 0, 1, pattern(size, 4));
    EXPECT_TRUE(s->done);
    EXPECT_EQ(s->outcome, Outcome::kNoMemory);
    w.ports[0]->refuse_ = nullptr;
  }
}

/// A completion may start the next message, more often than numbers of a window.
TEST(Oneself, MessagesThatStartEachOther_AllEnd) {
  Alone w;
  int left = 40000;
  RecvReq r;
  SendReq s;
  s.data = pattern(8, 1);
  r.data.resize(8);
  xfer::RecvArgs<FakePort> args;
  args.comm = w.comms[0];
  args.src = 0;
  args.tag = 1;
  args.capacity = 8;
  while (--left > 0) {
    r.done = false;
    w.engines[0]->irecv(&r, args);
    w.restart_send(&s, 0, 0, 1);
    ASSERT_TRUE(r.done && s.done);
  }
}

}  // namespace
}  // namespace bfo::test
