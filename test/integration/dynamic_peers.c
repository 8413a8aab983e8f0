/* SPDX-License-Identifier: BSD-3-Clause
 *
 * dynamic_peers: processes that did not start together. Two parents spawn job A and later job B, of two
 * children each, whose ranks and contexts repeat; all speak with all they are connected with, over the
 * intercommunicator and the merged one; A and B meet by MPI_Comm_accept and MPI_Comm_connect; A leaves while
 * the others go on. Short messages, some synchronous, and long ones, contiguous and strided, both ways at
 * once; every byte is looked at, the gaps of strided buffers too.
 *
 * A spawned job gets neither the variables that mpirun gave its first one with -x nor LD_PRELOAD: env(1)
 * hands them on. Each process is a node of its own on the software HCA: 0 and 1, A is 2 and 3, B is 4 and 5.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kGroup = 2, kMaxPeers = 3, kKinds = 8, kBlock = 64, kStride = 96, kPortTag = 1, kReportTag = 2 };
enum { kFirstTag = 100, kReport = 191 };

extern char** environ;

/* What goes to each peer, and comes from it. */
static const struct {
  int size;
  int strided;
  int synchronous;
} kMessages[kKinds] = {{8, 0, 0},     {64, 0, 1},     {4096, 0, 0},   {8192, 1, 1},
                       {40000, 0, 0}, {262144, 1, 0}, {300001, 0, 1}, {1 << 20, 0, 0}};

static int bad_bytes;
static long long good_bytes;

typedef struct {
  unsigned char* bytes;
  size_t extent;
  int kind;
  unsigned seed;
} Buffer;

static unsigned char wanted(const Buffer* b, size_t at) {
  size_t i = at;
  if (kMessages[b->kind].strided) {
    if (at % kStride >= kBlock) return 0xee;
    i = at / kStride * kBlock + at % kStride;
  }
  return (unsigned char)(b->seed + i * 31 + (i >> 8) * 13);
}

/* `seed`: of what it will hold; a sender's holds it already. */
static Buffer make_buffer(int kind, unsigned seed, int sender) {
  const size_t size = kMessages[kind].size;
  Buffer b = {NULL, kMessages[kind].strided ? size / kBlock * kStride : size, kind, seed};
  b.bytes = malloc(b.extent);
  memset(b.bytes, 0xee, b.extent);
  for (size_t at = 0; sender && at < b.extent; ++at) b.bytes[at] = wanted(&b, at);
  return b;
}

static void check_and_free(Buffer* b, const char* where) {
  int bad = 0;
  for (size_t at = 0; at < b->extent; ++at) bad += b->bytes[at] != wanted(b, at);
  if (bad != 0) printf("dynamic_peers: %s: %d bytes of %d WRONG\n", where, bad, kMessages[b->kind].size);
  bad_bytes += bad;
  good_bytes += bad == 0 ? kMessages[b->kind].size : 0;
  free(b->bytes);
}

static MPI_Datatype type_of(int kind, int* count) {
  MPI_Datatype type = MPI_BYTE;
  *count = kMessages[kind].size;
  if (!kMessages[kind].strided) return type;
  MPI_Type_vector(kMessages[kind].size / kBlock, kBlock, kStride, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  *count = 1;
  return type;
}

/* Everything to and from the `n` ranks `peers` of `comm` at once. `me` and `ids` are the nodes of this
   process and of them. */
static void exchange(MPI_Comm comm, int n, const int* peers, int me, const int* ids, const char* where) {
  MPI_Request requests[2 * kMaxPeers * kKinds];
  Buffer in[kMaxPeers * kKinds];
  Buffer out[kMaxPeers * kKinds];
  MPI_Datatype types[kKinds];
  int counts[kKinds];
  int posted = 0;
  for (int kind = 0; kind < kKinds; ++kind) types[kind] = type_of(kind, &counts[kind]);
  for (int i = 0; i < n * kKinds; ++i) {
    const int kind = i % kKinds;
    in[i] = make_buffer(kind, ids[i / kKinds] * 67 + me * 11 + kind, 0);
    out[i] = make_buffer(kind, me * 67 + ids[i / kKinds] * 11 + kind, 1);
    MPI_Irecv(in[i].bytes, counts[kind], types[kind], peers[i / kKinds], kFirstTag + kind, comm,
              &requests[posted++]);
  }
  for (int i = 0; i < n * kKinds; ++i) {
    const int kind = i % kKinds;
    (kMessages[kind].synchronous ? MPI_Issend : MPI_Isend)(out[i].bytes, counts[kind], types[kind],
                                                           peers[i / kKinds], kFirstTag + kind, comm,
                                                           &requests[posted++]);
  }
  MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < n * kKinds; ++i) check_and_free(&in[i], where);
  for (int i = 0; i < n * kKinds; ++i) free(out[i].bytes);
  for (int kind = 0; kind < kKinds; ++kind)
    if (types[kind] != MPI_BYTE) MPI_Type_free(&types[kind]);
}

/* With the group at the other side of `inter`, whose nodes begin at `first`. */
static void exchange_across(MPI_Comm inter, int me, int first, const char* where) {
  const int peers[kGroup] = {0, 1};
  const int ids[kGroup] = {first, first + 1};
  exchange(inter, kGroup, peers, me, ids, where);
}

