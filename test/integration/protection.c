/* SPDX-License-Identifier: BSD-3-Clause
 *
 * protection: all ranks exchange short and long messages in a ring, check them, and print how many rails the
 * performance variables show and how many bytes went over them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBytes = 1 << 20, kRounds = 6 };

static unsigned read_variable(MPI_T_pvar_session session, const char* name) {
  MPI_T_pvar_handle handle;
  unsigned value = 0;
  int index = 0;
  int count = 0;
  if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_LEVEL, &index) != MPI_SUCCESS) return 99;
  if (MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS) return 98;
  if (MPI_T_pvar_read(session, handle, &value) != MPI_SUCCESS) value = 97;
  MPI_T_pvar_handle_free(session, &handle);
  return value;
}

static unsigned char value(int from, int round, int i) {
  return (unsigned char)(from * 31 + round * 7 + i);
}

int main(int argc, char** argv) {
  MPI_T_pvar_session session;
  unsigned char* out = malloc(kBytes);
  unsigned char* in = malloc(kBytes);
  int rank = 0;
  int size = 0;
  int provided = 0;
  long wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!out || !in) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int round = 0; round < kRounds; ++round) {
    const int bytes = round % 2 ? kBytes : 100;
    for (int i = 0; i < bytes; ++i) out[i] = value(rank, round, i);
    MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % size, round, in, bytes, MPI_BYTE,
                 (rank + size - 1) % size, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; ++i) wrong += in[i] != value((rank + size - 1) % size, round, i);
  }
  MPI_T_pvar_session_create(&session);
  const unsigned up = read_variable(session, "pml_bfo_rails_up");
  const unsigned expected = read_variable(session, "pml_bfo_rails_expected");
  printf("protection: rank %d: %u of %u rails, %ld bytes wrong\n", rank, up, expected, wrong);
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
  MPI_Finalize();
  free(out);
  free(in);
  return wrong != 0;
}
