/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics_requests.c: requests that live on: persistent ones, also inactive, cancelled ones, freed while
 * active.
 */
#include <mpi.h>
#include <string.h>

#include "test/integration/semantics.h"

static int is_empty(const MPI_Status* st) {
  int n = -1, c = -1;
  MPI_Get_count(st, MPI_BYTE, &n);
  MPI_Test_cancelled(st, &c);
  return st->MPI_SOURCE == MPI_ANY_SOURCE && st->MPI_TAG == MPI_ANY_TAG && n == 0 && !c;
}

void persistent(MPI_Comm comm) {
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  const int sizes[] = {0, 100, 5000, 300000, 2000000};
  for (int s = 0; s < 5; ++s) {
    for (int mode = 0; mode < 3; ++mode) {
      const int n = sizes[s];
      MPI_Request rq[2];
      MPI_Status st;
      int flag = 0, index = 5;
      if (mode == 0) MPI_Send_init(g_out, n, MPI_BYTE, peer, 7, comm, &rq[0]);
      if (mode == 1) MPI_Ssend_init(g_out, n, MPI_BYTE, peer, 7, comm, &rq[0]);
      if (mode == 2) MPI_Bsend_init(g_out, n, MPI_BYTE, peer, 7, comm, &rq[0]);
      MPI_Recv_init(g_in, n, MPI_BYTE, peer, 7, comm, &rq[1]);
      for (int k = 0; k < 2; ++k) {
        memset(&st, 0x55, sizeof(st));
        MPI_Wait(&rq[k], &st);
        EXPECT(is_empty(&st) && rq[k] != MPI_REQUEST_NULL);
        MPI_Test(&rq[k], &flag, &st);
        EXPECT(flag && is_empty(&st));
      }
      MPI_Waitany(2, rq, &index, &st);
      EXPECT(index == MPI_UNDEFINED);
      MPI_Testall(2, rq, &flag, MPI_STATUSES_IGNORE);
      EXPECT(flag);
      for (int round = 0; round < 4; ++round) {
        memset(g_in, 0, n);
        fill(g_out, n, g_rank * 77 + round);
        if (round & 1) {
          MPI_Startall(2, rq);
        } else {
          MPI_Start(&rq[1]);
          MPI_Start(&rq[0]);
        }
        MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
        EXPECT(rq[0] != MPI_REQUEST_NULL && rq[1] != MPI_REQUEST_NULL);
        EXPECT(holds(g_in, n, peer * 77 + round));
        MPI_Wait(&rq[1], &st);
        EXPECT(is_empty(&st));
      }
      MPI_Request_free(&rq[0]);
      MPI_Request_free(&rq[1]);
      EXPECT(rq[0] == MPI_REQUEST_NULL);
    }
  }
}

/* A buffered send is complete for its user while the message still waits for its receive: its persistent
 * request is started again meanwhile, and stays the same request. */
void persistent_buffered(MPI_Comm comm) {
  enum { kRounds = 3, kBytes = 1 << 20 };
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  if (g_rank < peer) {
    MPI_Request rq;
    MPI_Bsend_init(g_out, kBytes, MPI_BYTE, peer, 9, comm, &rq);
    const MPI_Request same = rq;
    for (int round = 0; round < kRounds; ++round) {
      MPI_Status st;
      int cancelled = 1;
      fill(g_out, kBytes, (unsigned)round);
      MPI_Start(&rq);
      EXPECT(rq == same);
      MPI_Wait(&rq, &st);
      MPI_Test_cancelled(&st, &cancelled);
      EXPECT(rq == same && !cancelled);
      rq = same;
    }
    MPI_Request_free(&rq);
    fill(g_out, kBytes, 99);
    MPI_Send(NULL, 0, MPI_BYTE, peer, 10, comm);
  } else {
    MPI_Recv(NULL, 0, MPI_BYTE, peer, 10, comm, MPI_STATUS_IGNORE);
    for (int round = 0; round < kRounds; ++round) {
      MPI_Recv(g_in, kBytes, MPI_BYTE, peer, 9, comm, MPI_STATUS_IGNORE);
      EXPECT(holds(g_in, kBytes, (unsigned)round));
    }
  }
}

void cancelling(MPI_Comm comm) {
  MPI_Request rq;
  MPI_Status st;
  int flag = 0;
  MPI_Irecv(g_in, 100, MPI_BYTE, MPI_ANY_SOURCE, 4711, comm, &rq);
  MPI_Cancel(&rq);
  MPI_Wait(&rq, &st);
  MPI_Test_cancelled(&st, &flag);
  EXPECT(flag);
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  MPI_Recv_init(g_in, 100, MPI_BYTE, peer, 4712, comm, &rq);
  MPI_Start(&rq);
  MPI_Cancel(&rq);
  MPI_Wait(&rq, &st);
  MPI_Test_cancelled(&st, &flag);
  EXPECT(flag && rq != MPI_REQUEST_NULL);
  MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 4713, NULL, 0, MPI_BYTE, peer, 4713, comm, MPI_STATUS_IGNORE);
  MPI_Start(&rq); /* a cancelled persistent request can be used again */
  fill(g_out, 100, 9);
  MPI_Send(g_out, 100, MPI_BYTE, peer, 4712, comm);
  MPI_Wait(&rq, &st);
  MPI_Test_cancelled(&st, &flag);
  EXPECT(!flag && holds(g_in, 100, 9));
  MPI_Request_free(&rq);
}

void freed_active(MPI_Comm comm) {
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  const int sizes[] = {10, 10000, 1000000};
  for (int i = 0; i < 3; ++i) {
    const int n = sizes[i];
    MPI_Request rq, prq;
    int token = 0;
    fill(g_out, n, g_rank + 3);
    MPI_Irecv(g_in, n, MPI_BYTE, peer, 21, comm, &rq);
    MPI_Isend(g_out, n, MPI_BYTE, peer, 21, comm, &prq);
    MPI_Request_free(&prq);
    EXPECT(prq == MPI_REQUEST_NULL);
    MPI_Wait(&rq, MPI_STATUS_IGNORE);
    EXPECT(holds(g_in, n, peer + 3));
    /* the freed send is done once the peer says it has it */
    MPI_Sendrecv(&token, 1, MPI_INT, peer, 22, &token, 1, MPI_INT, peer, 22, comm, MPI_STATUS_IGNORE);
    MPI_Send_init(g_out, n, MPI_BYTE, peer, 23, comm, &prq);
    MPI_Irecv(g_in, n, MPI_BYTE, peer, 23, comm, &rq);
    MPI_Start(&prq);
    MPI_Request_free(&prq);
    MPI_Wait(&rq, MPI_STATUS_IGNORE);
    EXPECT(holds(g_in, n, peer + 3));
    MPI_Sendrecv(&token, 1, MPI_INT, peer, 22, &token, 1, MPI_INT, peer, 22, comm, MPI_STATUS_IGNORE);
  }
}
