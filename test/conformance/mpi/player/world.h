// SPDX-License-Identifier: BSD-3-Clause
// The communicators of one thread, and who is who in them.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace player {

/// What a job is: numbers over all processes, parents first, then spawned ones.
struct Job {
  int parents = 0;
  int children = 0;
  int me = 0;
  MPI_Comm parents_world = MPI_COMM_NULL;  ///< of a parent
  MPI_Comm spawned = MPI_COMM_NULL;        ///< between the two jobs
  MPI_Comm everybody = MPI_COMM_NULL;

  int processes() const { return parents + children; }
  bool child() const { return me >= parents; }
};

/// Finds or starts the other job. `command` is this program with its arguments.
Job join_job(int children, char** command);
void leave_job(Job* job);

/// Communicators over which messages of a thread travel; errors are returned on each.
class World {
 public:
  explicit World(const Job& job);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Job& job() const { return job_; }
  /// `name` is one of Message::comm; MPI_COMM_NULL when this process is not in it.
  MPI_Comm comm(const std::string& name) const;
  /// Rank of `process` in the communicator, or in its group of an intercommunicator.
  int rank(const std::string& name, int process) const;
  /// The process with `rank` as seen by this process.
  int process(const std::string& name, int rank) const;
  MPI_Comm everybody() const { return everybody_; }

  /// "freed" is made anew for each batch that uses it.
  void make_freed();
  void free_freed();

 private:
  /// Side of `process` in "inter": 0 or 1.
  static int half(int process) { return process % 2; }

  Job job_;
  MPI_Comm everybody_ = MPI_COMM_NULL;
  MPI_Comm world_ = MPI_COMM_NULL;
  MPI_Comm dup_ = MPI_COMM_NULL;
  MPI_Comm split_ = MPI_COMM_NULL;   // ranks in reverse
  MPI_Comm inter_ = MPI_COMM_NULL;   // even against odd
  MPI_Comm merged_ = MPI_COMM_NULL;  // odd ones first
  MPI_Comm spawned_ = MPI_COMM_NULL;
  MPI_Comm freed_ = MPI_COMM_NULL;
};

}  // namespace player
