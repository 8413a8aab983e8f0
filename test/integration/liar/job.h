// SPDX-License-Identifier: BSD-3-Clause
//
// job.h: who is who in a job with liars, and what they share before one lies.
#pragma once

#include <mpi.h>

#include <ctime>
#include <string>
#include <vector>

#include "common/compat/ompi_includes.h"
#include "test/integration/liar/board.h"

inline void rest(long microseconds) {
  const timespec pause{0, microseconds * 1000};
  nanosleep(&pause, nullptr);
}

/// Open MPI's clock begins in each process by itself.
inline double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Memory of its own, without what it shares with other ranks.
inline uint64_t resident_kib() {
  unsigned long long kib = 0;
  char line[256];
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "RssAnon: %llu", &kib) != 1) {
    }
    std::fclose(file);
  }
  return kib;
}

inline uint16_t context_id(MPI_Comm comm) {
  return static_cast<uint16_t>(bfo::context_of(*reinterpret_cast<ompi_communicator_t*>(comm)));
}

struct Job {
  int rank, size;
  uint64_t seed;
  double seconds;
  bool in_other_names;
  std::string only;
  int flood;
  Board* board;
  MPI_Comm honest = MPI_COMM_NULL;    // of victim and bystanders
  std::vector<MPI_Comm> with_victim;  // of the victim and one liar
  uint16_t honest_id = 0;

  int liars() const { return size - 3; }
  bool is_liar(int r) const { return r >= 1 && r <= liars(); }

  void set_up();
  void greet();
};

inline void Job::set_up() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_split(MPI_COMM_WORLD, is_liar(rank) ? 1 : 0, rank, &honest);
  MPI_Comm_set_errhandler(honest, MPI_ERRORS_RETURN);
  with_victim.assign(static_cast<size_t>(size), MPI_COMM_NULL);
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int liar = 1; liar <= liars(); ++liar) {
    if (rank != 0 && rank != liar) continue;
    const int pair[2] = {0, liar};
    MPI_Group group;
    MPI_Group_incl(world, 2, pair, &group);
    MPI_Comm& comm = with_victim[static_cast<size_t>(liar)];
    MPI_Comm_create_group(MPI_COMM_WORLD, group, liar, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
  }
  MPI_Group_free(&world);
  int id = is_liar(rank) ? 0 : context_id(honest);
  MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
  honest_id = static_cast<uint16_t>(id);
  greet();
  MPI_Barrier(MPI_COMM_WORLD);
}

/// What each liar hears of the real protocol: every size, both ways.
inline void Job::greet() {
  std::vector<char> out(400000, 'g'), in(400000);
  for (int liar = 1; liar <= liars(); ++liar) {
    const MPI_Comm comm = with_victim[static_cast<size_t>(liar)];
    if (comm == MPI_COMM_NULL) continue;
    for (const int length : {10, 3000, 60000, 400000})
      MPI_Sendrecv(out.data(), length, MPI_BYTE, rank == 0 ? 1 : 0, 4, in.data(), length, MPI_BYTE,
                   rank == 0 ? 1 : 0, 4, comm, MPI_STATUS_IGNORE);
  }
}
