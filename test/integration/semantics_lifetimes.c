/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics_lifetimes.c: handles that outlive what they were made from. A communicator or a data type may be
 * freed while a message that was probed, a request or a buffered message still needs it: MPI lets go of it
 * when the last of them has ended. Run with MALLOC_PERTURB_ set, so that what is used too late is garbage.
 */
#include <mpi.h>
#include <string.h>

#include "test/integration/semantics.h"

enum { kLengths = 4, kTag = 11 };
static const int kLength[kLengths] = {0, 8, 30000, 2000000};

/* A communicator of the same size as `comm`, to be freed too early. */
static MPI_Comm short_lived(MPI_Comm comm) {
  MPI_Comm made;
  MPI_Comm_dup(comm, &made);
  return made;
}

/* Every other one of 2n bytes. */
static MPI_Datatype strided(int n) {
  MPI_Datatype type;
  MPI_Type_vector(n, 1, 2, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

/* What is made anew takes the place of what was freed, and its context id. */
static void speak_anew(MPI_Comm comm, int peer) {
  MPI_Comm next = short_lived(comm);
  int mine = g_rank, theirs = -1;
  MPI_Sendrecv(&mine, 1, MPI_INT, peer, 1, &theirs, 1, MPI_INT, peer, 1, next, MPI_STATUS_IGNORE);
  EXPECT(theirs == peer);
  MPI_Comm_free(&next);
}

static void receive_probed(MPI_Message* message, int n, int nonblocking) {
  MPI_Status st;
  MPI_Request rq;
  if (nonblocking) {
    MPI_Imrecv(g_in, n, MPI_BYTE, message, &rq);
    MPI_Wait(&rq, &st);
  } else {
    MPI_Mrecv(g_in, n, MPI_BYTE, message, &st);
  }
  EXPECT(*message == MPI_MESSAGE_NULL && st.MPI_TAG == kTag);
}

/* MPI_Mprobe or MPI_Improbe, MPI_Comm_free, MPI_Mrecv or MPI_Imrecv; from `peer`, which may be this rank. */
static void probed_message(MPI_Comm comm, int peer, int n, int nonblocking) {
  MPI_Comm c = short_lived(comm);
  MPI_Request rq;
  MPI_Status st;
  MPI_Message message = MPI_MESSAGE_NULL;
  fill(g_out, n, (unsigned)(g_rank + n));
  memset(g_in, 0, (size_t)n);
  MPI_Isend(g_out, n, MPI_BYTE, peer, kTag, c, &rq);
  if (nonblocking) {
    int found = 0;
    while (!found) MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, c, &found, &message, &st);
  } else {
    MPI_Mprobe(peer, kTag, c, &message, &st);
  }
  EXPECT(st.MPI_SOURCE == peer);
  MPI_Comm_free(&c);
  if (peer != g_rank) speak_anew(comm, peer);
  receive_probed(&message, n, nonblocking);
  EXPECT(holds(g_in, n, (unsigned)(peer + n)));
  MPI_Wait(&rq, MPI_STATUS_IGNORE);
}

/* Active requests: communicator and type freed right behind the call. */
static void active(MPI_Comm comm, int peer, int n, int with_type) {
  MPI_Comm c = short_lived(comm);
  MPI_Request rq[2];
  MPI_Datatype type = strided(n);
  MPI_Status st[2];
  fill(g_out, 2 * n, (unsigned)(g_rank + n));
  memset(g_in, 0, (size_t)n);
  MPI_Irecv(g_in, n, MPI_BYTE, peer, kTag, c, &rq[0]);
  if (with_type)
    MPI_Isend(g_out, 1, type, peer, kTag, c, &rq[1]);
  else
    MPI_Isend(g_out, n, MPI_BYTE, peer, kTag, c, &rq[1]);
  MPI_Type_free(&type);
  MPI_Comm_free(&c);
  MPI_Waitall(2, rq, st);
  int got = -1;
  MPI_Get_count(&st[0], MPI_BYTE, &got);
  EXPECT(got == n);
  if (!with_type) EXPECT(holds(g_in, n, (unsigned)(peer + n)));
  speak_anew(comm, peer);
}

/* The same, and the requests are freed too: only the data says when they have ended. */
static void forgotten(MPI_Comm comm, int peer, int n) {
  MPI_Comm c = short_lived(comm);
  MPI_Request rq[2];
  MPI_Datatype type = strided(n);
  memset(g_in, 0, (size_t)(2 * n));
  memset(g_out, 0x5a, (size_t)(2 * n));
  MPI_Irecv(g_in, 1, type, peer, kTag, c, &rq[0]);
  MPI_Isend(g_out, 1, type, peer, kTag, c, &rq[1]);
  MPI_Type_free(&type);
  MPI_Comm_free(&c);
  MPI_Request_free(&rq[0]);
  MPI_Request_free(&rq[1]);
  for (int i = 0; i < n;) {
    int found = 0;
    if (g_in[2 * i] == 0x5a)
      ++i;
    else
      MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm, &found, MPI_STATUS_IGNORE);
  }
  speak_anew(comm, peer); /* the peer has all of g_out */
}

