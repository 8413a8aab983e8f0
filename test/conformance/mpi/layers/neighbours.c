/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/conformance/mpi/layers/layers.h"

#include <stdio.h>
#include <stdlib.h>

enum { kSide = 120, kMost = 4, kMany = 20000 };

/* The edge of a square goes to each neighbour, rows whole and columns strided; also to oneself where a
   dimension has one rank only. */
static void halo(int columns, int periodic) {
  const int dims[2] = {columns == 1 ? ranks : 1, columns == 1 ? 1 : ranks};
  const int periods[2] = {periodic, periodic};
  static double grid[kSide + 2][kSide + 2];
  MPI_Datatype column;
  MPI_Comm cart;
  MPI_Request q[8];
  char what[60];
  int up, down, left, right, n = 0;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
  MPI_Cart_shift(cart, 0, 1, &up, &down);
  MPI_Cart_shift(cart, 1, 1, &left, &right);
  MPI_Type_vector(kSide, 1, kSide + 2, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  for (int i = 0; i < kSide + 2; ++i)
    for (int j = 0; j < kSide + 2; ++j) grid[i][j] = value(1, rank, i * 200 + j);
  for (int step = 0; step < 5; ++step) {
    n = 0;
    MPI_Irecv(&grid[0][1], kSide, MPI_DOUBLE, up, 1, cart, &q[n++]);
    MPI_Irecv(&grid[kSide + 1][1], kSide, MPI_DOUBLE, down, 2, cart, &q[n++]);
    MPI_Irecv(&grid[1][0], 1, column, left, 3, cart, &q[n++]);
    MPI_Irecv(&grid[1][kSide + 1], 1, column, right, 4, cart, &q[n++]);
    MPI_Isend(&grid[kSide][1], kSide, MPI_DOUBLE, down, 1, cart, &q[n++]);
    MPI_Isend(&grid[1][1], kSide, MPI_DOUBLE, up, 2, cart, &q[n++]);
    MPI_Isend(&grid[1][kSide], 1, column, right, 3, cart, &q[n++]);
    MPI_Isend(&grid[1][1], 1, column, left, 4, cart, &q[n++]);
    MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
    for (int i = 1; i <= kSide; ++i)
      for (int j = 1; j <= kSide; ++j)
        grid[i][j] = (grid[i - 1][j] + grid[i][j - 1]) / 2 + grid[i + 1][j + 1] / 4;
  }
  snprintf(what, sizeof what, "halo of %d x %d%s", dims[0], dims[1], periodic ? ", periodic" : "");
  say(what, grid, sizeof grid);
  MPI_Type_free(&column);
  MPI_Comm_free(&cart);
}

/* Every neighbourhood collective on `comm`, all of whose ranks have `degree` neighbours. */
static void around(MPI_Comm comm, int degree, const char* topology) {
  static int out[kMost * kMany], in[6][kMost * kMany];
  int counts[kMost], places[kMost];
  MPI_Aint bytes[kMost];
  MPI_Datatype types[kMost];
  MPI_Request q[5];
  char what[60];
  for (int i = 0; i < kMost * kMany; ++i) out[i] = value(2, rank, i);
  for (int d = 0; d < kMost; ++d) {
    counts[d] = kMany - d;
    places[d] = d * kMany;
    bytes[d] = (MPI_Aint)(d * kMany) * (MPI_Aint)sizeof(int);
    types[d] = MPI_INT;
  }
  for (int blocking = 0; blocking < 2; ++blocking) {
    for (int k = 0; k < 6; ++k)
      for (int i = 0; i < kMost * kMany; ++i) in[k][i] = -1;
    for (int d = 0; d < kMost; ++d) counts[d] = kMany;
    if (blocking) {
      MPI_Neighbor_allgather(out, kMany, MPI_INT, in[0], kMany, MPI_INT, comm);
      MPI_Neighbor_allgatherv(out, kMany, MPI_INT, in[1], counts, places, MPI_INT, comm);
      MPI_Neighbor_alltoall(out, kMany, MPI_INT, in[2], kMany, MPI_INT, comm);
      MPI_Neighbor_alltoallv(out, counts, places, MPI_INT, in[3], counts, places, MPI_INT, comm);
      MPI_Neighbor_alltoallw(out, counts, bytes, types, in[4], counts, bytes, types, comm);
    } else {
      MPI_Ineighbor_allgather(out, kMany, MPI_INT, in[0], kMany, MPI_INT, comm, &q[0]);
      MPI_Ineighbor_allgatherv(out, kMany, MPI_INT, in[1], counts, places, MPI_INT, comm, &q[1]);
      MPI_Ineighbor_alltoall(out, kMany, MPI_INT, in[2], kMany, MPI_INT, comm, &q[2]);
      MPI_Ineighbor_alltoallv(out, counts, places, MPI_INT, in[3], counts, places, MPI_INT, comm, &q[3]);
      MPI_Ineighbor_alltoallw(out, counts, bytes, types, in[4], counts, bytes, types, comm, &q[4]);
      MPI_Waitall(5, q, MPI_STATUSES_IGNORE);
    }
    for (int k = 0; k < 5; ++k) {
      snprintf(what, sizeof what, "%sneighbor %d on a %s of degree %d", blocking ? "" : "i", k, topology,
               degree);
      say(what, in[k], sizeof in[k]);
    }
  }
}

void neighbours(void) {
  const int ring[1] = {ranks}, yes[1] = {1};
  const int next[2] = {(rank + 1) % ranks, rank}, before[2] = {(rank + ranks - 1) % ranks, rank};
  const int weights[2] = {1, 1};
  MPI_Comm comm;
  for (int columns = 1; columns <= 2; ++columns)
    for (int periodic = 0; periodic < 2; ++periodic) halo(columns, periodic);
  if (ranks > 2) { /* with two, both neighbours are one rank, and what comes first is not said */
    MPI_Cart_create(MPI_COMM_WORLD, 1, ring, yes, 0, &comm);
    around(comm, 2, "ring");
    MPI_Comm_free(&comm);
  }
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, before, weights, 2, next, weights, MPI_INFO_NULL, 0,
                                 &comm);
  around(comm, 2, "graph with itself");
  MPI_Comm_free(&comm);
}
