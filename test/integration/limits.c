/* SPDX-License-Identifier: BSD-3-Clause
 *
 * limits.c: messages of every size between the limits that a BTL's parameters set, contiguous and strided, to
 * the other processes and to the process itself, with few and with many under way. Run by limits_test with
 * unusual parameters. Prints "limits: ok, N messages".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxBytes = 2 << 20, kAtOnce = 8 };

static int g_rank, g_size;
static long g_messages;

static const int kSizes[] = {0,     1,      40,     72,     88,     100,     256,      512,
                             1000,  1024,   4032,   4096,   4112,   8192,    12288,    16000,
                             16384, 16400,  17408,  32768,  49152,  65520,   65536,    65552,
                             90000, 131056, 131088, 300000, 400000, 1 << 20, kMaxBytes};

/* What a process sends, by its rank: it repeats after kPeriod bytes, so that much of it is compared at once.
 */
enum { kPeriod = 1 << 16, kSeeds = 16 };
static unsigned char g_values[kSeeds][kPeriod];

static void make_values(void) {
  for (int seed = 0; seed < kSeeds; ++seed)
    for (int i = 0; i < kPeriod; ++i)
      g_values[seed][i] = (unsigned char)((i * 31 + (i >> 8) * 7 + seed * 13) & 0xff);
}

static void fill(unsigned char* to, size_t bytes, int seed) {
  for (size_t i = 0; i < bytes; i += kPeriod)
    memcpy(to + i, g_values[seed], bytes - i < kPeriod ? bytes - i : kPeriod);
}

static void fail(const char* what, int bytes, int at) {
  fprintf(stderr, "limits: rank %d: %s: message of %d bytes is wrong at byte %d\n", g_rank, what, bytes, at);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Of each `step` bytes the first `wanted` are values. With gaps, every second step is poison. */
static void check(const char* what, const unsigned char* in, int bytes, size_t extent, size_t step,
                  size_t wanted, int gaps, int seed) {
  static const unsigned char kPoison[16] = {0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a,
                                            0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a};
  int gap = 0;
  for (size_t i = 0; i < extent; i += step) {
    const unsigned char* good = gap ? kPoison : g_values[seed] + i % kPeriod;
    const size_t whole = extent - i < step ? extent - i : step;
    const size_t count = gap || whole < wanted ? whole : wanted;
    if (memcmp(in + i, good, count) != 0) {
      size_t at = 0;
      while (in[i + at] == good[at]) ++at;
      fail(what, bytes, (int)(i + at));
    }
    gap = gaps && !gap;
  }
}

/* A blocking send copies longer messages than a nonblocking one, unless a receive is posted. */
static enum { kNonblocking, kBlocking, kReceivePosted } g_how;

/* Elements of `element` bytes, every second one; 0: bytes in one piece. */
static void exchange(const char* what, MPI_Datatype base, int element, int bytes, int to, int from,
                     unsigned char* out, unsigned char* in) {
  MPI_Datatype type = MPI_BYTE;
  int count = bytes;
  const int step = element == 0 ? 1 : element;
  const size_t extent = element == 0 ? (size_t)bytes : (size_t)bytes / step * 2 * step;
  if (element != 0) {
    if (bytes % element != 0) return;
    MPI_Type_vector(bytes / element, 1, 2, base, &type);
    MPI_Type_commit(&type);
    count = 1;
  }
  fill(out, extent, g_rank);
  memset(in, 0x5a, extent + 1);
  const int tag = bytes % 1000;
  MPI_Request rq[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  if (g_how == kBlocking && g_size > 1) {  // rank 0 sends first, so the ring turns
    if (g_rank != 0) MPI_Recv(in, count, type, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, count, type, to, tag, MPI_COMM_WORLD);
    if (g_rank == 0) MPI_Recv(in, count, type, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    if (g_how == kNonblocking) MPI_Isend(out, count, type, to, tag, MPI_COMM_WORLD, &rq[0]);
    MPI_Irecv(in, count, type, from, tag, MPI_COMM_WORLD, &rq[1]);
    if (g_how != kNonblocking) MPI_Send(out, count, type, to, tag, MPI_COMM_WORLD);
    MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
  }
  ++g_messages;
  if (element == 0) {
    check(what, in, bytes, extent, kPeriod, kPeriod, 0, from);
  } else {
    /* Of the 16 bytes of a long double 10 are values; from 5.0 on ob1 does not carry the rest. */
    check(what, in, bytes, extent, (size_t)step, base == MPI_LONG_DOUBLE ? 10 : (size_t)step, 1, from);
  }
  if (in[extent] != 0x5a) fail(what, bytes, (int)extent);
  if (element != 0) MPI_Type_free(&type);
}

/* Many at once: what does not go at once has to wait, and must go later. */
static void crowd(int bytes, int to, int from, unsigned char* out, unsigned char* in) {
  MPI_Request rq[2 * kAtOnce];
  for (int k = 0; k < kAtOnce; ++k) {
    fill(out + k * bytes, (size_t)bytes, g_rank + k);
    MPI_Irecv(in + k * bytes, bytes, MPI_BYTE, from, k, MPI_COMM_WORLD, &rq[k]);
    MPI_Issend(out + k * bytes, bytes, MPI_BYTE, to, k, MPI_COMM_WORLD, &rq[kAtOnce + k]);
  }
  MPI_Waitall(2 * kAtOnce, rq, MPI_STATUSES_IGNORE);
  g_messages += kAtOnce;
  for (int k = 0; k < kAtOnce; ++k)
    check("many at once", in + k * bytes, bytes, (size_t)bytes, kPeriod, kPeriod, 0, from + k);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  if (g_size > kSeeds - kAtOnce) MPI_Abort(MPI_COMM_WORLD, 1);
  make_values();
  const int largest = argc > 1 ? atoi(argv[1]) : kMaxBytes;
  unsigned char* out = malloc((size_t)kMaxBytes * 2 + 64);
  unsigned char* in = malloc((size_t)kMaxBytes * 2 + 64);
  if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  const int next = (g_rank + 1) % g_size, previous = (g_rank + g_size - 1) % g_size;
  for (unsigned s = 0; s < sizeof(kSizes) / sizeof(kSizes[0]); ++s) {
    const int bytes = kSizes[s];
    if (bytes > largest) break;
    exchange("bytes", MPI_BYTE, 0, bytes, next, previous, out, in);
    for (g_how = kBlocking; g_how <= kReceivePosted; ++g_how) {
      exchange("bytes sent by MPI_Send", MPI_BYTE, 0, bytes, next, previous, out, in);
      exchange("strided doubles sent by MPI_Send", MPI_DOUBLE, 8, bytes, next, previous, out, in);
    }
    g_how = kNonblocking;
    exchange("bytes to itself", MPI_BYTE, 0, bytes, g_rank, g_rank, out, in);
    exchange("strided doubles", MPI_DOUBLE, 8, bytes, next, previous, out, in);
    exchange("strided doubles to itself", MPI_DOUBLE, 8, bytes, g_rank, g_rank, out, in);
    exchange("strided long doubles", MPI_LONG_DOUBLE, 16, bytes, next, previous, out, in);
    exchange("strided long doubles to itself", MPI_LONG_DOUBLE, 16, bytes, g_rank, g_rank, out, in);
    if (bytes * kAtOnce <= kMaxBytes) {
      crowd(bytes, next, previous, out, in);
      crowd(bytes, g_rank, g_rank, out, in);
    }
  }
  if (g_rank == 0) printf("limits: ok, %ld messages\n", g_messages);
  MPI_Finalize();
  free(out);
  free(in);
  return 0;
}
