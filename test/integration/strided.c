/* SPDX-License-Identifier: BSD-3-Clause
 *
 * strided.c: messages between buffers of different layouts, in both directions, with guard bytes in all gaps.
 * Where the bytes of a layout are is computed here, not asked of MPI. Prints "strided: N messages, M wrong".
 * Usage: strided [ROUNDS [BYTES]]. Ranks 0 and 1.
 */
#include <complex.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kGuard = 0xa5, kMargin = 256, kMaxBlocks = 64 };

/* One element: blocks in the order of the message, and the distance of the next element. */
struct layout {
  const char* name;
  MPI_Datatype type;
  int n;
  long at[kMaxBlocks];
  int length[kMaxBlocks];
  long extent;
  int size;
};

enum { kLayouts = 14 };
static struct layout g_layouts[kLayouts];
static int g_rank, g_messages, g_wrong;

static void block(struct layout* l, long at, int length) {
  l->at[l->n] = at;
  l->length[l->n++] = length;
  l->size += length;
}

static struct layout* next(const char* name) {
  static int used;
  struct layout* l = &g_layouts[used++];
  l->name = name;
  return l;
}

/* `columns` doubles out of each row of 5, and the same of another type. */
static struct layout* column(const char* name, MPI_Datatype basic, int size, int columns) {
  struct layout* l = next(name);
  MPI_Datatype rows;
  MPI_Type_vector(4, columns, 5, basic, &rows);
  MPI_Type_create_resized(rows, 0, 20L * size, &l->type);
  MPI_Type_free(&rows);
  for (int i = 0; i < 4; ++i) block(l, 5L * size * i, columns * size);
  l->extent = 20L * size;
  return l;
}

static void make_simple(void) {
  struct layout* l = next("contiguous doubles");
  MPI_Type_contiguous(1, MPI_DOUBLE, &l->type);
  block(l, 0, 8);
  l->extent = 8;

  column("column of doubles", MPI_DOUBLE, 8, 1);
  column("columns of long doubles", MPI_LONG_DOUBLE, 16, 3);
  column("column of complex long doubles", MPI_C_LONG_DOUBLE_COMPLEX, 32, 1);

  l = next("hvector");
  MPI_Datatype inner;
  MPI_Type_create_hvector(3, 2, 37, MPI_INT, &inner);
  MPI_Type_create_resized(inner, 0, 113, &l->type);
  MPI_Type_free(&inner);
  for (int i = 0; i < 3; ++i) block(l, 37L * i, 8);
  l->extent = 113;

  /* Half an element is between two of them. */
  l = next("hvector of complex numbers");
  MPI_Type_create_hvector(3, 1, 24, MPI_C_DOUBLE_COMPLEX, &inner);
  MPI_Type_create_resized(inner, 0, 72, &l->type);
  MPI_Type_free(&inner);
  for (int i = 0; i < 3; ++i) block(l, 24L * i, 16);
  l->extent = 72;

  l = next("subarray");
  const int sizes[] = {4, 6}, part[] = {2, 3}, start[] = {1, 2};
  MPI_Type_create_subarray(2, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &l->type);
  for (int i = 0; i < 2; ++i) block(l, 8L * (6 * (1 + i) + 2), 24);
  l->extent = 8L * 24;

  l = next("resized");
  MPI_Type_create_resized(MPI_DOUBLE, -8, 24, &l->type);
  block(l, 0, 8);
  l->extent = 24;
}

