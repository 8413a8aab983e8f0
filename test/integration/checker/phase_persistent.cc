// SPDX-License-Identifier: BSD-3-Clause
//
// Persistent requests: started many times with new content, in all send modes; and the rules for inactive
// ones (complete at once with an empty status, may be freed, may be started again).
#include <array>

#include "test/integration/checker/phases.h"

namespace bfo::checker {
namespace {

struct Pair {
  Buffer out, in;
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Request receive = MPI_REQUEST_NULL;
  uint64_t bytes = 0;
  int tag = 0;
  uint32_t seq = 0;
};

bool is_empty(const MPI_Status& s) {
  int count = -1;
  int cancelled = 1;
  MPI_Get_count(&s, MPI_BYTE, &count);
  MPI_Test_cancelled(&s, &cancelled);
  return s.MPI_SOURCE == MPI_ANY_SOURCE && s.MPI_TAG == MPI_ANY_TAG && count == 0 && !cancelled;
}

int init_send(int mode, Pair& p, int to, MPI_Comm comm) {
  const int n = static_cast<int>(p.bytes);
  switch (mode) {
    case 1:
      return MPI_Ssend_init(p.out.data(), n, MPI_BYTE, to, p.tag, comm, &p.send);
    case 2:
      return MPI_Bsend_init(p.out.data(), n, MPI_BYTE, to, p.tag, comm, &p.send);
    case 3:
      return MPI_Rsend_init(p.out.data(), n, MPI_BYTE, to, p.tag, comm, &p.send);
    default:
      return MPI_Send_init(p.out.data(), n, MPI_BYTE, to, p.tag, comm, &p.send);
  }
}

}  // namespace

void phase_persistent(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(w.shared.dog,
                              [] { return std::string("persistent: ring of started requests"); });
  static constexpr std::array<uint64_t, 12> kBytes{0,     1,     64,     4000,   4096,    12000,
                                                   12288, 65536, 100001, 262144, 1048576, 3000001};
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  std::array<Pair, kBytes.size()> pairs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    Pair& p = pairs[i];
    p.bytes = std::min(kBytes[i], w.shared.sizes.max());
    p.tag = static_cast<int>(i);
    p.out = w.pool.take_send(p.bytes);
    p.in = w.pool.take_recv(p.bytes);
    int mode = static_cast<int>(i + w.agreed.below(4)) % 4;
    if (mode == 2 && p.bytes > (w.shared.options.stock_ob1 ? 1000u : 1u << 20)) mode = 0;
    w.check(init_send(mode, p, to, lane.comm()), "a persistent send init");
    w.check(
        MPI_Recv_init(p.in.data(), static_cast<int>(p.bytes), MPI_BYTE, from, p.tag, lane.comm(), &p.receive),
        "MPI_Recv_init");
  }
  for (int round = 0; round < (w.quick() ? 8 : 40); ++round) {
    std::array<MPI_Request, 2 * kBytes.size()> all;
    for (size_t i = 0; i < pairs.size(); ++i) {
      Pair& p = pairs[i];
      w.shared.stamp.fill(p.out.data(), {lane.to(to, p.tag), p.seq, p.bytes});
      poison(p.in.data(), p.bytes, kRecvPoison);
      all[i] = p.receive;
      all[pairs.size() + i] = p.send;
    }
    // Receives first, and a barrier, because some sends are ready sends.
    w.check(MPI_Startall(static_cast<int>(pairs.size()), all.data()), "MPI_Startall");
    w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
    for (size_t i = 0; i < pairs.size(); ++i) w.check(MPI_Start(&all[pairs.size() + i]), "MPI_Start");
    std::array<MPI_Status, 2 * kBytes.size()> statuses;
    w.check(MPI_Waitall(static_cast<int>(all.size()), all.data(), statuses.data()), "MPI_Waitall");
    for (size_t i = 0; i < pairs.size(); ++i) {
      Pair& p = pairs[i];
      const Message m{lane.from(from, p.tag), p.seq, p.bytes};
      int count = -1;
      MPI_Get_count(&statuses[i], MPI_BYTE, &count);
      w.expect(static_cast<uint64_t>(count) == p.bytes && statuses[i].MPI_SOURCE == from &&
                   statuses[i].MPI_TAG == p.tag,
               "status of a persistent receive, count " + std::to_string(count) + ", " + describe(m));
      w.expect(all[i] == p.receive && all[i] != MPI_REQUEST_NULL, "a persistent request changed its handle");
      const Finding f = w.shared.stamp.verify(p.in.data(), m);
      if (!f.ok()) w.shared.report.add(w.phase(), f, m, "persistent receive instead of");
      w.pool.check_outside(p.in, p.bytes, m);
      // Overwritten between the end of this round and the next start: a late read would show at the receiver.
      poison(p.out.data(), p.bytes, kSendPoison);
      ++p.seq;
      w.shared.report.verified(1, p.bytes);
    }
    w.shared.dog.beat();
  }
  for (Pair& p : pairs) {
    w.check(MPI_Request_free(&p.send), "MPI_Request_free of an inactive send");
    w.check(MPI_Request_free(&p.receive), "MPI_Request_free of an inactive receive");
    w.expect(p.send == MPI_REQUEST_NULL && p.receive == MPI_REQUEST_NULL, "MPI_Request_free left a handle");
    w.pool.give_send(p.out);
    w.pool.give_recv(p.in);
  }
}

