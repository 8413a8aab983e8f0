/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics_messages.c: sends in every mode, of every type, to others, to oneself and to nobody, and their
 * order.
 */
#include <mpi.h>
#include <string.h>

#include "test/integration/semantics.h"

/* mode 0 standard, 1 synchronous, 2 buffered, 3 ready (receiver posts first and says so) */
void send_modes(MPI_Comm comm) {
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  for (int mode = 0; mode < 4; ++mode) {
    for (int i = 0; i < kSizeCount; ++i) {
      const int n = kSizes[i];
      MPI_Status st;
      MPI_Request rq;
      memset(g_in, 0xee, n);
      fill(g_out, n, g_rank * 1000 + i);
      for (int turn = 0; turn < 2; ++turn) {
        if ((g_rank & 1) == turn) {
          if (mode == 3) MPI_Recv(NULL, 0, MPI_BYTE, peer, 99, comm, MPI_STATUS_IGNORE);
          if (mode == 0) MPI_Send(g_out, n, MPI_BYTE, peer, i, comm);
          if (mode == 1) MPI_Ssend(g_out, n, MPI_BYTE, peer, i, comm);
          if (mode == 2) {
            MPI_Bsend(g_out, n, MPI_BYTE, peer, i, comm);
            memset(g_out, 0x11, n);
            fill(g_out, n, g_rank * 1000 + i);
          }
          if (mode == 3) MPI_Rsend(g_out, n, MPI_BYTE, peer, i, comm);
        } else {
          int count = -1;
          MPI_Irecv(g_in, n, MPI_BYTE, peer, i, comm, &rq);
          if (mode == 3) MPI_Send(NULL, 0, MPI_BYTE, peer, 99, comm);
          MPI_Wait(&rq, &st);
          MPI_Get_count(&st, MPI_BYTE, &count);
          EXPECT(count == n && st.MPI_SOURCE == peer && st.MPI_TAG == i && rq == MPI_REQUEST_NULL);
          EXPECT(holds(g_in, n, peer * 1000 + i));
        }
      }
    }
  }
}

/* Many nonblocking messages both ways, received in another order by tag, unexpected included. */
void nonblocking(MPI_Comm comm) {
  enum { kCount = 200, kBytes = 3000 };
  static unsigned char out[kCount][kBytes], in[kCount][kBytes];
  MPI_Request rq[2 * kCount];
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  for (int i = 0; i < kCount; ++i) {
    fill(out[i], kBytes, g_rank * 500 + i);
    MPI_Isend(out[i], (i * 37) % kBytes, MPI_BYTE, peer, i, comm, &rq[i]);
  }
  for (int i = kCount - 1; i >= 0; --i) MPI_Irecv(in[i], kBytes, MPI_BYTE, peer, i, comm, &rq[kCount + i]);
  MPI_Waitall(2 * kCount, rq, MPI_STATUSES_IGNORE);
  for (int i = 0; i < kCount; ++i) EXPECT(holds(in[i], (i * 37) % kBytes, peer * 500 + i));
}

void ordering(MPI_Comm comm) {
  enum { kCount = 3000 };
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  if (g_rank & 1) {
    for (int i = 0; i < kCount; ++i) {
      int value[8] = {0};
      value[0] = i;
      MPI_Send(value, 1 + i % 8, MPI_INT, peer, 5, comm);
    }
  } else {
    int bad = 0;
    for (int i = 0; i < kCount; ++i) {
      int value[8];
      MPI_Status st;
      int n = 0;
      MPI_Recv(value, 8, MPI_INT, i % 2 ? peer : MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &st);
      MPI_Get_count(&st, MPI_INT, &n);
      if (value[0] != i || n != 1 + i % 8 || st.MPI_TAG != 5) ++bad;
    }
    EXPECT(bad == 0);
  }
}

