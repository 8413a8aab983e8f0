// SPDX-License-Identifier: BSD-3-Clause
//
// Communicators: many of them with the same tags, duplicated and freed while messages travel, so that context
// ids are reused; intercommunicators; collective operations on top of the same transport.
#include <memory>
#include <numeric>

#include "test/integration/checker/pending.h"
#include "test/integration/checker/phases.h"

namespace bfo::checker {

void phase_comms(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  const int rounds = w.quick() ? 12 : 60;
  // Traffic that is under way on a long-lived communicator while others come and go.
  Lane base(own.get(), w.next_comm_id());
  const Watchdog::Scope scope(w.shared.dog, [] { return std::string("comms: duplicate, talk, free"); });
  const int n = base.peers();
  for (int round = 0; round < rounds; ++round) {
    std::vector<Buffer> in, out;
    std::vector<MPI_Status> statuses(64);
    Pending receives(w, [&](size_t i, const MPI_Status& s) { statuses[i] = s; });
    Pending sends(w, [&](size_t i, const MPI_Status&) { w.pool.give_send(out[i]); });
    for (int peer = 0; peer < n; ++peer) {
      Message m;
      out.push_back(w.prepare(base, peer, 1, 300000, &m));
      MPI_Request request;
      w.check(
          MPI_Isend(out.back().data(), static_cast<int>(m.bytes), MPI_BYTE, peer, 1, base.comm(), &request),
          "MPI_Isend");
      sends.add(request, out.size() - 1);
    }
    {
      const OwnComm first(w, own.get());
      Lane lane(first.get(), w.next_comm_id());
      Round r = draw_round(w);
      r.per_stream = 6;
      storm_round(w, lane, r);
      w.finish(lane);
      // A second one is made and used before the first is freed; its context id is another one.
      const OwnComm second(w, first.get());
      Lane other(second.get(), w.next_comm_id());
      r.seed = w.agreed.next();
      storm_round(w, other, r);
      w.finish(other);
    }
    if (round % 4 == 0) {
      MPI_Comm half;
      w.check(MPI_Comm_split(own.get(), base.rank() % 2, base.rank(), &half), "MPI_Comm_split");
      MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
      Lane lane(half, w.next_comm_id());
      Round r = draw_round(w);
      r.per_stream = 6;
      storm_round(w, lane, r);
      w.finish(lane);
      w.check(MPI_Comm_free(&half), "MPI_Comm_free");
    }
    // Freed while a receive is still pending on it: legal, the communicator lives until the receive is
    // complete.
    MPI_Comm brief;
    w.check(MPI_Comm_dup(own.get(), &brief), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(brief, MPI_ERRORS_RETURN);
    Lane lane(brief, w.next_comm_id());
    const int to = (base.rank() + 1) % n;
    const int from = (base.rank() + n - 1) % n;
    Buffer late_in = w.pool.take_recv(300000);
    Message m;
    Buffer late_out = w.prepare(lane, to, 2, 300000, &m);
    MPI_Request requests[2];
    w.check(MPI_Irecv(late_in.data(), 300000, MPI_BYTE, from, 2, brief, &requests[0]), "MPI_Irecv");
    w.check(MPI_Isend(late_out.data(), static_cast<int>(m.bytes), MPI_BYTE, to, 2, brief, &requests[1]),
            "MPI_Isend");
    w.check(MPI_Comm_free(&brief), "MPI_Comm_free with pending messages");
    MPI_Status late[2];
    w.check(MPI_Waitall(2, requests, late), "MPI_Waitall");
    w.accept(lane, late_in, late[0], 300000);
    w.pool.give_send(late_out);

    for (int peer = 0; peer < n; ++peer) {
      in.push_back(w.pool.take_recv(300000));
      MPI_Request request;
      w.check(MPI_Irecv(in.back().data(), 300000, MPI_BYTE, peer, 1, base.comm(), &request), "MPI_Irecv");
      receives.add(request, in.size() - 1);
    }
    receives.all();
    sends.all();
    for (size_t i = 0; i < in.size(); ++i) w.accept(base, in[i], statuses[i], 300000);
  }
  w.finish(base);
}

void phase_intercomm(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(own.get(), &rank);
  MPI_Comm_size(own.get(), &size);
  const int id = w.next_comm_id();
  const int merged_id = w.next_comm_id();
  if (size < 2) return;
  const Watchdog::Scope scope(w.shared.dog,
                              [] { return std::string("intercomm: between the halves of the job"); });
  const int half = size / 2;
  const bool low = rank < half;
  MPI_Comm local, inter, merged;
  w.check(MPI_Comm_split(own.get(), low, rank, &local), "MPI_Comm_split");
  w.check(MPI_Intercomm_create(local, 0, own.get(), low ? half : 0, 77, &inter), "MPI_Intercomm_create");
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  Lane lane(inter, id, low ? 0 : half, low ? half : 0);
  for (int i = 0; i < (w.quick() ? 4 : 16); ++i) storm_round(w, lane, draw_round(w));
  w.finish(lane);
  w.check(MPI_Intercomm_merge(inter, low, &merged), "MPI_Intercomm_merge");
  MPI_Comm_set_errhandler(merged, MPI_ERRORS_RETURN);
  Lane all(merged, merged_id);
  for (int i = 0; i < 2; ++i) storm_round(w, all, draw_round(w));
  w.finish(all);
  w.check(MPI_Comm_free(&merged), "MPI_Comm_free");
  w.check(MPI_Comm_free(&inter), "MPI_Comm_free");
  w.check(MPI_Comm_free(&local), "MPI_Comm_free");
}

void phase_collectives(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(own.get(), &rank);
  MPI_Comm_size(own.get(), &size);
  const auto n = static_cast<size_t>(size);
  const Watchdog::Scope scope(w.shared.dog, [] { return std::string("collectives"); });
  for (int round = 0; round < (w.quick() ? 6 : 30); ++round) {
    const size_t count = w.agreed.one_in(4) ? 150000 : 1 + w.agreed.below(3000);
    const uint64_t key = w.agreed.next();
    std::vector<uint64_t> mine(count), all(count), wide(count * n), other(count * n);
    for (size_t i = 0; i < count; ++i) mine[i] = key + i + static_cast<uint64_t>(rank);
    w.check(MPI_Allreduce(mine.data(), all.data(), static_cast<int>(count), MPI_UINT64_T, MPI_SUM, own.get()),
            "MPI_Allreduce");
    bool good = true;
    for (size_t i = 0; i < count; ++i) good &= all[i] == n * (key + i) + n * (n - 1) / 2;
    w.expect(good, "MPI_Allreduce: wrong sum");
    const int root = static_cast<int>(w.agreed.below(n));
    if (rank == root) all = mine;
    w.check(MPI_Bcast(all.data(), static_cast<int>(count), MPI_UINT64_T, root, own.get()), "MPI_Bcast");
    good = true;
    for (size_t i = 0; i < count; ++i) good &= all[i] == key + i + static_cast<uint64_t>(root);
    w.expect(good, "MPI_Bcast: wrong content");
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = permute(key ^ (static_cast<uint64_t>(rank) << 40 | i));
    w.check(MPI_Alltoall(wide.data(), static_cast<int>(count), MPI_UINT64_T, other.data(),
                         static_cast<int>(count), MPI_UINT64_T, own.get()),
            "MPI_Alltoall");
    good = true;
    for (size_t p = 0; p < n; ++p)
      for (size_t i = 0; i < count; ++i)
        good &= other[p * count + i] == permute(key ^ (p << 40 | (static_cast<size_t>(rank) * count + i)));
    w.expect(good, "MPI_Alltoall: wrong content");
    w.shared.report.verified(3 * n, (count * 2 + count * n) * 8);
    w.shared.dog.beat();
  }
}

}  // namespace bfo::checker
