// SPDX-License-Identifier: BSD-3-Clause
//
// Basic phases: blocking sends of every size in every mode, simultaneous exchanges, several large messages in
// both directions at once, messages to oneself, a rank that computes without calling MPI.
#include <chrono>
#include <thread>

#include "test/integration/checker/pending.h"
#include "test/integration/checker/phases.h"

namespace bfo::checker {
namespace {

constexpr uint64_t kNoCap = ~0ull;

/// One blocking receive from `source`, fully checked.
void receive(Worker& w, Lane& lane, int source, int tag, uint64_t cap) {
  Buffer b = w.pool.take_recv(std::min(cap, w.shared.sizes.max()), w.rng.one_in(4) ? w.rng.below(16) : 0);
  MPI_Status status;
  w.check(MPI_Recv(b.data(), static_cast<int>(b.length), MPI_BYTE, source, tag, lane.comm(), &status),
          "MPI_Recv");
  w.accept(lane, b, status, cap);
}

}  // namespace

// One leg of the ladder: size and mode are agreed, so the message is stamped here and not drawn from the
// stream. Mode 3 is a ready send: the receiver posts first and says so with an empty message.
static void ladder_send(Worker& w, Lane& lane, int partner, const Message& m, int mode) {
  Buffer b = w.pool.take_send(m.bytes);
  w.shared.stamp.fill(b.data(), m);
  const int n = static_cast<int>(m.bytes);
  int rc = MPI_SUCCESS;
  if (mode == 3)
    w.check(MPI_Recv(nullptr, 0, MPI_BYTE, partner, 9, lane.comm(), MPI_STATUS_IGNORE), "MPI_Recv");
  if (mode == 1)
    rc = MPI_Ssend(b.data(), n, MPI_BYTE, partner, 1, lane.comm());
  else if (mode == 2 && m.bytes <= 1u << 20)
    rc = MPI_Bsend(b.data(), n, MPI_BYTE, partner, 1, lane.comm());
  else if (mode == 3)
    rc = MPI_Rsend(b.data(), n, MPI_BYTE, partner, 1, lane.comm());
  else
    rc = MPI_Send(b.data(), n, MPI_BYTE, partner, 1, lane.comm());
  w.check(rc, "a blocking send");
  w.pool.give_send(b);
}

static void ladder_receive(Worker& w, Lane& lane, int partner, const Message& m, int mode) {
  Buffer b = w.pool.take_recv(m.bytes);
  MPI_Status status;
  const int n = static_cast<int>(m.bytes);
  if (mode == 3) {
    MPI_Request request;
    w.check(MPI_Irecv(b.data(), n, MPI_BYTE, partner, 1, lane.comm(), &request), "MPI_Irecv");
    w.check(MPI_Send(nullptr, 0, MPI_BYTE, partner, 9, lane.comm()), "MPI_Send");
    w.check(MPI_Wait(&request, &status), "MPI_Wait");
  } else {
    w.check(MPI_Recv(b.data(), n, MPI_BYTE, partner, 1, lane.comm(), &status), "MPI_Recv");
  }
  int count = -1;
  MPI_Get_count(&status, MPI_BYTE, &count);
  w.expect(count == n && status.MPI_SOURCE == partner && status.MPI_TAG == 1,
           "status of a blocking receive: count " + std::to_string(count) + " for " + describe(m));
  const Finding f = w.shared.stamp.verify(b.data(), m);
  w.pool.check_outside(b, m.bytes, m);
  w.shared.report.verified(1, m.bytes);
  w.shared.dog.beat();
  if (f.ok()) {
    w.pool.hold(b, m);
  } else {
    w.shared.report.add(w.phase(), f, m, "received instead of");
    w.pool.give_recv(b);
  }
  w.pool.tick();
}

// Each threshold size crosses between each pair in a blocking mode.
void phase_ladder(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  Message now;
  const Watchdog::Scope scope(w.shared.dog, [&now] { return "ladder: ping-pong of " + describe(now); });
  const auto sizes = w.shared.sizes.ladder(w.quick() ? 2u << 20 : ~0ull);
  uint32_t seq = 0;
  for (int distance = 1; distance < lane.peers(); ++distance) {
    const int partner = lane.rank() ^ distance;
    for (const uint64_t size : sizes) {
      const int mode = static_cast<int>(w.agreed.below(4));
      ++seq;
      if (partner >= lane.peers()) continue;
      for (int leg = 0; leg < 2; ++leg) {
        const bool sends = (leg == 0) == (lane.rank() < partner);
        now = {sends ? lane.to(partner, 1) : lane.from(partner, 1), seq, size};
        (sends ? ladder_send : ladder_receive)(w, lane, partner, now, mode);
      }
    }
  }
}

// Both neighbours send at the same time: MPI_Sendrecv, and MPI_Isend against a blocking receive.
void phase_exchange(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(w.shared.dog, [] { return std::string("exchange: ring"); });
  const int n = lane.peers();
  for (int i = 0; i < (w.quick() ? 60 : 300); ++i) {
    const int shift = 1 + static_cast<int>(w.agreed.below(static_cast<uint64_t>(n)));
    const uint64_t cap = w.agreed.one_in(5) ? kNoCap : 140000;
    const bool combined = w.agreed.one_in(2);
    const int to = (lane.rank() + shift) % n;
    const int from = (lane.rank() - shift % n + n) % n;
    Message m;
    Buffer out = w.prepare(lane, to, 2, cap, &m);
    if (combined) {
      Buffer b = w.pool.take_recv(std::min(cap, w.shared.sizes.max()));
      MPI_Status status;
      w.check(MPI_Sendrecv(out.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 2, b.data(),
                           static_cast<int>(b.length), MPI_BYTE, from, 2, lane.comm(), &status),
              "MPI_Sendrecv");
      w.accept(lane, b, status, cap);
    } else {
      MPI_Request request;
      w.check(MPI_Isend(out.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 2, lane.comm(), &request),
              "MPI_Isend");
      receive(w, lane, from, 2, cap);
      w.check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    w.pool.give_send(out);
  }
  w.finish(lane);
}

// Several of the largest messages between every pair at once: the best chance for a fault in the middle of
// one.
void phase_large(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(w.shared.dog, [] { return std::string("large: messages of several MiB"); });
  const int n = lane.peers();
  for (int round = 0; round < (w.quick() ? 2 : 6); ++round) {
    std::vector<Buffer> in, out;
    std::vector<MPI_Status> statuses;
    const int depth = n > 2 ? 1 : 3;
    auto post_receives = [&](Pending& p) {
      for (int k = 0; k < depth * n; ++k) {
        Buffer b = w.pool.take_recv(w.shared.sizes.max(), k % 3 ? 0 : 4);
        MPI_Request request;
        w.check(MPI_Irecv(b.data(), static_cast<int>(b.length), MPI_BYTE, k % n, 3, lane.comm(), &request),
                "MPI_Irecv");
        in.push_back(b);
        p.add(request, in.size() - 1);
      }
      statuses.resize(in.size());
    };
    Pending receives(w, [&](size_t i, const MPI_Status& s) { statuses[i] = s; });
    Pending sends(w, [&](size_t i, const MPI_Status&) { w.pool.give_send(out[i]); });
    if (round % 2 == 0) post_receives(receives);
    for (int k = 0; k < depth * n; ++k) {
      const int to = (k + lane.rank()) % n;
      Message m;
      Buffer b = w.prepare(lane, to, 3, Sizes::kLarge, &m);
      MPI_Request request;
      w.check(MPI_Isend(b.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 3, lane.comm(), &request),
              "MPI_Isend");
      out.push_back(b);
      sends.add(request, out.size() - 1);
    }
    if (round % 2 == 1) post_receives(receives);
    while (sends.left() || receives.left()) {
      sends.step(!receives.left());
      receives.step(!sends.left());
    }
    for (size_t i = 0; i < in.size(); ++i) w.accept(lane, in[i], statuses[i], Sizes::kLarge);
  }
  w.finish(lane);
}

void phase_self(Worker& w, MPI_Comm) {
  const OwnComm own(w, MPI_COMM_SELF);
  Lane lane(own.get(), w.next_comm_id());
  for (int i = 0; i < (w.quick() ? 2 : 8); ++i) {
    Round r = draw_round(w);
    r.per_stream = 10;
    storm_round(w, lane, r);
  }
  w.finish(lane);
}

// A rank that computes for a while must find everything that was sent to it, and nobody may take it for dead.
void phase_pause(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  for (int sleeper = 0; sleeper < lane.peers() && sleeper < 2; ++sleeper) {
    if (lane.rank() == sleeper) {
      std::this_thread::sleep_for(std::chrono::milliseconds(w.quick() ? 150 : 1500));
      w.shared.dog.beat();
    }
    Round r = draw_round(w);
    r.order = Round::Order::kReceivesFirst;
    storm_round(w, lane, r);
  }
  w.finish(lane);
}

}  // namespace bfo::checker
