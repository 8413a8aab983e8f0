/* SPDX-License-Identifier: BSD-3-Clause
 *
 * dead_peer: rank 1 kills itself while rank 0 waits for it; ranks 0 and 2 must go on. The argument says how
 * rank 0 waits: "send" (a long message nobody takes), "recv" (a message that never comes), "stranger-recv"
 * and "stranger-send" (the same with a rank it has never talked to). Rank 0 prints the error class and the
 * seconds it took. The second argument names a file that rank 1 makes before it dies: a stranger is spoken to
 * only then, because a rank that is still leaving MPI_Init answers handshakes.
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wait_for_dead(const char* how, char* buffer, int size) {
  if (strstr(how, "send") != NULL) return MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  return MPI_Recv(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "send";
  const char* mark = argc > 2 ? argv[2] : "dead_peer.mark";
  const int stranger = strncmp(how, "stranger", 8) == 0;
  const int size = 1 << 20;
  int rank = 0;
  int token = 7;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char* buffer = calloc(1, size);
  if (!stranger && rank < 2) {
    MPI_Sendrecv_replace(buffer, size, MPI_BYTE, 1 - rank, 1, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 1) {
    close(open(mark, O_CREAT | O_WRONLY, 0600));
    raise(SIGKILL);
  }
  if (rank == 0) {
    while (stranger && access(mark, F_OK) != 0) usleep(1000);
    const double start = MPI_Wtime();
    const int rc = wait_for_dead(how, buffer, size);
    int class = 0;
    MPI_Error_class(rc, &class);
    printf("dead_peer: %s ended with %s after %.1f s\n", how,
           class == MPI_ERR_OTHER ? "MPI_ERR_OTHER" : "another class", MPI_Wtime() - start);
    MPI_Send(&token, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("dead_peer: rank 2 answered %d\n", token);
    fflush(stdout);
  } else {
    MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ++token;
    MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    usleep(300000); /* its last message must be out before it goes without MPI_Finalize */
  }
  /* MPI_Finalize would wait for the dead. */
  _exit(0);
}