static void make_structs(void) {
  struct layout* l = next("packed struct");
  int lengths[] = {1, 1, 3};
  MPI_Aint at[] = {0, 1, 11};
  MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, inner;
  MPI_Type_create_struct(3, lengths, at, types, &inner);
  MPI_Type_create_resized(inner, 0, 17, &l->type);
  MPI_Type_free(&inner);
  block(l, 0, 1);
  block(l, 1, 8);
  block(l, 11, 6);
  l->extent = 17;

  l = next("struct of vectors");
  MPI_Type_vector(3, 1, 2, MPI_FLOAT, &inner);
  MPI_Aint two[] = {0, 29};
  MPI_Datatype both[] = {inner, MPI_LONG_DOUBLE}, whole;
  MPI_Type_create_struct(2, lengths, two, both, &whole);
  MPI_Type_create_resized(whole, 0, 51, &l->type);
  MPI_Type_free(&whole);
  MPI_Type_free(&inner);
  for (int i = 0; i < 3; ++i) block(l, 8L * i, 4);
  block(l, 29, 16);
  l->extent = 51;

  l = next("indexed");
  int blocks[20], places[20];
  for (int i = 0, next_at = 0; i < 20; ++i) {
    blocks[i] = 1 + i % 4;
    places[i] = next_at;
    block(l, 4L * next_at, 4 * blocks[i]);
    next_at += blocks[i] + 1 + i % 3;
  }
  MPI_Type_indexed(20, blocks, places, MPI_FLOAT, &inner);
  MPI_Type_create_resized(inner, 0, 4 * 91, &l->type);
  MPI_Type_free(&inner);
  l->extent = 4 * 91;
}

static void make_odd(void) {
  struct layout* l = next("negative lower bound");
  MPI_Datatype inner;
  int lengths[] = {2, 1};
  MPI_Aint at[] = {-48, 16};
  MPI_Type_create_hindexed(2, lengths, at, MPI_DOUBLE, &inner);
  MPI_Type_create_resized(inner, -48, 80, &l->type);
  MPI_Type_free(&inner);
  block(l, -48, 16);
  block(l, 16, 8);
  l->extent = 80;

  l = next("backwards");
  MPI_Aint down[] = {40, 0};
  MPI_Type_create_hindexed(2, lengths, down, MPI_DOUBLE, &inner);
  MPI_Type_create_resized(inner, 0, 61, &l->type);
  MPI_Type_free(&inner);
  block(l, 40, 16);
  block(l, 0, 8);
  l->extent = 61;

  l = next("bytes");
  MPI_Type_create_hvector(2, 5, 7, MPI_BYTE, &inner);
  MPI_Type_create_resized(inner, 0, 14, &l->type);
  MPI_Type_free(&inner);
  block(l, 0, 5);
  block(l, 7, 5);
  l->extent = 14;
}

struct buffer {
  unsigned char* memory;
  long bytes;
  void* address;
  int count;
};

static struct buffer buffer_for(const struct layout* l, long bytes) {
  struct buffer b;
  b.count = (int)((bytes + l->size - 1) / l->size);
  b.bytes = b.count * l->extent + 4 * kMargin;
  b.memory = malloc((size_t)b.bytes);
  memset(b.memory, kGuard, (size_t)b.bytes);
  b.address = b.memory + kMargin;
  return b;
}

static unsigned char byte_at(long i, unsigned seed) {
  return (unsigned char)((unsigned long)(i * 31 + (i >> 8) * 17 + (i >> 16)) + seed * 7);
}

/* Writes the first `bytes` of a message into the buffer's places, or counts those that are not there. */
static long walk(const struct layout* l, struct buffer* b, long bytes, unsigned seed, int write) {
  long at = 0, bad = 0;
  for (int e = 0; e < b->count; ++e)
    for (int k = 0; k < l->n; ++k) {
      unsigned char* const p = (unsigned char*)b->address + e * l->extent + l->at[k];
      for (int i = 0; i < l->length[k] && at < bytes; ++i, ++at) {
        if (write) {
          p[i] = byte_at(at, seed);
        } else {
          bad += p[i] != byte_at(at, seed);
          p[i] = kGuard;
        }
      }
    }
  if (write) return 0;
  for (long i = 0; i < b->bytes; ++i) bad += b->memory[i] != kGuard;
  return bad;
}

enum mode { kPlain, kBuffered, kPersistent, kModes };

