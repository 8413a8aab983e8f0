/* SPDX-License-Identifier: BSD-3-Clause
 *
 * start_active.c: starting a request that is active, or whose message finds no buffer, is an error of MPI:
 * the error handler of the communicator hears of it. libmpi refuses an active request itself, for
 * MPI_COMM_WORLD: in MPI_Startall, and from Open MPI 5.0 on in MPI_Start. Two processes. Prints
 * "start_active: ok".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int g_calls, g_class;

static void heard(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  ++g_calls;
  MPI_Error_class(*code, &g_class);
}

static void expect(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "start_active: %s (%d calls, class %d)\n", what, g_calls, g_class);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int class_of(int rc) {
  int class = MPI_SUCCESS;
  MPI_Error_class(rc, &class);
  return class;
}

/* What the call returned and what the handler heard: both of class `class`, heard once. */
static void expect_error(int rc, int class, const char* what) {
  expect(rc >= 0 && (rc == MPI_SUCCESS || class_of(rc) == class) && g_calls == 1 && g_class == class, what);
  g_calls = 0;
}

int main(int argc, char** argv) {
  enum { kBytes = 1 << 20 };
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* libmpi's own checks call it */
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(heard, &handler);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, handler);
  char* data = calloc(2, kBytes);
  MPI_Request rq[2], buffered;
  MPI_Recv_init(data, kBytes, MPI_BYTE, 1 - rank, 1, comm, &rq[0]);
  MPI_Ssend_init(data + kBytes, kBytes, MPI_BYTE, 1 - rank, 1, comm, &rq[1]);
  MPI_Bsend_init(data, kBytes, MPI_BYTE, 1 - rank, 2, comm, &buffered);

  MPI_Start(&rq[0]);
  int rc = MPI_Start(&rq[0]);
  expect(rc != MPI_SUCCESS, "MPI_Start of an active receive succeeds");
  if (OMPI_MAJOR_VERSION >= 5)
    expect(class_of(rc) == MPI_ERR_REQUEST && g_calls == 0, "MPI_Start of an active receive is not refused");
  else
    expect_error(rc, MPI_ERR_REQUEST, "MPI_Start of an active receive");
  MPI_Barrier(MPI_COMM_WORLD); /* a send that comes earlier would complete the receive */
  rc = MPI_Startall(2, rq);    /* the send starts, the receive is active */
  expect(class_of(rc) == MPI_ERR_REQUEST && g_calls == 0,
         "MPI_Startall with an active receive is not refused");
  MPI_Start(&rq[1]);
  MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
  expect(g_calls == 0, "the messages did not arrive");

  rc = MPI_Start(&buffered); /* no buffer is attached */
  expect(rc != MPI_SUCCESS, "MPI_Start without a buffer succeeds");
  expect_error(rc, MPI_ERR_BUFFER, "MPI_Start without a buffer");
  MPI_Startall(2, rq);
  MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
  expect(g_calls == 0, "the messages did not arrive again");

  MPI_Request_free(&rq[0]);
  MPI_Request_free(&rq[1]);
  MPI_Request_free(&buffered);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&comm);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("start_active: ok\n");
  MPI_Finalize();
  free(data);
  return 0;
}
