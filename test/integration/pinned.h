/* SPDX-License-Identifier: BSD-3-Clause */
/* pinned.h: how many bytes this process has registered with the ports of the verbs BTL. */
#pragma once

#include <mpi.h>
#include <stdio.h>

/* The performance variable btl_verbs_pinned, in bytes. Without it the job is aborted. Call it after
   MPI_T_init_thread, from one thread. */
static double pinned(void) {
  static MPI_T_pvar_session session;
  static MPI_T_pvar_handle handle;
  unsigned long long value = 0;
  int index;
  int count;
  if (handle == NULL) {
    MPI_T_pvar_session_create(&session);
    if (MPI_T_pvar_get_index("btl_verbs_pinned", MPI_T_PVAR_CLASS_SIZE, &index) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS || count != 1) {
      fprintf(stderr, "there is no performance variable btl_verbs_pinned: is the verbs BTL in use?\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  if (MPI_T_pvar_read(session, handle, &value) != MPI_SUCCESS) {
    fprintf(stderr, "btl_verbs_pinned cannot be read\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return (double)value;
}
