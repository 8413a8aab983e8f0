// SPDX-License-Identifier: BSD-3-Clause
//
// Storm: every rank sends to every rank on several tags, many messages outstanding, in all send modes,
// matched by specific and by wildcard receives, expected and unexpected.
#include <algorithm>
#include <deque>

#include "test/integration/checker/pending.h"
#include "test/integration/checker/phases.h"

namespace bfo::checker {
namespace {

constexpr uint64_t kBsendLimit = 65536;

uint64_t tag_cap(const Round& r, int tag) {
  static constexpr uint64_t kCaps[] = {4096, 1024, 16384, 70000, 300000, ~0ull};
  return std::min(r.cap_bytes, kCaps[tag % 6]);
}

/// How many messages this round has on a stream; both ends compute it.
uint32_t messages_on(const Round& r, const Stream& s) {
  Rng rng(r.seed ^ (uint64_t{s.comm} << 24 | uint64_t{s.source} << 16 | uint64_t{s.dest} << 8 | s.tag));
  const uint32_t most = s.tag % 6 < 4 ? r.per_stream : std::max(1u, r.per_stream / 8);
  return static_cast<uint32_t>(rng.below(most + 1));
}

class Storm {
 public:
  Storm(Worker& w, Lane& lane, const Round& r)
      : w_(w),
        lane_(lane),
        r_(r),
        sends_(w, [this](size_t i, const MPI_Status&) { w_.pool.give_send(out_[i]); }),
        receives_(w, [this](size_t i, const MPI_Status& s) { received(i, s); }) {}
  void play();

 private:
  struct Posted {
    Buffer buffer;
    MPI_Status status;
    bool done = false;
  };
  struct Slot {
    int peer;
    int tag;
  };
  void plan();
  void post_receive(const Slot& slot);
  void post_send(const Slot& slot);
  void received(size_t index, const MPI_Status& status);
  std::string describe() const;