/* Persistent requests: inactive ones that are only freed, active ones that end after the communicator. */
static void persistent_ones(MPI_Comm comm, int peer, int n) {
  for (int started = 0; started < 2; ++started) {
    MPI_Comm c = short_lived(comm);
    MPI_Request rq[3];
    MPI_Datatype type = strided(n);
    memset(g_in, 0, (size_t)(2 * n));
    fill(g_out, 2 * n, (unsigned)(g_rank + started));
    MPI_Send_init(g_out, 1, type, peer, kTag, c, &rq[0]);
    MPI_Recv_init(g_in, 1, type, peer, kTag, c, &rq[1]);
    MPI_Bsend_init(g_out, 1, type, peer, kTag + 1, c, &rq[2]);
    if (started) MPI_Startall(2, rq);
    MPI_Type_free(&type);
    MPI_Comm_free(&c);
    if (!started) speak_anew(comm, peer);
    MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
    if (started && n > 0) {
      fill(g_out, 2 * n, (unsigned)(peer + started));
      EXPECT(g_in[0] == g_out[0] && g_in[2 * n - 2] == g_out[2 * n - 2]);
    }
    for (int i = 0; i < 3; ++i) {
      MPI_Request_free(&rq[i]);
      EXPECT(rq[i] == MPI_REQUEST_NULL);
    }
  }
}

/* A buffered message is under way when its communicator and its type are freed. */
static void buffered(MPI_Comm comm, int peer, int n) {
  MPI_Comm c = short_lived(comm);
  MPI_Request rq[2];
  MPI_Datatype type = strided(n);
  fill(g_out, n, (unsigned)(g_rank + 3));
  MPI_Irecv(g_in, n, MPI_BYTE, peer, kTag, c, &rq[0]);
  MPI_Irecv(g_in + n, n, MPI_BYTE, peer, kTag, c, &rq[1]);
  MPI_Bsend(g_out, n, MPI_BYTE, peer, kTag, c);
  MPI_Bsend(g_out, 1, type, peer, kTag, c);
  MPI_Type_free(&type);
  MPI_Comm_free(&c);
  memset(g_out, 0, (size_t)(2 * n));
  MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
  EXPECT(holds(g_in, n, (unsigned)(peer + 3)));
  speak_anew(comm, peer);
}

/* A receive that no message matches is cancelled when its communicator and its type are gone for the user. */
static void cancelled(MPI_Comm comm, int peer) {
  MPI_Comm c = short_lived(comm);
  MPI_Request rq[2];
  MPI_Datatype type = strided(100);
  MPI_Irecv(g_in, 1, type, peer, kTag, c, &rq[0]);
  MPI_Irecv(g_in, 1, type, MPI_ANY_SOURCE, MPI_ANY_TAG, c, &rq[1]);
  MPI_Type_free(&type);
  MPI_Comm_free(&c);
  speak_anew(comm, peer);
  for (int i = 0; i < 2; ++i) {
    MPI_Status st;
    int was = 0;
    MPI_Cancel(&rq[i]);
    MPI_Wait(&rq[i], &st);
    MPI_Test_cancelled(&st, &was);
    EXPECT(was);
  }
}

/* Short messages leave no request: the communicator is freed while they may still be on their way. */
static void short_ones(MPI_Comm comm, int peer) {
  enum { kMessages = 200 };
  MPI_Comm c = short_lived(comm);
  static int in[kMessages];
  MPI_Request rq[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    in[i] = -1;
    MPI_Irecv(&in[i], 1, MPI_INT, peer, i, c, &rq[i]);
  }
  for (int i = 0; i < kMessages; ++i) MPI_Send(&i, 1, MPI_INT, peer, i, c);
  MPI_Comm_free(&c);
  speak_anew(comm, peer);
  MPI_Waitall(kMessages, rq, MPI_STATUSES_IGNORE);
  int right = 0;
  for (int i = 0; i < kMessages; ++i) right += in[i] == i;
  EXPECT(right == kMessages);
}

void lifetimes(MPI_Comm comm) {
  MPI_Comm pair;
  const int alone = !paired();
  const int low = g_rank & ~1;
  MPI_Comm_split(comm, alone ? MPI_UNDEFINED : low, g_rank, &pair);
  if (alone) return;
  const int rank = g_rank, me = g_rank - low, peer = 1 - me;
  g_rank = me; /* of the pair, so that ranks are places in it */
  for (int i = 0; i < kLengths; ++i) {
    const int n = kLength[i];
    for (int nonblocking = 0; nonblocking < 2; ++nonblocking) {
      probed_message(pair, peer, n, nonblocking);
      probed_message(pair, me, n, nonblocking);
      active(pair, peer, n, nonblocking);
    }
    forgotten(pair, peer, n);
    persistent_ones(pair, peer, n);
    buffered(pair, peer, n);
  }
  cancelled(pair, peer);
  short_ones(pair, peer);
  g_rank = rank;
  MPI_Comm_free(&pair);
}