/* Parents (`low`) and children in one communicator. */
static void exchange_merged(MPI_Comm inter, int me, int first_child, int high, const char* where) {
  MPI_Comm all = MPI_COMM_NULL;
  int peers[kMaxPeers];
  int ids[kMaxPeers];
  int n = 0;
  int rank = 0;
  MPI_Intercomm_merge(inter, high, &all);
  MPI_Comm_rank(all, &rank);
  for (int r = 0; r < 2 * kGroup; ++r) {
    if (r == rank) continue;
    peers[n] = r;
    ids[n++] = r < kGroup ? r : first_child + r - kGroup;
  }
  exchange(all, n, peers, me, ids, where);
  MPI_Comm_free(&all); /* Open MPI 4.1 hangs in MPI_Comm_disconnect of an intracommunicator, with any PML */
}

static int handed_on(const char* variable) {
  return strncmp(variable, "LD_PRELOAD=", 11) == 0 || strncmp(variable, "OMPI_MCA_pml", 12) == 0 ||
         strncmp(variable, "OMPI_MCA_btl", 12) == 0 ||
         strncmp(variable, "OMPI_MCA_mca_base_component_", 28) == 0 ||
         (strncmp(variable, "SOFTHCA_", 8) == 0 && strncmp(variable, "SOFTHCA_NODE=", 13) != 0);
}

static MPI_Comm spawn(char* program, int first) {
  enum { kRoom = 200 };
  static char nodes[kGroup][32];
  static char number[16];
  char* commands[kGroup];
  char** arguments[kGroup];
  int ones[kGroup];
  MPI_Info infos[kGroup];
  MPI_Comm inter = MPI_COMM_NULL;
  snprintf(number, sizeof number, "%d", first);
  for (int i = 0; i < kGroup; ++i) {
    int n = 0;
    commands[i] = "/usr/bin/env";
    ones[i] = 1;
    infos[i] = MPI_INFO_NULL;
    arguments[i] = calloc(kRoom, sizeof(char*));
    for (char** v = environ; *v != NULL && n < kRoom - 4; ++v)
      if (handed_on(*v)) arguments[i][n++] = *v;
    snprintf(nodes[i], sizeof nodes[i], "SOFTHCA_NODE=%d", first + i);
    arguments[i][n++] = nodes[i];
    arguments[i][n++] = program;
    arguments[i][n] = number;
  }
  MPI_Comm_spawn_multiple(kGroup, commands, arguments, ones, infos, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE);
  for (int i = 0; i < kGroup; ++i) free(arguments[i]);
  return inter;
}

/* Child `rank` says to parent `rank` what it has seen, and both part. Nothing else has this size. */
static void part(MPI_Comm inter, int rank, int child) {
  int report[kReport] = {bad_bytes};
  if (child) {
    MPI_Send(report, kReport, MPI_INT, rank, kReportTag, inter);
  } else {
    MPI_Recv(report, kReport, MPI_INT, rank, kReportTag, inter, MPI_STATUS_IGNORE);
    bad_bytes += report[0];
  }
  MPI_Comm_disconnect(&inter);
}

/* A opens a port, B gets its name by way of parent 0. */
static void parents(char* program, int rank) {
  char port[MPI_MAX_PORT_NAME];
  MPI_Comm a = spawn(program, 2);
  exchange_across(a, rank, 2, "with A");
  exchange_merged(a, rank, 2, 0, "with A, merged");
  MPI_Comm b = spawn(program, 4);
  exchange_across(b, rank, 4, "with B");
  exchange_across(a, rank, 2, "with A while B lives");
  if (rank == 0) {
    MPI_Recv(port, sizeof port, MPI_CHAR, 0, kPortTag, a, MPI_STATUS_IGNORE);
    MPI_Send(port, sizeof port, MPI_CHAR, 0, kPortTag, b);
  }
  part(a, rank, 0);
  exchange_merged(b, rank, 4, 0, "with B, merged");
  exchange_across(b, rank, 4, "with B, later");
  part(b, rank, 0);
  const int peer = 1 - rank;
  exchange(MPI_COMM_WORLD, 1, &peer, rank, &peer, "among the parents");
}

static void child_of_a(MPI_Comm parent, int rank) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm b = MPI_COMM_NULL;
  exchange_across(parent, 2 + rank, 0, "A with its parents");
  exchange_merged(parent, 2 + rank, 2, 1, "A with its parents, merged");
  exchange_across(parent, 2 + rank, 0, "A with its parents while B lives");
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Send(port, sizeof port, MPI_CHAR, 0, kPortTag, parent);
  }
  MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &b);
  if (rank == 0) MPI_Close_port(port);
  exchange_across(b, 2 + rank, 4, "A with B");
  MPI_Comm_disconnect(&b);
  part(parent, rank, 1);
}

static void child_of_b(MPI_Comm parent, int rank) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm a = MPI_COMM_NULL;
  exchange_across(parent, 4 + rank, 0, "B with its parents");
  if (rank == 0) MPI_Recv(port, sizeof port, MPI_CHAR, 0, kPortTag, parent, MPI_STATUS_IGNORE);
  MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &a);
  exchange_across(a, 4 + rank, 2, "B with A");
  MPI_Comm_disconnect(&a);
  exchange_merged(parent, 4 + rank, 4, 1, "B with its parents, merged");
  exchange_across(parent, 4 + rank, 0, "B with its parents, later");
  part(parent, rank, 1);
}

int main(int argc, char** argv) {
  MPI_Comm parent = MPI_COMM_NULL;
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) {
    parents(argv[0], rank);
    printf("dynamic_peers: parent %d: %lld bytes right, %d wrong\n", rank, good_bytes, bad_bytes);
  } else if (strcmp(argv[1], "2") == 0) {
    child_of_a(parent, rank);
  } else {
    child_of_b(parent, rank);
  }
  fflush(stdout);
  MPI_Finalize();
  return bad_bytes != 0;
}
