/* SPDX-License-Identifier: BSD-3-Clause
 *
 * huge.c: messages of more bytes than fit into 31 and into 32 bits. Rank 0 sends, rank 1 receives into its
 * own words and looks at each of them, at the words around the buffer, and at what the status says.
 *
 * Usage: huge GIB [KIND...]; a message is GIB * 2^30 + 24 bytes long. Without KIND all of them are run:
 * - plain: contiguous, elements of 8 bytes
 * - blocks: contiguous, one element of a struct type of blocks of 1 MiB
 * - strided: the receiver takes every block of 24 KiB and leaves 8 bytes after it
 * - both: the sender leaves gaps, too
 * - unexpected: the message is announced before it is asked for, and probed
 * - truncated: the receiver has 8 bytes less room; MPI_ERR_TRUNCATE, and nothing behind them is written
 *
 * Rank 1 prints "huge: KIND, N bytes, M wrong" for each.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTail = 24, kWord = 8, kBlock = 24 << 10, kMargin = 4096 };
static const uint64_t kGuard = 0xa5a5a5a5a5a5a5a5u;

static int g_rank;
static uint64_t g_bytes;

static uint64_t word_at(uint64_t i, unsigned seed) {
  return (i + seed) * 0x9e3779b97f4a7c15u;
}

/* The message in whole words of MPI_INT64_T, by a type that one element of is enough. */
static MPI_Datatype whole(uint64_t bytes) {
  MPI_Datatype mebi, type;
  MPI_Type_contiguous((1 << 20) / kWord, MPI_INT64_T, &mebi);
  int lengths[] = {(int)(bytes >> 20), (int)(bytes % (1 << 20) / kWord)};
  MPI_Aint at[] = {0, (MPI_Aint)(bytes >> 20 << 20)};
  MPI_Datatype types[] = {mebi, MPI_INT64_T};
  MPI_Type_create_struct(2, lengths, at, types, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&mebi);
  return type;
}

/* Blocks of kBlock bytes, 8 bytes apart, and the rest of the message in a last one. */
static MPI_Datatype gaps(uint64_t bytes) {
  MPI_Datatype part, type;
  const int n = (int)(bytes / kBlock);
  MPI_Type_create_hvector(n, kBlock / kWord, kBlock + kWord, MPI_INT64_T, &part);
  int lengths[] = {1, (int)(bytes % kBlock / kWord)};
  MPI_Aint at[] = {0, (MPI_Aint)n * (kBlock + kWord)};
  MPI_Datatype types[] = {part, MPI_INT64_T};
  MPI_Type_create_struct(2, lengths, at, types, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&part);
  return type;
}

/* A buffer with room for the message and a gap after each block, between two margins. */
static uint64_t* g_memory;
static uint64_t g_words;

static uint64_t* buffer(void) {
  return g_memory + kMargin / kWord;
}

static uint64_t with_gaps(uint64_t i, int strided) {
  return strided ? i / (kBlock / kWord) * (kBlock / kWord + 1) + i % (kBlock / kWord) : i;
}

static void fill(unsigned seed, int strided) {
  for (uint64_t i = 0; i < g_bytes / kWord; ++i) buffer()[with_gaps(i, strided)] = word_at(i, seed);
}

static void clear(void) {
  for (uint64_t i = 0; i < g_words; ++i) g_memory[i] = kGuard;
}

/* Words that are not as they should be: `words` of the message, guards elsewhere. */
static uint64_t look(unsigned seed, int strided, uint64_t words) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    uint64_t* const word = &buffer()[with_gaps(i, strided)];
    wrong += *word != word_at(i, seed);
    *word = kGuard;
  }
  for (uint64_t i = 0; i < g_words; ++i) wrong += g_memory[i] != kGuard;
  return wrong;
}

static uint64_t check_status(const MPI_Status* status, MPI_Datatype type, int count, int tag) {
  MPI_Count elements;
  int got;
  MPI_Get_elements_x(status, type, &elements);
  MPI_Get_count(status, type, &got);
  return (uint64_t)elements != g_bytes / kWord || got != count || status->MPI_SOURCE != 0 ||
         status->MPI_TAG != tag;
}

