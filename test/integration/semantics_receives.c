/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics_receives.c: what a receiver may ask for and get: wildcards, probes, messages that do not fit.
 */
#include <mpi.h>
#include <string.h>

#include "test/integration/semantics.h"

void wildcards(MPI_Comm comm) {
  if (g_rank == 0) {
    int seen = 0;
    for (int i = 0; i < 2 * (g_size - 1); ++i) {
      int v = -1;
      MPI_Status st;
      MPI_Recv(&v, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &st);
      EXPECT(v == st.MPI_SOURCE * 10 + st.MPI_TAG);
      ++seen;
    }
    EXPECT(seen == 2 * (g_size - 1));
  } else {
    for (int tag = 1; tag <= 2; ++tag) {
      int v = g_rank * 10 + tag;
      MPI_Send(&v, 1, MPI_INT, 0, tag, comm);
    }
  }
  MPI_Barrier(comm);
}

void probes(MPI_Comm comm) {
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  for (int i = 0; i < kSizeCount; ++i) {
    const int n = kSizes[i];
    if (g_rank & 1) {
      fill(g_out, n, 40 + i);
      MPI_Request rq;
      for (int k = 0; k < 4; ++k) {
        MPI_Isend(g_out, n, MPI_BYTE, peer, 300 + k, comm, &rq);
        MPI_Wait(&rq, MPI_STATUS_IGNORE);
      }
    } else {
      MPI_Status st;
      MPI_Message msg;
      MPI_Request rq;
      int flag = 0, count = -1;
      MPI_Probe(peer, 300, comm, &st);
      MPI_Get_count(&st, MPI_BYTE, &count);
      EXPECT(count == n && st.MPI_TAG == 300 && st.MPI_SOURCE == peer);
      MPI_Recv(g_in, n, MPI_BYTE, peer, 300, comm, MPI_STATUS_IGNORE);
      EXPECT(holds(g_in, n, 40 + i));
      while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, 301, comm, &flag, &st);
      MPI_Recv(g_in, n, MPI_BYTE, st.MPI_SOURCE, st.MPI_TAG, comm, MPI_STATUS_IGNORE);
      MPI_Mprobe(peer, MPI_ANY_TAG, comm, &msg, &st);
      count = -1;
      MPI_Get_count(&st, MPI_BYTE, &count);
      EXPECT(msg != MPI_MESSAGE_NULL && count == n && st.MPI_TAG == 302);
      /* a probed message is invisible to others */
      MPI_Iprobe(peer, 302, comm, &flag, &st);
      EXPECT(!flag);
      memset(g_in, 0, n);
      MPI_Mrecv(g_in, n, MPI_BYTE, &msg, &st);
      EXPECT(msg == MPI_MESSAGE_NULL && holds(g_in, n, 40 + i) && st.MPI_SOURCE == peer && st.MPI_TAG == 302);
      for (flag = 0; !flag;) MPI_Improbe(peer, 303, comm, &flag, &msg, &st);
      memset(g_in, 0, n);
      MPI_Imrecv(g_in, n, MPI_BYTE, &msg, &rq);
      MPI_Wait(&rq, &st);
      EXPECT(holds(g_in, n, 40 + i));
    }
    /* the next size uses the same tags */
    MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 310, NULL, 0, MPI_BYTE, peer, 310, comm, MPI_STATUS_IGNORE);
  }
}

void truncation(MPI_Comm comm) {
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  const int sizes[] = {2, 2000, 20000, 200000, 2000000};
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  for (int i = 0; i < 5; ++i) {
    const int n = sizes[i];
    for (int late = 0; late < 2; ++late) {
      if (g_rank & 1) {
        fill(g_out, n, i);
        MPI_Send(g_out, n, MPI_BYTE, peer, 11, comm);
        MPI_Send(g_out, n, MPI_BYTE, peer, 12, comm);
      } else {
        MPI_Status st;
        int cls = 0;
        memset(g_in, 0xab, n);
        if (late) MPI_Probe(peer, 11, comm, &st);
        int rc = MPI_Recv(g_in, n / 2, MPI_BYTE, peer, 11, comm, &st);
        MPI_Error_class(rc, &cls);
        EXPECT(cls == MPI_ERR_TRUNCATE);
        int clean = 1;
        for (int k = n / 2; k < n; ++k) clean &= g_in[k] == 0xab;
        EXPECT(clean);
        EXPECT(MPI_Recv(g_in, n, MPI_BYTE, peer, 12, comm, &st) == MPI_SUCCESS);
        EXPECT(holds(g_in, n, i));
      }
    }
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}
