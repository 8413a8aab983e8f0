/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ulfm: rank 1 dies while rank 0 waits for it in CALL; rank 0 says with which class the call ended, and after
 * how long. Then those that are left make a communicator of their own and use it. For mpirun --with-ft ulfm.
 *
 * usage: ulfm recv|recv-any|irecv|irecv-any|mrecv
 * mrecv: of a message that was probed, and that is longer than what came with it.
 */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(OMPI_HAVE_MPI_EXT_FTMPI)

enum { kTag = 7, kLong = 32 << 20, kDeathMs = 300 };

static int call(const char* what, char* buffer, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int source = strstr(what, "any") != NULL ? MPI_ANY_SOURCE : 1;
  if (what[0] == 'r') return MPI_Recv(buffer, kLong, MPI_CHAR, source, kTag, comm, MPI_STATUS_IGNORE);
  if (strcmp(what, "mrecv") == 0) {
    MPI_Message message;
    const int rc = MPI_Mprobe(1, kTag + 1, comm, &message, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) return rc;
    usleep(3 * kDeathMs * 1000);
    return MPI_Mrecv(buffer, kLong, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  }
  MPI_Irecv(buffer, kLong, MPI_CHAR, source, kTag, comm, &request);
  const int rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (request != MPI_REQUEST_NULL) {
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  return rc;
}

static const char* name_of(int rc) {
  int class = MPI_SUCCESS;
  MPI_Error_class(rc, &class);
  if (class == MPI_SUCCESS) return "MPI_SUCCESS";
  if (class == MPIX_ERR_PROC_FAILED) return "MPI_ERR_PROC_FAILED";
  if (class == MPIX_ERR_PROC_FAILED_PENDING) return "MPI_ERR_PROC_FAILED_PENDING";
  if (class == MPIX_ERR_REVOKED) return "MPI_ERR_REVOKED";
  return "another class";
}

int main(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  const char* const what = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char* const buffer = calloc(1, kLong);
  if (buffer == NULL || size < 3 || *what == '\0') return 2;
  /* Everybody has spoken with everybody. */
  for (int i = 0; i < 3; ++i) MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, buffer, 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (strcmp(what, "mrecv") == 0) MPI_Isend(buffer, kLong, MPI_CHAR, 0, kTag + 1, MPI_COMM_WORLD, &request);
    usleep(kDeathMs * 1000);
    kill(getpid(), SIGKILL);
  }
  const double begin = MPI_Wtime();
  if (rank == 0) {
    const int rc = call(what, buffer, MPI_COMM_WORLD);
    printf("%s: %s after %.1f s\n", what, name_of(rc), MPI_Wtime() - begin);
    fflush(stdout);
  }
  MPI_Comm left = MPI_COMM_NULL;
  const int rc = MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
  int alive = 1;
  int together = 0;
  if (rc == MPI_SUCCESS) MPI_Allreduce(&alive, &together, 1, MPI_INT, MPI_SUM, left);
  if (rank == 0) printf("left: %d of %d\n", together, size);
  fflush(stdout);
  MPI_Finalize();
  free(buffer);
  return 0;
}

#else

int main(void) {
  puts("this Open MPI has no ULFM");
  return 77;
}

#endif