static void receive(const struct layout* from, const struct layout* to, long bytes, unsigned seed, int n,
                    enum mode mode) {
  struct buffer b[4];
  MPI_Request reqs[4];
  for (int i = 0; i < n; ++i) b[i] = buffer_for(to, bytes);
  for (int i = 0; i < n; ++i)
    MPI_Irecv(b[i].address, b[i].count, to->type, 1 - g_rank, 5, MPI_COMM_WORLD, &reqs[i]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Waitall(n, reqs, MPI_STATUSES_IGNORE);
  for (int i = 0; i < n; ++i) {
    const long bad = walk(to, &b[i], bytes, seed + (unsigned)i, 0);
    ++g_messages;
    if (bad != 0 && ++g_wrong <= 20)
      printf("rank %d: %s to %s, mode %d: %ld of %ld bytes wrong\n", g_rank, from->name, to->name, (int)mode,
             bad, bytes);
    free(b[i].memory);
  }
}

static void send(const struct layout* from, long bytes, unsigned seed, int n, enum mode mode) {
  struct buffer b[4];
  MPI_Request reqs[4];
  for (int i = 0; i < n; ++i) {
    b[i] = buffer_for(from, bytes);
    walk(from, &b[i], bytes, seed + (unsigned)i, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const int count = (int)(bytes / from->size);
  if (mode == kPersistent) {
    /* one request, started again for each message */
    MPI_Send_init(b[0].address, count, from->type, 1 - g_rank, 5, MPI_COMM_WORLD, &reqs[0]);
    for (int i = 0; i < n; ++i) {
      walk(from, &b[0], bytes, seed + (unsigned)i, 1);
      MPI_Start(&reqs[0]);
      MPI_Wait(&reqs[0], MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&reqs[0]);
  } else {
    for (int i = 0; i < n; ++i)
      (mode == kBuffered ? MPI_Ibsend : MPI_Isend)(b[i].address, count, from->type, 1 - g_rank, 5,
                                                   MPI_COMM_WORLD, &reqs[i]);
    MPI_Waitall(n, reqs, MPI_STATUSES_IGNORE);
  }
  for (int i = 0; i < n; ++i) free(b[i].memory);
}

/* A message has a whole number of elements of both layouts. */
static long common_bytes(const struct layout* a, const struct layout* b, long about) {
  const long unit = (long)a->size * b->size;
  return (about + unit - 1) / unit * unit;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  const long about = argc > 2 ? atol(argv[2]) : 250000;
  make_simple();
  make_structs();
  make_odd();
  for (int i = 0; i < kLayouts; ++i) MPI_Type_commit(&g_layouts[i].type);
  const int room = (int)(4 * (about + 100000 + MPI_BSEND_OVERHEAD));
  void* attached = malloc((size_t)room);
  MPI_Buffer_attach(attached, room);

  unsigned seed = 1;
  for (int round = 0; round < rounds; ++round)
    for (int from = 0; from < kLayouts; ++from)
      for (int to = 0; to < kLayouts; ++to, seed += 5) {
        const long bytes =
            common_bytes(&g_layouts[from], &g_layouts[to], about + 997L * ((from * 7 + to * 3 + round) % 40));
        const enum mode mode = (enum mode)((from + to + round) % kModes);
        const int n = mode == kPlain ? 2 : 3;
        if (g_rank == (from + to + round) % 2)
          send(&g_layouts[from], bytes, seed, n, mode);
        else
          receive(&g_layouts[from], &g_layouts[to], bytes, seed, n, mode);
        MPI_Barrier(MPI_COMM_WORLD);
      }
  int mine[2] = {g_messages, g_wrong}, all[2];
  MPI_Buffer_detach(&attached, &(int){0});
  free(attached);
  MPI_Reduce(mine, all, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (g_rank == 0) printf("strided: %d messages, %d wrong\n", all[0], all[1]);
  for (int i = 0; i < kLayouts; ++i) MPI_Type_free(&g_layouts[i].type);
  MPI_Finalize();
  return 0;
}