  Worker& w_;
  Lane& lane_;
  const Round& r_;
  std::vector<Slot> to_send_, to_receive_;
  std::vector<Buffer> out_;
  std::deque<Posted> in_;
  size_t retired_ = 0;
  bool posted_everywhere_ = false;
  Pending sends_;
  Pending receives_;
};

void shuffle(Rng& rng, auto& list) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
}

void Storm::plan() {
  for (int peer = 0; peer < lane_.peers(); ++peer) {
    for (int tag = r_.first_tag; tag < r_.first_tag + r_.tags; ++tag) {
      for (uint32_t n = messages_on(r_, lane_.to(peer, tag)); n; --n) to_send_.push_back({peer, tag});
      const Slot slot{
          r_.wild == Round::Wild::kSource || r_.wild == Round::Wild::kBoth ? MPI_ANY_SOURCE : peer,
          r_.wild == Round::Wild::kTag || r_.wild == Round::Wild::kBoth ? MPI_ANY_TAG : tag};
      for (uint32_t n = messages_on(r_, lane_.from(peer, tag)); n; --n) to_receive_.push_back(slot);
    }
  }
  shuffle(w_.rng, to_send_);
  shuffle(w_.rng, to_receive_);
}

void Storm::post_receive(const Slot& slot) {
  uint64_t bytes = 0;
  if (slot.tag == MPI_ANY_TAG) {
    for (int tag = r_.first_tag; tag < r_.first_tag + r_.tags; ++tag)
      bytes = std::max(bytes, tag_cap(r_, tag));
  } else {
    bytes = tag_cap(r_, slot.tag);
  }
  bytes = std::min(bytes, w_.shared.sizes.max());
  in_.push_back({w_.pool.take_recv(bytes, w_.rng.one_in(4) ? w_.rng.below(16) : 0), {}, false});
  MPI_Request request;
  w_.check(MPI_Irecv(in_.back().buffer.data(), static_cast<int>(bytes), MPI_BYTE, slot.peer, slot.tag,
                     lane_.comm(), &request),
           "MPI_Irecv");
  receives_.add(request, in_.size() - 1);
}

void Storm::post_send(const Slot& slot) {
  Message m;
  Buffer b = w_.prepare(lane_, slot.peer, slot.tag, tag_cap(r_, slot.tag), &m);
  MPI_Request request;
  const int count = static_cast<int>(m.bytes);
  uint64_t mode = w_.rng.below(8);
  int rc = MPI_ERR_OTHER;
  if (mode == 7 && m.bytes <= kBsendLimit) {
    rc = MPI_Ibsend(b.data(), count, MPI_BYTE, slot.peer, slot.tag, lane_.comm(), &request);
    if (rc != MPI_SUCCESS) mode = 0;  // the attached buffer is full: legal, send it otherwise
  } else if (mode == 6) {
    rc = MPI_Issend(b.data(), count, MPI_BYTE, slot.peer, slot.tag, lane_.comm(), &request);
  } else if (mode == 5 && posted_everywhere_) {
    rc = MPI_Irsend(b.data(), count, MPI_BYTE, slot.peer, slot.tag, lane_.comm(), &request);
  } else {
    mode = 0;
  }
  if (mode == 0) rc = MPI_Isend(b.data(), count, MPI_BYTE, slot.peer, slot.tag, lane_.comm(), &request);
  w_.check(rc, "a nonblocking send");
  out_.push_back(b);
  sends_.add(request, out_.size() - 1);
}

// Receives are judged in the order in which they were posted: that is the order MPI promises for each stream.
void Storm::received(size_t index, const MPI_Status& status) {
  in_[index].status = status;
  in_[index].done = true;
  for (; retired_ < in_.size() && in_[retired_].done; ++retired_) {
    const Posted& p = in_[retired_];
    w_.accept(lane_, p.buffer, p.status, p.status.MPI_TAG >= 0 ? tag_cap(r_, p.status.MPI_TAG) : 0);
  }
}

std::string Storm::describe() const {
  return "storm: comm " + std::to_string(lane_.id()) + " order " +
         std::to_string(static_cast<int>(r_.order)) + " wildcard " +
         std::to_string(static_cast<int>(r_.wild)) + ": " + std::to_string(sends_.left()) +
         " sends pending of " + std::to_string(out_.size()) + " (" + std::to_string(to_send_.size()) +
         " planned), " + std::to_string(receives_.left()) + " receives pending of " +
         std::to_string(in_.size()) + " (" + std::to_string(to_receive_.size()) +
         " planned), oldest receive source " +
         std::to_string(retired_ < to_receive_.size() ? to_receive_[retired_].peer : -9) + " tag " +
         std::to_string(retired_ < to_receive_.size() ? to_receive_[retired_].tag : -9);
}

void Storm::play() {
  const Watchdog::Scope scope(w_.shared.dog, [this] { return describe(); });
  plan();
  out_.reserve(to_send_.size());
  const size_t window = 1 + w_.rng.below(w_.rng.one_in(3) ? 8 : 96);
  if (r_.order == Round::Order::kSendsFirst) {
    for (const Slot& s : to_send_) post_send(s);
    for (const Slot& s : to_receive_) {
      while (receives_.left() >= window) receives_.step(true);
      post_receive(s);
    }
  } else {
    for (const Slot& s : to_receive_) post_receive(s);
    if (r_.order == Round::Order::kReceivesFirstBarrier) {
      w_.check(MPI_Barrier(lane_.comm()), "MPI_Barrier");
      posted_everywhere_ = true;
    }
    for (const Slot& s : to_send_) {
      while (sends_.left() >= window) {
        sends_.step(true);
        receives_.step(false);
      }
      post_send(s);
    }
  }
  while (sends_.left() || receives_.left()) {
    sends_.step(!receives_.left());
    receives_.step(!sends_.left());
  }
  // A receive from any source must not be given a message of the next round by a rank that is ahead.
  if (r_.wild == Round::Wild::kSource || r_.wild == Round::Wild::kBoth)
    w_.check(MPI_Barrier(lane_.comm()), "MPI_Barrier");
}

}  // namespace

