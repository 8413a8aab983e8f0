// SPDX-License-Identifier: BSD-3-Clause
//
// Ends other than success: cancelled receives, and messages longer than the receive (MPI_ERR_TRUNCATE), both
// with normal traffic before, between and behind them.
#include "test/integration/checker/phases.h"

namespace bfo::checker {

void phase_cancel(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(
      w.shared.dog, [] { return std::string("cancel: receives cancelled before or while matched"); });
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  int cancelled_total = 0;
  for (int round = 0; round < (w.quick() ? 40 : 200); ++round) {
    const uint64_t cap = w.agreed.one_in(3) ? 300000 : 8000;
    const bool race = w.agreed.one_in(2);
    Buffer in = w.pool.take_recv(cap);
    MPI_Request request;
    const bool any = w.rng.one_in(2);
    w.check(MPI_Irecv(in.data(), static_cast<int>(cap), MPI_BYTE, any ? MPI_ANY_SOURCE : from,
                      any ? MPI_ANY_TAG : 4, lane.comm(), &request),
            "MPI_Irecv");
    Message m;
    Buffer out = w.prepare(lane, to, 4, cap, &m);
    MPI_Request send = MPI_REQUEST_NULL;
    // In a race the message may match before the cancel; otherwise it is sent only after everyone has
    // cancelled.
    auto post_send = [&] {
      w.check(MPI_Isend(out.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 4, lane.comm(), &send),
              "MPI_Isend");
    };
    if (race) post_send();
    w.check(MPI_Cancel(&request), "MPI_Cancel");
    MPI_Status status;
    w.check(MPI_Wait(&request, &status), "MPI_Wait after MPI_Cancel");
    int cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    if (!race) {
      w.expect(cancelled, "a receive without a message was not cancelled");
      w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
      post_send();
    }
    if (cancelled) {
      ++cancelled_total;
      w.expect(first_unpoisoned(in.data(), in.length, kRecvPoison) == in.length,
               "a cancelled receive was written to");
      w.check(MPI_Recv(in.data(), static_cast<int>(cap), MPI_BYTE, from, 4, lane.comm(), &status),
              "MPI_Recv");
    }
    w.accept(lane, in, status, cap);
    w.check(MPI_Wait(&send, MPI_STATUS_IGNORE), "MPI_Wait");
    w.pool.give_send(out);
    // The next receive may be for any tag: nobody may be a round ahead.
    w.check(MPI_Barrier(lane.comm()), "MPI_Barrier");
  }
  w.expect(cancelled_total > 0, "no receive was ever cancelled");
  w.finish(lane);
}

void phase_truncate(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  uint64_t bytes = 0;
  const Watchdog::Scope scope(w.shared.dog, [&bytes] {
    return "truncate: a message of " + std::to_string(bytes) + " bytes into a shorter receive";
  });
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  static constexpr uint64_t kBytes[] = {1,     100,   4000,   5000,    12288,  13000,
                                        65536, 70000, 262144, 1048576, 3000000};
  uint32_t seq = 1u << 19;  // of the truncated messages, apart from those of the stream
  for (int round = 0; round < (w.quick() ? 2 : 8); ++round) {
    for (const uint64_t full : kBytes) {
      if (w.shared.options.stock_ob1 && full > 4000) break;
      bytes = std::min(full, w.shared.sizes.max());
      const uint64_t posted = w.agreed.below(bytes);
      const bool unexpected = w.agreed.one_in(2);
      const bool synchronous = w.agreed.one_in(3);
      const Message sent{lane.to(to, 6), seq, bytes};
      const Message due{lane.from(from, 6), seq, bytes};
      ++seq;
      Buffer out = w.pool.take_send(bytes);
      w.shared.stamp.fill(out.data(), sent);
      Buffer in = w.pool.take_recv(posted);
      MPI_Request requests[2];
      auto post_receive = [&] {
        w.check(MPI_Irecv(in.data(), static_cast<int>(posted), MPI_BYTE, from, 6, lane.comm(), &requests[0]),
                "MPI_Irecv");
      };
      if (!unexpected) post_receive();
      w.check(
          synchronous
              ? MPI_Issend(out.data(), static_cast<int>(bytes), MPI_BYTE, to, 6, lane.comm(), &requests[1])
              : MPI_Isend(out.data(), static_cast<int>(bytes), MPI_BYTE, to, 6, lane.comm(), &requests[1]),
          "a nonblocking send");
      // A normal message right behind the one that is truncated.
      Message next;
      Buffer behind = w.prepare(lane, to, 4, 200000, &next);
      MPI_Request behind_request;
      w.check(MPI_Isend(behind.data(), static_cast<int>(next.bytes), MPI_BYTE, to, 4, lane.comm(),
                        &behind_request),
              "MPI_Isend");
      MPI_Status status;
      if (unexpected) {
        w.check(MPI_Probe(from, 6, lane.comm(), &status), "MPI_Probe");
        post_receive();
      }
      const int rc = MPI_Wait(&requests[0], &status);
      int error = MPI_SUCCESS;
      if (rc != MPI_SUCCESS) MPI_Error_class(rc, &error);
      w.expect(error == MPI_ERR_TRUNCATE, "a message of " + std::to_string(bytes) + " bytes into " +
                                              std::to_string(posted) + ": error class " +
                                              std::to_string(error) + " instead of MPI_ERR_TRUNCATE");
      w.expect(status.MPI_SOURCE == from && status.MPI_TAG == 6, "status of a truncated receive");
      w.pool.check_outside(in, posted, due);
      w.check(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), "MPI_Wait of the send that was truncated");
      w.pool.give_send(out);
      Buffer b = w.pool.take_recv(200000);
      w.check(MPI_Recv(b.data(), 200000, MPI_BYTE, from, 4, lane.comm(), &status), "MPI_Recv");
      w.accept(lane, b, status, 200000);
      // Once complete, even in error, the buffer belongs to the application again (nothing may arrive late).
      poison(in.data(), posted, kRecvPoison);
      w.pool.give_recv(in);
      w.check(MPI_Wait(&behind_request, MPI_STATUS_IGNORE), "MPI_Wait");
      w.pool.give_send(behind);
    }
  }
  w.pool.drain();
  w.finish(lane);
}

}  // namespace bfo::checker
