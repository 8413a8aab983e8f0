// SPDX-License-Identifier: BSD-3-Clause
//
// The worker: one thread of control that sends and receives; and the lane: one communicator as a worker sees
// it, with the sequence numbers of all its streams.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/integration/checker/options.h"
#include "test/integration/checker/pool.h"
#include "test/integration/checker/report.h"
#include "test/integration/checker/rng.h"
#include "test/integration/checker/sizes.h"
#include "test/integration/checker/stamp.h"
#include "test/integration/checker/tamper.h"
#include "test/integration/checker/watchdog.h"

namespace bfo::checker {

/// What all workers of a process share.
struct Shared {
  const Options& options;
  const Stamp& stamp;
  const Sizes& sizes;
  Report& report;
  Watchdog& dog;
  int rank;  ///< in MPI_COMM_WORLD
  int size;
};

/// A communicator and the counters of its streams. Stamp ranks number the peers in the stamps; on an
/// intercommunicator the two groups get disjoint ones.
class Lane {
 public:
  Lane(MPI_Comm comm, int id);
  Lane(MPI_Comm inter, int id, int local_base, int remote_base);
  MPI_Comm comm() const { return comm_; }
  int id() const { return id_; }
  int rank() const { return rank_; }
  int peers() const { return peers_; }
  Stream to(int dest, int tag) const { return stream(local_base_ + rank_, remote_base_ + dest, tag); }
  Stream from(int source, int tag) const { return stream(remote_base_ + source, local_base_ + rank_, tag); }
  /// Sequence number of the next message to `dest` with `tag`; counts it.
  uint32_t next_sent(int dest, int tag) { return sent_[{dest, tag}]++; }
  uint32_t sent(int dest, int tag) const;
  /// The number that is due next from `source` with `tag`; does not count it.
  uint32_t due(int source, int tag) const;
  /// A message was received: `seq` is the number found in it. Returns false when it is one that had been
  /// skipped (a late one in a reordered pair).
  bool arrived(int source, int tag, uint32_t seq);
  /// Numbers that were skipped and never came.
  std::string missing() const;

 private:
  struct Due {
    uint32_t next = 0;
    std::set<uint32_t> skipped;
  };
  Stream stream(int source, int dest, int tag) const {
    return {static_cast<uint8_t>(id_ & 31), static_cast<uint8_t>(source & 31),
            static_cast<uint8_t>(dest & 31), static_cast<uint8_t>(tag & 127)};
  }
  MPI_Comm comm_;
  int id_;
  int rank_ = 0;
  int peers_ = 0;
  int local_base_ = 0;
  int remote_base_ = 0;
  std::map<std::pair<int, int>, uint32_t> sent_;
  std::map<std::pair<int, int>, Due> due_;
};

class Worker {
 public:
  Worker(Shared& shared, uint64_t seed, int first_comm_id);

  Shared& shared;
  Pool pool;
  Rng rng;     ///< differs between ranks: schedules
  Rng agreed;  ///< equal on all ranks: plans. Draw from it only where every rank does.
  Tamper tamper;

  void set_phase(const char* phase);
  const char* phase() const { return phase_; }
  int next_comm_id() { return comm_id_++ & 31; }
  bool quick() const { return shared.options.quick; }

  /// Ends the job when rc is not MPI_SUCCESS, naming the call and the error.
  void check(int rc, const char* call);
  /// Reports an unexpected result of an MPI call.
  void expect(bool holds, const std::string& what);
  [[noreturn]] void give_up(const std::string& why);

  /// Size of the next message on this stream, which is then counted; fills a send buffer.
  Buffer prepare(Lane& lane, int dest, int tag, uint64_t cap, Message* message);
  /// A receive completed with `status` into `buffer`: verifies everything about it, then keeps the buffer
  /// under watch. Call in the order in which the receives were posted (or the messages probed).
  void accept(Lane& lane, Buffer buffer, const MPI_Status& status, uint64_t cap);
  /// Verifies bytes that were received by other means than into a pool buffer. `held` may be null.
  void accept_bytes(Lane& lane, const uint8_t* data, int count, int source, int tag, uint64_t cap,
                    Message* expected);
  /// The lane's streams must have no hole.
  void finish(Lane& lane);

 private:
  const char* phase_ = "?";
  int comm_id_;
};

}  // namespace bfo::checker
