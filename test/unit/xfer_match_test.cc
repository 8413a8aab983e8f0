// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_match_test.cc: matching compared step by step with match_model.h: random receives, arrivals in any
// order over two rails, cancels, probes and matched probes, with wildcards, internal tags, several sources,
// short and long queues, eager and rendezvous, with and without memory for the indexes.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "test/unit/fake_world.h"
#include "test/unit/match_model.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr int kRanks = 4;  ///< 0 receives from the others

/// What a message holds.
std::vector<uint8_t> payload(const ModelMessage& m, size_t size) {
  std::vector<uint8_t> d(size, static_cast<uint8_t>(m.seq));
  d[0] = static_cast<uint8_t>(m.src);
  std::memcpy(&d[1], &m.seq, sizeof m.seq);
  return d;
}

class Duel {
 public:
  explicit Duel(unsigned seed) : rng_(seed), w_(options()) {
    for (int i = 1; i < kRanks; ++i) w_.peer(0, i);
    tags_ = 1 << below(9);
    any_source_ = below(3) * 20;
    any_tag_ = below(3) * 15;
    internal_ = below(2) * 10;
    if (seed % 4 == 2) w_.ports[0]->refuse_ = [](size_t n) { return n > 1000; };  // no index
    if (seed % 4 == 3) w_.ports[0]->refuse_ = [](size_t n) { return n > 4000; };  // none that grows
  }

  void run(int steps) {
    int lean = 0;
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      if (i % 150 == 0) lean = below(3);  // to messages, to receives, to neither
      const int what = below(100);
      const int sends = lean == 0 ? 40 : lean == 1 ? 10 : 22;
      if (what < sends)
        send();
      else if (what < 2 * sends)
        arrive();
      else if (what < 88)
        post();
      else if (what < 92)
        cancel();
      else if (what < 95)
        probe();
      else if (what < 98)
        matched_probe();
      else
        receive_held();
      compare();
    }
    finish();
  }
  size_t longest() const { return longest_; }

 private:
  struct Receive {
    RecvReq* request = nullptr;
    std::optional<ModelMessage> match;
    bool cancelled = false;
  };
  struct Held {
    Engine::Message* message;
    ModelMessage m;
  };
  static World::Options options() {
    World::Options o;
    o.ranks = kRanks;
    o.eager = 64;
    return o;
  }

  int below(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  Engine& engine() { return *w_.engines[0]; }
  int tag() { return below(100) < internal_ ? -10 - below(3) : below(tags_); }
  int any_source_or(int src) { return below(100) < any_source_ ? xfer::kAnySource : src; }
  int any_tag_or(int t) { return below(100) < any_tag_ ? xfer::kAnyTag : t; }

  void send() {
    ModelMessage m{1 + below(kRanks - 1), tag(), 0};
    m.seq = next_seq_[m.src]++;
    w_.isend(m.src, 0, m.tag, payload(m, below(8) == 0 ? 100 : 8));
  }
  void arrive() {
    if (w_.flights.empty()) return;
    const int n = static_cast<int>(w_.flights.size());
    take(static_cast<size_t>(below(2) == 0 ? below(n) : below(n < 4 ? n : 4)));
  }
  void take(size_t at) {
    const Flight f = w_.flights[at];
    core::MatchHdr h;
    const bool eager = f.tag == static_cast<uint8_t>(core::MsgType::kMatch);
    const bool matched_here = f.to == 0 && (eager || f.tag == static_cast<uint8_t>(core::MsgType::kRndv));
    if (matched_here) {
      ASSERT_TRUE(
          core::decode(static_cast<core::MsgType>(f.tag), core::Bytes{f.bytes.data(), f.bytes.size()}, h));
      for (const auto& [receive, m] : model_.arrive(ModelMessage{h.src, h.tag, h.seq}))
        receives_[static_cast<size_t>(receive)].match = m;
    }
    w_.take(at);
    if (matched_here && eager && below(10) == 0) w_.arrive(f);  // a copy
  }
  void post() {
    const int src = any_source_or(1 + below(kRanks - 1));
    const int t = any_tag_or(tag());
    const int number = static_cast<int>(receives_.size());
    receives_.push_back({});
    receives_.back().match = model_.post(number, src, t);
    receives_.back().request = w_.irecv(0, src, t, 128);
    open_.push_back(number);
  }
  void cancel() {
    if (open_.empty()) return;
    const int number = open_[static_cast<size_t>(below(static_cast<int>(open_.size())))];
    Receive& r = receives_[static_cast<size_t>(number)];
    const bool expected = model_.cancel(number);
    EXPECT_EQ(engine().cancel(r.request), expected) << "receive " << number;
    r.cancelled = r.cancelled || expected;
  }
  void expect_probed(const std::optional<ModelMessage>& m, bool found, const xfer::ProbeResult& result) {
    ASSERT_EQ(found, m.has_value());
    if (!m) return;
    EXPECT_EQ(result.source, m->src);
    EXPECT_EQ(result.tag, m->tag);
  }
  void probe() {
    const int src = any_source_or(1 + below(kRanks - 1));
    const int t = any_tag_or(tag());
    xfer::ProbeResult result;
    const bool found = engine().iprobe(w_.comms[0], src, t, result);
    expect_probed(model_.probe(src, t), found, result);
  }
  void matched_probe() {
    const int src = any_source_or(1 + below(kRanks - 1));
    const int t = any_tag_or(tag());
    xfer::ProbeResult result;
    Engine::Message* const found = engine().improbe(w_.comms[0], src, t, result);
    const auto m = model_.take(src, t);
    expect_probed(m, found != nullptr, result);
    if (found && m) held_.push_back({found, *m});
  }
  void receive_held() {
    if (held_.empty()) return;
    const auto at = held_.begin() + below(static_cast<int>(held_.size()));
    w_.recvs.push_back(std::make_unique<RecvReq>());
    RecvReq* const r = w_.recvs.back().get();
    r->data.assign(128, 0xee);
    open_.push_back(static_cast<int>(receives_.size()));
    receives_.push_back({r, at->m, false});
    engine().imrecv(at->message, r, 128);
    held_.erase(at);
  }

  void compare() {
    std::erase_if(open_, [&](int number) {
      const Receive& r = receives_[static_cast<size_t>(number)];
      EXPECT_EQ(r.request->matched, r.match.has_value()) << "receive " << number;
      return r.match || r.cancelled;
    });
    const auto all = engine().queue_lengths(w_.comms[0], xfer::kAnySource);
    EXPECT_EQ(all.unexpected, model_.unexpected());
    EXPECT_EQ(all.posted, model_.posted(xfer::kAnySource));
    for (int i = 1; i < kRanks; ++i) {
      const auto of = engine().queue_lengths(w_.comms[0], i);
      EXPECT_EQ(of.unexpected, model_.unexpected(i));
      EXPECT_EQ(of.posted, model_.posted(i));
    }
    longest_ = std::max({longest_, model_.posted(), model_.unexpected()});
  }
  void finish() {
    while (!w_.flights.empty() && !::testing::Test::HasFailure()) take(0);
    while (!held_.empty()) receive_held();
    compare();
    ASSERT_TRUE(w_.run());
    for (const Receive& r : receives_) {
      if (!r.match) continue;
      ASSERT_TRUE(r.request->done);
      EXPECT_EQ(r.request->status.source, r.match->src);
      EXPECT_EQ(r.request->status.tag, r.match->tag);
      const auto n = static_cast<size_t>(r.request->status.length);
      ASSERT_GE(n, 8u);
      const std::vector<uint8_t> got(r.request->data.begin(),
                                     r.request->data.begin() + static_cast<ptrdiff_t>(n));
      EXPECT_EQ(got, payload(*r.match, n));
    }
    EXPECT_EQ(engine().counters().malformed, 0u);
    EXPECT_EQ(engine().counters().peers_lost, 0u);
  }

  std::mt19937 rng_;
  World w_;
  MatchModel model_;
  int tags_ = 1, any_source_ = 0, any_tag_ = 0, internal_ = 0;
  uint16_t next_seq_[kRanks] = {};
  std::vector<Receive> receives_;
  std::vector<int> open_;  ///< not known to be matched or cancelled
  std::vector<Held> held_;
  size_t longest_ = 0;
};

