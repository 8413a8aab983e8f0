// SPDX-License-Identifier: BSD-3-Clause
//
// Threads: several threads of each rank call MPI at the same time (MPI_THREAD_MULTIPLE), each on a
// communicator of its own and then all on one, kept apart by tags.
#include <memory>
#include <thread>

#include "test/integration/checker/phases.h"

namespace bfo::checker {

void phase_threads(Worker& w, MPI_Comm parent) {
  const int threads = w.shared.options.threads;
  if (!threads) return;
  struct Job {
    std::unique_ptr<OwnComm> own;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<Lane> alone, together;
  };
  const OwnComm common(w, parent);
  const int common_id = w.next_comm_id();
  std::vector<Job> jobs(static_cast<size_t>(threads));
  for (Job& j : jobs) {
    j.own = std::make_unique<OwnComm>(w, parent);
    j.worker = std::make_unique<Worker>(w.shared, w.agreed.next(), 0);
    j.worker->set_phase(w.phase());
    j.alone = std::make_unique<Lane>(j.own->get(), w.next_comm_id());
    j.together = std::make_unique<Lane>(common.get(), common_id);
  }
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&w, t, &j = jobs[static_cast<size_t>(t)]] {
      const int rounds = w.quick() ? 3 : 10;
      for (int i = 0; i < rounds; ++i) {
        Round r = draw_round(*j.worker);
        r.per_stream = w.quick() ? 8 : 20;
        storm_round(*j.worker, *j.alone, r);
        // On the common communicator: own tags, no wildcards, no collective barrier (other threads are there
        // too).
        r = draw_round(*j.worker);
        r.wild = Round::Wild::kNone;
        if (r.order == Round::Order::kReceivesFirstBarrier) r.order = Round::Order::kReceivesFirst;
        r.per_stream = w.quick() ? 8 : 20;
        r.first_tag = 6 * t;
        storm_round(*j.worker, *j.together, r);
      }
      j.worker->finish(*j.alone);
      j.worker->finish(*j.together);
      j.worker->pool.drain();
    });
  }
  for (std::thread& t : running) t.join();
}

}  // namespace bfo::checker
