// SPDX-License-Identifier: BSD-3-Clause
//
// Probes: MPI_Probe and MPI_Iprobe must announce the very message that the next receive gets; matched probes
// take a message out of the queue, and it may be received much later than others that came after it.
#include <deque>

#include "test/integration/checker/pending.h"
#include "test/integration/checker/phases.h"

namespace bfo::checker {
namespace {

constexpr uint64_t kCap = 300000;
constexpr int kTags = 3;

/// Sends `count` messages to each peer on random tags and returns the requests.
struct Outgoing {
  Outgoing(Worker& w, Lane& lane, int count)
      : sends(w, [this, &w](size_t i, const MPI_Status&) { w.pool.give_send(buffers[i]); }) {
    for (int k = 0; k < count; ++k) {
      for (int peer = 0; peer < lane.peers(); ++peer) {
        const int tag = static_cast<int>(w.rng.below(kTags));
        Message m;
        Buffer b = w.prepare(lane, peer, tag, kCap, &m);
        MPI_Request request;
        const int n = static_cast<int>(m.bytes);
        const int rc = w.rng.one_in(5) ? MPI_Issend(b.data(), n, MPI_BYTE, peer, tag, lane.comm(), &request)
                                       : MPI_Isend(b.data(), n, MPI_BYTE, peer, tag, lane.comm(), &request);
        w.check(rc, "MPI_Isend");
        buffers.push_back(b);
        sends.add(request, buffers.size() - 1);
      }
    }
  }
  std::vector<Buffer> buffers;
  Pending sends;
};

/// The count a probe announces must be the size of the message that is due.
void check_announced(Worker& w, Lane& lane, const MPI_Status& s) {
  int count = -1;
  MPI_Get_count(&s, MPI_BYTE, &count);
  const uint64_t due =
      w.shared.sizes.of(lane.from(s.MPI_SOURCE, s.MPI_TAG), lane.due(s.MPI_SOURCE, s.MPI_TAG), kCap);
  w.expect(static_cast<uint64_t>(count) == due, "a probe announces " + std::to_string(count) +
                                                    " bytes, due are " + std::to_string(due) +
                                                    " from source " + std::to_string(s.MPI_SOURCE));
}

}  // namespace

void phase_probe(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const int per_peer = w.quick() ? 30 : 150;
  int left = per_peer * lane.peers();
  const Watchdog::Scope scope(
      w.shared.dog, [&left] { return "probe: " + std::to_string(left) + " messages still to come"; });
  // Nothing was sent on tag 100: a probe for it must not find anything, now or later.
  int flag = 1;
  MPI_Status status;
  w.check(MPI_Iprobe(MPI_ANY_SOURCE, 100, lane.comm(), &flag, &status), "MPI_Iprobe");
  w.expect(!flag, "MPI_Iprobe found a message that was not sent");
  w.check(MPI_Probe(MPI_PROC_NULL, 0, lane.comm(), &status), "MPI_Probe of MPI_PROC_NULL");
  w.expect(status.MPI_SOURCE == MPI_PROC_NULL, "MPI_Probe of MPI_PROC_NULL: source");
  Outgoing out(w, lane, per_peer);
  while (left) {
    const bool block = w.rng.one_in(2);
    // First learn of any message, then ask again for exactly that source and tag.
    if (block) {
      w.check(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane.comm(), &status), "MPI_Probe");
    } else {
      w.check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane.comm(), &flag, &status), "MPI_Iprobe");
      if (!flag) {
        out.sends.step(false);
        continue;
      }
    }
    check_announced(w, lane, status);
    MPI_Status again;
    w.check(MPI_Iprobe(status.MPI_SOURCE, status.MPI_TAG, lane.comm(), &flag, &again), "MPI_Iprobe");
    w.expect(flag, "MPI_Iprobe does not find the message that a probe announced");
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    Buffer b = w.pool.take_recv(static_cast<size_t>(count));
    w.check(MPI_Recv(b.data(), count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, lane.comm(), &again),
            "MPI_Recv");
    w.expect(again.MPI_SOURCE == status.MPI_SOURCE && again.MPI_TAG == status.MPI_TAG,
             "receive after probe: status");
    w.accept(lane, b, again, kCap);
    --left;
    out.sends.step(false);
  }
  out.sends.all();
  w.check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane.comm(), &flag, &status), "MPI_Iprobe");
  w.expect(!flag, "a message is left over: one was delivered twice");
  w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
  w.finish(lane);
}