void phase_inactive(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(w.shared.dog,
                              [] { return std::string("inactive: a call on an inactive request blocks"); });
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  for (const uint64_t bytes : {uint64_t{40}, uint64_t{5000}, uint64_t{70000}, uint64_t{600000}}) {
    Pair p;
    p.bytes = std::min(bytes, w.shared.sizes.max());
    p.tag = 5;
    p.out = w.pool.take_send(p.bytes);
    p.in = w.pool.take_recv(p.bytes);
    w.check(init_send(0, p, to, lane.comm()), "MPI_Send_init");
    w.check(MPI_Recv_init(p.in.data(), static_cast<int>(p.bytes), MPI_BYTE, from, 5, lane.comm(), &p.receive),
            "MPI_Recv_init");
    for (int round = 0; round < 3; ++round) {
      MPI_Request two[2] = {p.receive, p.send};
      MPI_Status statuses[2];
      MPI_Status status;
      int flag = 0;
      int index = 0;
      int count = 0;
      int indices[2];
      for (MPI_Request& r : two) {
        w.check(MPI_Wait(&r, &status), "MPI_Wait on an inactive request");
        w.expect(is_empty(status), "MPI_Wait on an inactive request: the status is not empty");
        w.check(MPI_Test(&r, &flag, &status), "MPI_Test on an inactive request");
        w.expect(flag && is_empty(status), "MPI_Test on an inactive request: flag or status");
        w.check(MPI_Request_get_status(r, &flag, &status), "MPI_Request_get_status on an inactive request");
        w.expect(flag && is_empty(status), "MPI_Request_get_status on an inactive request: flag or status");
        w.expect(r != MPI_REQUEST_NULL, "completion of an inactive request freed it");
      }
      w.check(MPI_Waitall(2, two, statuses), "MPI_Waitall on inactive requests");
      w.expect(is_empty(statuses[0]) && is_empty(statuses[1]), "MPI_Waitall on inactive requests: statuses");
      w.check(MPI_Waitany(2, two, &index, &status), "MPI_Waitany on inactive requests");
      w.expect(index == MPI_UNDEFINED, "MPI_Waitany on inactive requests: index is not MPI_UNDEFINED");
      w.check(MPI_Testany(2, two, &index, &flag, &status), "MPI_Testany on inactive requests");
      w.expect(flag && index == MPI_UNDEFINED, "MPI_Testany on inactive requests: flag or index");
      w.check(MPI_Testall(2, two, &flag, statuses), "MPI_Testall on inactive requests");
      w.expect(flag, "MPI_Testall on inactive requests: flag");
      w.check(MPI_Waitsome(2, two, &count, indices, statuses), "MPI_Waitsome on inactive requests");
      w.expect(count == MPI_UNDEFINED, "MPI_Waitsome on inactive requests: count");
      w.check(MPI_Testsome(2, two, &count, indices, statuses), "MPI_Testsome on inactive requests");
      w.expect(count == MPI_UNDEFINED, "MPI_Testsome on inactive requests: count");

      // A receive that is started and cancelled becomes inactive again and can be started for real.
      w.check(MPI_Start(&p.receive), "MPI_Start");
      w.check(MPI_Cancel(&p.receive), "MPI_Cancel of a persistent receive");
      w.check(MPI_Wait(&p.receive, &status), "MPI_Wait after MPI_Cancel");
      MPI_Test_cancelled(&status, &flag);
      w.expect(flag, "a persistent receive without a message was not cancelled");
      w.check(MPI_Wait(&p.receive, &status), "MPI_Wait on the cancelled request");
      MPI_Test_cancelled(&status, &flag);
      w.expect(!flag && is_empty(status), "an inactive request still says cancelled");
      w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");

      const Message out{lane.to(to, 5), p.seq, p.bytes};
      const Message in{lane.from(from, 5), p.seq, p.bytes};
      w.shared.stamp.fill(p.out.data(), out);
      poison(p.in.data(), p.bytes, kRecvPoison);
      w.check(MPI_Start(&p.receive), "MPI_Start");
      w.check(MPI_Start(&p.send), "MPI_Start");
      // One active, one inactive or both active: whatever completes must be an active one.
      two[0] = p.receive;
      two[1] = p.send;
      bool done[2] = {};
      while (!done[0] || !done[1]) {
        w.check(MPI_Waitany(2, two, &index, &status), "MPI_Waitany");
        if (index == MPI_UNDEFINED || done[index]) w.give_up("MPI_Waitany completed an inactive request");
        done[index] = true;
      }
      const Finding f = w.shared.stamp.verify(p.in.data(), in);
      if (!f.ok()) w.shared.report.add(w.phase(), f, in, "persistent receive instead of");
      w.shared.report.verified(1, p.bytes);
      ++p.seq;
      w.shared.dog.beat();
    }
    // Freeing an active send is legal: it completes on its own; the buffer is kept until the message has
    // arrived.
    w.shared.stamp.fill(p.out.data(), {lane.to(to, 5), p.seq, p.bytes});
    poison(p.in.data(), p.bytes, kRecvPoison);
    w.check(MPI_Start(&p.send), "MPI_Start");
    w.check(MPI_Request_free(&p.send), "MPI_Request_free of an active send");
    w.expect(p.send == MPI_REQUEST_NULL, "MPI_Request_free left a handle");
    w.check(MPI_Start(&p.receive), "MPI_Start");
    w.check(MPI_Wait(&p.receive, MPI_STATUS_IGNORE), "MPI_Wait");
    const Message in{lane.from(from, 5), p.seq, p.bytes};
    const Finding f = w.shared.stamp.verify(p.in.data(), in);
    if (!f.ok()) w.shared.report.add(w.phase(), f, in, "message of a freed request instead of");
    w.check(MPI_Request_free(&p.receive), "MPI_Request_free");
    w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
    w.pool.give_send(p.out);
    w.pool.give_recv(p.in);
  }
}

}  // namespace bfo::checker
