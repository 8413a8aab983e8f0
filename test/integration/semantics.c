/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics: every point-to-point entry of MPI, checked on two or more ranks against what the standard says:
 * send modes, persistent requests (also inactive ones), probe and matched probe, cancel, wildcards,
 * truncation, freed active requests, derived datatypes, self messages, duplicated communicators, ordering,
 * and threads. Prints one line per failed expectation and `semantics: N checks, M failed` at the end; exits 1
 * when one failed. With the argument "threads" it asks for MPI_THREAD_MULTIPLE and adds the threaded part.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int g_rank, g_size, g_checks, g_failed;

static void expect(int ok, const char* what, int line) {
  ++g_checks;
  if (ok) return;
  ++g_failed;
  fprintf(stderr, "rank %d line %d: %s\n", g_rank, line, what);
}
#define EXPECT(x) expect((x), #x, __LINE__)

static const int kSizes[] = {0,      1,      8,      64,     113,     114,     115,    256,   1024,
                             4000,   4096,   12000,  12288,  16384,   32768,   65535,  65536, 65537,
                             100000, 131072, 262144, 500000, 1 << 20, 3000000, 4 << 20};
enum { kSizeCount = sizeof(kSizes) / sizeof(kSizes[0]), kMaxSize = 4 << 20 };

static unsigned char* g_out;
static unsigned char* g_in;

static void fill(unsigned char* p, int n, unsigned seed) {
  unsigned x = seed * 2654435761u + 1;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    p[i] = (unsigned char)(x >> 24);
  }
}
static int holds(const unsigned char* p, int n, unsigned seed) {
  unsigned x = seed * 2654435761u + 1;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    if (p[i] != (unsigned char)(x >> 24)) return 0;
  }
  return 1;
}
static int peer_of(int rank) {
  return rank ^ 1;
}
static int paired(void) {
  return peer_of(g_rank) < g_size;
}