void storm_round(Worker& w, Lane& lane, const Round& r) {
  Storm(w, lane, r).play();
}

Round draw_round(Worker& w) {
  Round r;
  r.order = static_cast<Round::Order>(w.agreed.below(3));
  r.wild = w.agreed.one_in(2) ? Round::Wild::kNone : static_cast<Round::Wild>(w.agreed.below(4));
  r.per_stream = w.quick() ? 12 : 48;
  r.cap_bytes = w.agreed.one_in(3) ? w.shared.sizes.max() : 300000;
  if (r.wild == Round::Wild::kTag || r.wild == Round::Wild::kBoth) r.cap_bytes = 70000;
  r.seed = w.agreed.next();
  return r;
}

void phase_storm(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const int rounds = w.quick() ? 4 : 16;
  for (int i = 0; i < rounds; ++i) storm_round(w, lane, draw_round(w));
  w.finish(lane);
}

void phase_unexpected(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  for (int i = 0; i < (w.quick() ? 2 : 6); ++i) {
    Round r;
    r.order = Round::Order::kSendsFirst;
    r.per_stream = w.quick() ? 40 : 200;
    r.cap_bytes = i % 2 ? 16384 : 300000;
    r.seed = w.agreed.next();
    storm_round(w, lane, r);
  }
  w.finish(lane);
}

// More small messages than a 16-bit sequence number can count, on one communicator, with hundreds under way.
void phase_flood(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  constexpr uint64_t kCap = 64;
  const uint32_t total = w.quick() ? 70000 : 200000;
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  struct Slot {
    Buffer buffer;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::vector<Slot> sends(256), receives(64);
  uint32_t sent = 0;
  uint32_t received = 0;
  const Watchdog::Scope scope(w.shared.dog, [&sent, &received] {
    return "flood: " + std::to_string(sent) + " sent, " + std::to_string(received) + " received";
  });
  auto post = [&](Slot& s) {
    s.buffer = w.pool.take_recv(kCap);
    w.check(MPI_Irecv(s.buffer.data(), kCap, MPI_BYTE, from, 1, lane.comm(), &s.request), "MPI_Irecv");
  };
  for (Slot& s : receives) post(s);
  while (sent < total || received < total) {
    int flag = 1;
    for (int burst = 0; flag && sent < total && burst < 256; ++burst) {
      Slot& s = sends[sent % sends.size()];
      if (s.request != MPI_REQUEST_NULL) {
        w.check(MPI_Test(&s.request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
        if (!flag) break;
      }
      if (s.buffer) w.pool.give_send(s.buffer);
      Message m;
      s.buffer = w.prepare(lane, to, 1, kCap, &m);
      w.check(MPI_Isend(s.buffer.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 1, lane.comm(), &s.request),
              "MPI_Isend");
      ++sent;
    }
    flag = 1;
    for (int burst = 0; flag && received < total && burst < 512; ++burst) {
      Slot& s = receives[received % receives.size()];
      MPI_Status status;
      w.check(MPI_Test(&s.request, &flag, &status), "MPI_Test");
      if (!flag) break;
      w.accept(lane, s.buffer, status, kCap);
      if (++received + receives.size() <= total) post(s);
    }
  }
  for (Slot& s : sends) {
    w.check(MPI_Wait(&s.request, MPI_STATUS_IGNORE), "MPI_Wait");
    w.pool.give_send(s.buffer);
  }
  w.finish(lane);
}

void phase_wildcard(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  for (int i = 0; i < (w.quick() ? 6 : 24); ++i) {
    Round r;
    r.order = static_cast<Round::Order>(i % 3);
    r.wild = static_cast<Round::Wild>(1 + i / 3 % 3);
    r.per_stream = w.quick() ? 12 : 40;
    r.cap_bytes = 70000;
    r.seed = w.agreed.next();
    storm_round(w, lane, r);
  }
  w.finish(lane);
}

}  // namespace bfo::checker
