/* SPDX-License-Identifier: BSD-3-Clause
 *
 * versions: processes that may be of different builds of the components. Every rank exchanges short and long
 * messages with its neighbours; with the argument "spawn" rank 0 first spawns a child, which finds its
 * components at $CHILD_COMPONENTS, and exchanges them with it; with "any" rank 0 receives from any source.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char** environ;

static const int kSizes[] = {0, 8, 13000, 1 << 20};
enum { kSizesCount = sizeof kSizes / sizeof kSizes[0], kLongest = 1 << 20, kMostVariables = 200 };

static int exchange(MPI_Comm comm, int to, int from) {
  unsigned char* out = malloc(kLongest);
  unsigned char* in = malloc(kLongest);
  int wrong = 0;
  for (int i = 0; i < kSizesCount; ++i) {
    memset(out, 0x40 + i, kLongest);
    memset(in, 0, kLongest);
    MPI_Sendrecv(out, kSizes[i], MPI_BYTE, to, i, in, kSizes[i], MPI_BYTE, from, i, comm, MPI_STATUS_IGNORE);
    for (int k = 0; k < kSizes[i]; ++k) wrong += in[k] != 0x40 + i;
  }
  free(out);
  free(in);
  return wrong;
}

/* A spawned job does not get LD_PRELOAD nor what -x gave the first one: env(1) hands it on. */
static MPI_Comm spawn(char* program) {
  char* arguments[kMostVariables];
  char components[4096];
  int n = 0;
  MPI_Comm child = MPI_COMM_NULL;
  for (char** v = environ; *v != NULL && n < kMostVariables - 3; ++v)
    if (strncmp(*v, "LD_PRELOAD=", 11) == 0 || strncmp(*v, "OMPI_MCA_pml", 12) == 0 ||
        strncmp(*v, "OMPI_MCA_btl", 12) == 0 || strncmp(*v, "SOFTHCA_", 8) == 0)
      arguments[n++] = *v;
  snprintf(components, sizeof components, "OMPI_MCA_mca_base_component_path=%s", getenv("CHILD_COMPONENTS"));
  arguments[n++] = components;
  arguments[n++] = program;
  arguments[n] = NULL;
  MPI_Comm_spawn("/usr/bin/env", arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child, MPI_ERRCODES_IGNORE);
  return child;
}

int main(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  int wrong = 0;
  MPI_Comm other = MPI_COMM_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int any = argc > 1 && strcmp(argv[1], "any") == 0;
  if (argc > 1 && strcmp(argv[1], "spawn") == 0 && rank == 0) {
    other = spawn(argv[0]);
  } else {
    MPI_Comm_get_parent(&other);
  }
  if (other != MPI_COMM_NULL) {
    wrong += exchange(other, 0, 0);
    MPI_Comm_disconnect(&other);
  }
  if (any && rank == 0)
    for (int i = 1; i < size; ++i)
      MPI_Recv(&wrong, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else if (any)
    MPI_Send(&wrong, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  else
    wrong += exchange(MPI_COMM_WORLD, (rank + 1) % size, (rank + size - 1) % size);
  if (wrong == 0) printf("versions: all right\n");
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