void to_self(void) {
  for (int i = 0; i < kSizeCount; ++i) {
    const int n = kSizes[i];
    MPI_Request rq[2];
    MPI_Status st;
    fill(g_out, n, i);
    memset(g_in, 0, n);
    if (i & 1) {
      MPI_Irecv(g_in, n, MPI_BYTE, 0, 1, MPI_COMM_SELF, &rq[0]);
      MPI_Isend(g_out, n, MPI_BYTE, 0, 1, MPI_COMM_SELF, &rq[1]);
      MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
    } else {
      MPI_Isend(g_out, n, MPI_BYTE, 0, 1, MPI_COMM_SELF, &rq[1]);
      MPI_Probe(0, 1, MPI_COMM_SELF, &st);
      MPI_Recv(g_in, n, MPI_BYTE, 0, 1, MPI_COMM_SELF, &st);
      MPI_Wait(&rq[1], &st);
    }
    EXPECT(holds(g_in, n, i));
  }
}

void proc_null(MPI_Comm comm) {
  MPI_Status st;
  int v = 3, flag = 0;
  MPI_Request rq;
  EXPECT(MPI_Send(&v, 1, MPI_INT, MPI_PROC_NULL, 0, comm) == MPI_SUCCESS);
  MPI_Recv(&v, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &st);
  EXPECT(st.MPI_SOURCE == MPI_PROC_NULL && v == 3);
  MPI_Send_init(&v, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &rq);
  MPI_Start(&rq);
  MPI_Test(&rq, &flag, &st);
  EXPECT(flag);
  MPI_Request_free(&rq);
}

/* Columns of a matrix, into other columns of another one. */
static void columns(MPI_Comm comm, int peer) {
  enum { kRows = 300, kCols = 500 };
  static int a[kRows][kCols], b[kRows][kCols];
  MPI_Datatype column;
  MPI_Type_vector(kRows, 3, kCols, MPI_INT, &column);
  MPI_Type_commit(&column);
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kCols; ++c) {
      a[r][c] = g_rank * 1000000 + r * kCols + c;
      b[r][c] = -1;
    }
  MPI_Sendrecv(&a[0][10], 1, column, peer, 31, &b[0][100], 1, column, peer, 31, comm, MPI_STATUS_IGNORE);
  int bad = 0;
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kCols; ++c) {
      const int expected = c >= 100 && c < 103 ? peer * 1000000 + r * kCols + c - 90 : -1;
      if (b[r][c] != expected) ++bad;
    }
  EXPECT(bad == 0);
  MPI_Type_free(&column);
}

/* Arrays of structs with holes. */
static void records(MPI_Comm comm, int peer) {
  struct {
    char c;
    double d;
    short s;
  } rec[5000], got[5000];
  int lens[3] = {1, 1, 1};
  MPI_Aint at[3] = {0, (char*)&rec[0].d - (char*)&rec[0], (char*)&rec[0].s - (char*)&rec[0]};
  MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, raw, pair;
  MPI_Type_create_struct(3, lens, at, types, &raw);
  MPI_Type_create_resized(raw, 0, sizeof(rec[0]), &pair);
  MPI_Type_commit(&pair);
  for (int n = 1; n <= 5000; n *= 17) {
    memset(got, 0, sizeof(got));
    for (int i = 0; i < n; ++i) {
      rec[i].c = (char)(i + g_rank);
      rec[i].d = i * 1.5 + g_rank;
      rec[i].s = (short)(i * 3 + g_rank);
    }
    MPI_Sendrecv(rec, n, pair, peer, 32, got, n, pair, peer, 32, comm, MPI_STATUS_IGNORE);
    int bad = 0;
    for (int i = 0; i < n; ++i)
      if (got[i].c != (char)(i + peer) || got[i].d != i * 1.5 + peer || got[i].s != (short)(i * 3 + peer))
        ++bad;
    EXPECT(bad == 0);
  }
  MPI_Type_free(&pair);
  MPI_Type_free(&raw);
}

void datatypes(MPI_Comm comm) {
  if (!paired()) return;
  columns(comm, peer_of(g_rank));
  records(comm, peer_of(g_rank));
}