TEST(Match, RandomCalls_AsTheModelSays) {
  size_t longest = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Duel duel(seed);
    duel.run(300);
    ASSERT_FALSE(HasFailure());
    longest = std::max(longest, duel.longest());
  }
  EXPECT_GT(longest, 60u) << "no queue was long enough for an index that grows";
}

TEST(Match, LongRandomCalls_AsTheModelSays) {
  for (unsigned seed = 10000; seed < 10020; ++seed) {
    SCOPED_TRACE(seed);
    Duel duel(seed);
    duel.run(6000);
    ASSERT_FALSE(HasFailure());
  }
}

/// A receive that takes a short message that was here ends outside the engine: what runs then may use the
/// engine, and posts the same receive again.
TEST(Kept, ReceiveOfAShortMessage_EndsOutsideTheEngine) {
  for (const bool probed : {false, true}) {
    World w({});
    for (int i = 0; i < 3; ++i) w.isend(0, 1, 7, pattern(8, i));
    ASSERT_TRUE(w.run());
    RecvReq r;
    r.data.resize(8);
    const xfer::RecvArgs<FakePort> args{w.comms[1], 0, 7, 8};
    int ended = 0;
    r.then = [&] {
      EXPECT_EQ(r.data, pattern(8, ended));
      r.done = false;
      const int number = ++ended;
      if (number < 4) w.engines[1]->irecv(&r, args);
      if (number < 3) EXPECT_EQ(ended, 3) << "what is here is taken inside the call";
    };
    xfer::ProbeResult p;
    if (probed)
      w.engines[1]->imrecv(w.engines[1]->improbe(w.comms[1], 0, 7, p), &r, 8);
    else
      w.engines[1]->irecv(&r, args);
    EXPECT_EQ(ended, 3);
    w.isend(0, 1, 7, pattern(8, 3));
    ASSERT_TRUE(w.run());
    EXPECT_EQ(ended, 4);
  }
}

/// Posted inside a call of the BTL, such a receive is filled, and ends when the engine is left.
TEST(Kept, ReceivePostedInsideACallOfTheBtl_EndsAfterIt) {
  for (const bool probed : {false, true}) {
    World w({});
    w.isend(0, 1, 7, pattern(8, 1));
    ASSERT_TRUE(w.run());
    RecvReq r;
    r.data.resize(8);
    bool called = false;
    w.ports[1]->inside_ = [&] {
      called = true;
      xfer::ProbeResult p;
      if (probed)
        w.engines[1]->imrecv(w.engines[1]->improbe(w.comms[1], 0, 7, p), &r, 8);
      else
        w.engines[1]->irecv(&r, {w.comms[1], 0, 7, 8});
      EXPECT_FALSE(r.done);
      EXPECT_EQ(r.data, pattern(8, 1));
    };
    w.isend(1, 0, 9, pattern(8, 2));
    EXPECT_TRUE(called);
    EXPECT_TRUE(r.done);
    ASSERT_TRUE(w.run());
  }
}

}  // namespace
}  // namespace bfo::test