void phase_mprobe(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const int per_peer = w.quick() ? 30 : 150;
  int left = per_peer * lane.peers();
  const Watchdog::Scope scope(
      w.shared.dog, [&left] { return "mprobe: " + std::to_string(left) + " messages still to be matched"; });
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  w.check(MPI_Mprobe(MPI_PROC_NULL, 0, lane.comm(), &message, &status), "MPI_Mprobe of MPI_PROC_NULL");
  w.expect(message == MPI_MESSAGE_NO_PROC, "MPI_Mprobe of MPI_PROC_NULL: message");
  w.check(MPI_Mrecv(nullptr, 0, MPI_BYTE, &message, &status), "MPI_Mrecv of MPI_MESSAGE_NO_PROC");
  w.expect(status.MPI_SOURCE == MPI_PROC_NULL && message == MPI_MESSAGE_NULL,
           "MPI_Mrecv of MPI_MESSAGE_NO_PROC");

  // Messages are judged in the order in which they were matched, whenever their data was asked for.
  struct Matched {
    MPI_Message message;
    MPI_Status probed, received;
    Buffer buffer;
    bool done;
  };
  std::deque<Matched> matched;
  size_t retired = 0;
  size_t held = 0;
  Pending receives(w, [&](size_t i, const MPI_Status& s) {
    matched[i].received = s;
    matched[i].done = true;
    w.expect(s.MPI_SOURCE == matched[i].probed.MPI_SOURCE && s.MPI_TAG == matched[i].probed.MPI_TAG,
             "matched receive: the status is that of another message");
    for (; retired < matched.size() && matched[retired].done; ++retired)
      w.accept(lane, matched[retired].buffer, matched[retired].received, kCap);
  });
  auto fetch = [&](size_t i) {
    Matched& m = matched[i];
    int count = 0;
    MPI_Get_count(&m.probed, MPI_BYTE, &count);
    m.buffer = w.pool.take_recv(static_cast<size_t>(count));
    MPI_Request request;
    w.check(MPI_Imrecv(m.buffer.data(), count, MPI_BYTE, &m.message, &request), "MPI_Imrecv");
    w.expect(m.message == MPI_MESSAGE_NULL, "MPI_Imrecv left the message handle");
    receives.add(request, i);
    --held;
  };
  Outgoing out(w, lane, per_peer);
  while (left) {
    Matched m{MPI_MESSAGE_NULL, {}, {}, {}, false};
    const int source =
        w.rng.one_in(3) ? static_cast<int>(w.rng.below(static_cast<uint64_t>(lane.peers()))) : MPI_ANY_SOURCE;
    int flag = 1;
    if (source == MPI_ANY_SOURCE && w.rng.one_in(2)) {
      w.check(MPI_Mprobe(source, MPI_ANY_TAG, lane.comm(), &m.message, &m.probed), "MPI_Mprobe");
    } else {
      w.check(MPI_Improbe(source, MPI_ANY_TAG, lane.comm(), &flag, &m.message, &m.probed), "MPI_Improbe");
    }
    if (flag) {
      matched.push_back(m);
      --left;
      ++held;
      w.shared.dog.beat();
    }
    // Sometimes at once, sometimes after a dozen others; a random one of the held messages.
    while (held > (left ? w.rng.below(12) : 0)) {
      size_t i = w.rng.below(matched.size());
      while (matched[i].message == MPI_MESSAGE_NULL) i = (i + 1) % matched.size();
      fetch(i);
    }
    out.sends.step(false);
    receives.step(false);
  }
  for (size_t i = 0; i < matched.size(); ++i)
    if (matched[i].message != MPI_MESSAGE_NULL) fetch(i);
  while (out.sends.left() || receives.left()) {
    out.sends.step(!receives.left());
    receives.step(!out.sends.left());
  }
  w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
  w.finish(lane);
}

}  // namespace bfo::checker