static void said(const char* kind, uint64_t wrong) {
  printf("huge: %s, %llu bytes, %llu wrong\n", kind, (unsigned long long)g_bytes, (unsigned long long)wrong);
  fflush(stdout);
}

/* One message of `from` received as `to`. */
static void exchange(const char* kind, MPI_Datatype from, int sent, int gaps_sent, MPI_Datatype to, int count,
                     int gaps_received, unsigned seed) {
  MPI_Status status;
  if (g_rank == 0) {
    fill(seed, gaps_sent);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(buffer(), sent, from, 1, (int)seed, MPI_COMM_WORLD);
  } else if (g_rank == 1) {
    clear();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(buffer(), count, to, 0, (int)seed, MPI_COMM_WORLD, &status);
    const uint64_t bad = check_status(&status, to, count, (int)seed);
    said(kind, bad + look(seed, gaps_received, g_bytes / kWord));
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static void unexpected(MPI_Datatype type, unsigned seed) {
  MPI_Status status;
  MPI_Request request = MPI_REQUEST_NULL;
  if (g_rank == 0) {
    fill(seed, 0);
    MPI_Isend(buffer(), 1, type, 1, (int)seed, MPI_COMM_WORLD, &request);
  } else if (g_rank == 1) {
    clear();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) {
    MPI_Message message;
    MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    uint64_t bad = check_status(&status, type, 1, (int)seed);
    MPI_Mrecv(buffer(), 1, type, &message, &status);
    bad += check_status(&status, type, 1, (int)seed);
    said("unexpected", bad + look(seed, 0, g_bytes / kWord));
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void truncated(MPI_Datatype type, unsigned seed) {
  if (g_rank == 0) {
    fill(seed, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(buffer(), 1, type, 1, (int)seed, MPI_COMM_WORLD);
    return;
  }
  MPI_Datatype shorter = whole(g_bytes - kWord);
  if (g_rank == 1) clear();
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) {
    int class;
    const int rc = MPI_Recv(buffer(), 1, shorter, 0, (int)seed, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(rc, &class);
    uint64_t bad = class != MPI_ERR_TRUNCATE;
    /* What fits may be there or not; what does not fit must not. */
    for (uint64_t i = 0; i < g_bytes / kWord - 1; ++i) buffer()[i] = kGuard;
    for (uint64_t i = 0; i < g_words; ++i) bad += g_memory[i] != kGuard;
    said("truncated", bad);
  }
  MPI_Type_free(&shorter);
}

static int wanted(int argc, char** argv, const char* kind) {
  if (argc <= 2) return 1;
  for (int i = 2; i < argc; ++i)
    if (strcmp(argv[i], kind) == 0) return 1;
  return 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  g_bytes = ((uint64_t)(argc > 1 ? atoi(argv[1]) : 2) << 30) + kTail;
  g_words = (g_bytes + g_bytes / kBlock * kWord + 2 * kMargin) / kWord;
  if (g_rank < 2 && (g_memory = malloc(g_words * kWord)) == NULL) {
    printf("huge: no memory for %llu bytes\n", (unsigned long long)(g_words * kWord));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Datatype dense = whole(g_bytes), loose = gaps(g_bytes);
  if (wanted(argc, argv, "plain") && g_bytes / kWord <= INT32_MAX)
    exchange("plain", MPI_INT64_T, (int)(g_bytes / kWord), 0, MPI_INT64_T, (int)(g_bytes / kWord), 0, 1);
  if (wanted(argc, argv, "blocks")) exchange("blocks", dense, 1, 0, dense, 1, 0, 2);
  if (wanted(argc, argv, "strided")) exchange("strided", dense, 1, 0, loose, 1, 1, 3);
  if (wanted(argc, argv, "both")) exchange("both", loose, 1, 1, loose, 1, 1, 4);
  if (wanted(argc, argv, "unexpected")) unexpected(dense, 5);
  if (wanted(argc, argv, "truncated")) truncated(dense, 6);
  MPI_Type_free(&dense);
  MPI_Type_free(&loose);
  free(g_memory);
  MPI_Finalize();
  return 0;
}
