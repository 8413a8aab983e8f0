// SPDX-License-Identifier: BSD-3-Clause
// Plays programs: this process's part of every message of a batch, and what came of it.
#pragma once

#include "test/conformance/mpi/player/finish.h"
#include "test/conformance/mpi/player/log.h"
#include "test/conformance/mpi/player/program.h"
#include "test/conformance/mpi/player/world.h"

#include <memory>
#include <string>
#include <vector>

namespace player {

/// This process's part of one message, over all waves of its batch.
struct Part {
  const Message* message = nullptr;
  std::unique_ptr<Side> out;  ///< of the sender
  std::unique_ptr<Side> in;   ///< of the receiver
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Message matched = MPI_MESSAGE_NULL;
  bool sent = false;      ///< `sending` is valid
  bool received = false;  ///< `receiving` is valid
  Ended sending;
  Ended receiving;
  std::string seen;  ///< what a probe said
};

class Play {
 public:
  Play(World* world, Log* log) : world_(world), log_(log) {}
  void run(const Program& program);

 private:
  void run(const Batch& batch);
  void wave(const Batch& batch, std::vector<Part>* parts);
  Part part_of(const Message& message) const;
  void post_receive(Part* part);
  void post_send(Part* part);
  void match_freed(Part* part);
  void receive_now(Part* part);
  void exchange(Part* part);
  void finish_all(const Batch& batch, std::vector<Part>* parts);
  void refill(Part* part) const;
  void check(const Part& part);
  void check_received(const Part& part);
  std::string check_cancelled(const Part& part);
  static int error_of(const Part& part);
  std::string check_status(const Part& part, int source);
  void complain(const Message& m, const std::string& what);
  std::string name_of(const Message& m) const;
  void log_failovers();
  int expected_source(const Message& message) const;

  int me() const { return world_->job().me; }
  bool sends(const Message& m) const { return m.source == me() && m.send != "none"; }
  bool receives(const Message& m) const { return m.target == me(); }
  MPI_Comm comm(const Message& m) const { return world_->comm(m.comm); }
  int to(const Message& m) const { return world_->rank(m.comm, m.target); }
  int from(const Message& m) const;
  int tag(const Message& m) const { return m.wild == "tag" || m.wild == "both" ? MPI_ANY_TAG : m.tag; }
  uint64_t content(const Message& m, int sender) const;

  World* world_;
  Log* log_;
  const Program* program_ = nullptr;
  const Batch* batch_ = nullptr;
  int wave_ = 0;
};

}  // namespace player