/* mode 0 standard, 1 synchronous, 2 buffered, 3 ready (receiver posts first and says so) */
static void send_modes(MPI_Comm comm) {
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
static void nonblocking(MPI_Comm comm) {
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

static void ordering(MPI_Comm comm) {
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

static void wildcards(MPI_Comm comm) {
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

static int is_empty(const MPI_Status* st) {
  int n = -1, c = -1;
  MPI_Get_count(st, MPI_BYTE, &n);
  MPI_Test_cancelled(st, &c);
  return st->MPI_SOURCE == MPI_ANY_SOURCE && st->MPI_TAG == MPI_ANY_TAG && n == 0 && !c;
}

static void persistent(MPI_Comm comm) {
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
static void persistent_buffered(MPI_Comm comm) {
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

static void probes(MPI_Comm comm) {
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

static void cancelling(MPI_Comm comm) {
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

static void truncation(MPI_Comm comm) {
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

static void freed_active(MPI_Comm comm) {
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

static void datatypes(MPI_Comm comm) {
  enum { kRows = 300, kCols = 500 };
  static int a[kRows][kCols], b[kRows][kCols];
  MPI_Datatype column, pair;
  if (!paired()) return;
  const int peer = peer_of(g_rank);
  MPI_Type_vector(kRows, 3, kCols, MPI_INT, &column);
  MPI_Type_commit(&column);
  struct {
    char c;
    double d;
    short s;
  } rec[5000], got[5000];
  int lens[3] = {1, 1, 1};
  MPI_Aint at[3] = {0, (char*)&rec[0].d - (char*)&rec[0], (char*)&rec[0].s - (char*)&rec[0]};
  MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, raw;
  MPI_Type_create_struct(3, lens, at, types, &raw);
  MPI_Type_create_resized(raw, 0, sizeof(rec[0]), &pair);
  MPI_Type_commit(&pair);
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
  for (int n = 1; n <= 5000; n *= 17) {
    memset(got, 0, sizeof(got));
    for (int i = 0; i < n; ++i) {
      rec[i].c = (char)(i + g_rank);
      rec[i].d = i * 1.5 + g_rank;
      rec[i].s = (short)(i * 3 + g_rank);
    }
    MPI_Sendrecv(rec, n, pair, peer, 32, got, n, pair, peer, 32, comm, MPI_STATUS_IGNORE);
    bad = 0;
    for (int i = 0; i < n; ++i)
      if (got[i].c != (char)(i + peer) || got[i].d != i * 1.5 + peer || got[i].s != (short)(i * 3 + peer))
        ++bad;
    EXPECT(bad == 0);
  }
  MPI_Type_free(&column);
  MPI_Type_free(&pair);
  MPI_Type_free(&raw);
}

static void to_self(void) {
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

static void communicators(void) {
  for (int round = 0; round < 20; ++round) {
    MPI_Comm dup, half;
    int v = g_rank, w = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_split(dup, g_rank / 2, -g_rank, &half);
    int hr, hs;
    MPI_Comm_rank(half, &hr);
    MPI_Comm_size(half, &hs);
    MPI_Sendrecv(&v, 1, MPI_INT, (hr + 1) % hs, 3, &w, 1, MPI_INT, (hr + hs - 1) % hs, 3, half,
                 MPI_STATUS_IGNORE);
    EXPECT(hs == 1 ? w == g_rank : w / 2 == g_rank / 2);
    if (hs > 1) EXPECT(w != g_rank);
    int sum = 0;
    MPI_Allreduce(&v, &sum, 1, MPI_INT, MPI_SUM, dup);
    EXPECT(sum == g_size * (g_size - 1) / 2);
    MPI_Comm_free(&half);
    MPI_Comm_free(&dup);
  }
}

static void proc_null(MPI_Comm comm) {
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

static void collectives(void) {
  const int n = 40000;
  double* x = malloc(n * sizeof(double));
  double* y = malloc(n * sizeof(double));
  for (int i = 0; i < n; ++i) x[i] = g_rank + i;
  MPI_Allreduce(x, y, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  int bad = 0;
  for (int i = 0; i < n; ++i)
    if (y[i] != (double)g_size * i + g_size * (g_size - 1) / 2.0) ++bad;
  EXPECT(bad == 0);
  MPI_Alltoall(x, n / g_size, MPI_DOUBLE, y, n / g_size, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int r = 0; r < g_size; ++r) EXPECT(y[r * (n / g_size)] == r + (double)g_rank * (n / g_size));
  MPI_Bcast(x, n, MPI_DOUBLE, g_size - 1, MPI_COMM_WORLD);
  EXPECT(x[0] == g_size - 1);
  free(x);
  free(y);
}

/* Each thread talks to the same thread of the partner over its own tag. */
static void* thread_main(void* arg) {
  const int me = (int)(long)arg;
  const int peer = peer_of(g_rank);
  unsigned char* out = malloc(200000);
  unsigned char* in = malloc(200000);
  long bad = 0;
  for (int i = 0; i < 150; ++i) {
    const int n = (i * 7919 + me * 13) % (i % 10 ? 2000 : 200000);
    MPI_Request rq[2];
    fill(out, n, g_rank * 100 + me * 10 + i);
    memset(in, 0, n);
    if (i & 1) {
      MPI_Irecv(in, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD, &rq[0]);
      MPI_Isend(out, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD, &rq[1]);
      MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
    } else {
      MPI_Sendrecv(out, n, MPI_BYTE, peer, 1000 + me, in, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
    }
    if (!holds(in, n, peer * 100 + me * 10 + i)) ++bad;
  }
  free(out);
  free(in);
  return (void*)bad;
}

static void threads(void) {
  enum { kThreads = 4 };
  pthread_t id[kThreads];
  if (paired()) {
    for (long t = 0; t < kThreads; ++t) pthread_create(&id[t], NULL, thread_main, (void*)t);
    for (int t = 0; t < kThreads; ++t) {
      void* bad = NULL;
      pthread_join(id[t], &bad);
      EXPECT(bad == NULL);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const int want = argc > 1 && strcmp(argv[1], "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int got = 0;
  MPI_Init_thread(&argc, &argv, want, &got);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_out = malloc(kMaxSize);
  g_in = malloc(kMaxSize);
  const int bsize = 3 * kMaxSize;
  void* bbuf = malloc(bsize);
  MPI_Buffer_attach(bbuf, bsize);
  EXPECT(got >= want);

  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  struct {
    const char* name;
    void (*run)(MPI_Comm);
  } parts[] = {
      {"send_modes", send_modes},
      {"nonblocking", nonblocking},
      {"ordering", ordering},
      {"wildcards", wildcards},
      {"persistent", persistent},
      {"probes", probes},
      {"persistent_buffered", persistent_buffered},
      {"cancelling", cancelling},
      {"truncation", truncation},
      {"freed_active", freed_active},
      {"datatypes", datatypes},
      {"proc_null", proc_null},
  };
  for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
    if (g_rank == 0 && getenv("SEMANTICS_VERBOSE")) fprintf(stderr, "semantics: %s\n", parts[i].name);
    parts[i].run(comm);
    MPI_Barrier(comm);
  }
  if (g_rank == 0 && getenv("SEMANTICS_VERBOSE"))
    fprintf(stderr, "semantics: self, communicators, collectives\n");
  to_self();
  communicators();
  collectives();
  if (want == MPI_THREAD_MULTIPLE) threads();
  MPI_Comm_free(&comm);

  int total[2] = {g_checks, g_failed}, sum[2];
  MPI_Reduce(total, sum, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  int failed = g_failed;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (g_rank == 0) printf("semantics: %d checks, %d failed\n", sum[0], sum[1]);
  void* detached = NULL;
  int dsize = 0;
  MPI_Buffer_detach(&detached, &dsize);
  free(bbuf);
  free(g_out);
  free(g_in);
  MPI_Finalize();
  return failed ? 1 : 0;
}
