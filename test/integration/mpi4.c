/* SPDX-License-Identifier: BSD-3-Clause
 *
 * mpi4: what MPI 4 added to communication, with two processes.
 *
 * usage: mpi4 WHAT, one of
 *   partitioned  a message in 64 parts that are made ready in another order, three times over one request
 *   sessions     a communicator of a group of the process set mpi://WORLD, without MPI_COMM_WORLD: a message
 * in it is right, or MPI_Comm_create_from_group returns MPI_ERR_UNSUPPORTED_OPERATION big          MPI_Send_c
 * of 2^31 + 4096 bytes, more than an int counts Rank 0 prints "WHAT: right", or "WHAT: refused" with the
 * class, or what is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if OMPI_MAJOR_VERSION >= 5

static int rank;

static int say(const char* what, const char* result) {
  if (rank == 0) printf("%s: %s\n", what, result);
  fflush(stdout);
  return strcmp(result, "right") == 0 || strncmp(result, "refused", 7) == 0 ? 0 : 1;
}

enum { kParts = 64, kPart = 40000, kRounds = 3, kTag = 5 };

static unsigned char byte_at(size_t i, int round) {
  return (unsigned char)(i * 2654435761u >> 13) ^ (unsigned char)round;
}

static int partitioned(void) {
  unsigned char* const buffer = malloc((size_t)kParts * kPart);
  MPI_Request request;
  int wrong = 0;
  if (rank == 0)
    MPI_Psend_init(buffer, kParts, kPart, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(buffer, kParts, kPart, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 0; round < kRounds; ++round) {
    if (rank == 1) memset(buffer, 0xee, (size_t)kParts * kPart);
    MPI_Start(&request);
    for (int i = 0; rank == 0 && i < kParts; ++i) {
      const int part = (i * 37 + round) % kParts;
      for (size_t k = (size_t)part * kPart; k < (size_t)(part + 1) * kPart; ++k)
        buffer[k] = byte_at(k, round);
      MPI_Pready(part, request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (size_t k = 0; rank == 1 && k < (size_t)kParts * kPart; ++k) wrong += buffer[k] != byte_at(k, round);
  }
  MPI_Request_free(&request);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  free(buffer);
  return say("partitioned", wrong == 0 ? "right" : "wrong bytes");
}

static int sessions(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm = MPI_COMM_NULL;
  char text[MPI_MAX_ERROR_STRING + 16] = "right";
  if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS)
    return say("sessions", "no session");
  if (MPI_Group_from_session_pset(session, "mpi://WORLD", &group) != MPI_SUCCESS)
    return say("sessions", "no group");
  MPI_Group_rank(group, &rank);
  const int rc = MPI_Comm_create_from_group(group, "mpi4", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
  if (rc != MPI_SUCCESS) {
    int class = MPI_SUCCESS;
    int length = 0;
    MPI_Error_class(rc, &class);
    memcpy(text, class == MPI_ERR_UNSUPPORTED_OPERATION ? "refused: " : "failed:  ", 10);
    MPI_Error_string(rc, text + 9, &length);
  } else {
    int other = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, kTag, &other, 1, MPI_INT, 1 - rank, kTag, comm,
                 MPI_STATUS_IGNORE);
    if (other != 1 - rank) strcpy(text, "wrong message");
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&group);
  const int result = say("sessions", text);
  MPI_Session_finalize(&session);
  return result;
}

#if OMPI_MAJOR_VERSION >= 6
static int big(void) {
  const MPI_Count size = ((MPI_Count)1 << 31) + 4096;
  unsigned char* const buffer = malloc((size_t)size);
  MPI_Count got = 0;
  int wrong = 0;
  if (buffer == NULL) return say("big", "no memory");
  for (MPI_Count i = 0; rank == 0 && i < size; i += 1024) buffer[i] = byte_at((size_t)i, 1);
  if (rank == 0) {
    MPI_Send_c(buffer, size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
  } else {
    MPI_Status status;
    MPI_Recv_c(buffer, size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &status);
    MPI_Get_count_c(&status, MPI_BYTE, &got);
    wrong = got != size;
    for (MPI_Count i = 0; i < size; i += 1024) wrong += buffer[i] != byte_at((size_t)i, 1);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  free(buffer);
  return say("big", wrong == 0 ? "right" : "wrong bytes");
}
#else
static int big(void) {
  return say("big", "refused: this Open MPI has no MPI_Send_c");
}
#endif

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "sessions") == 0) return sessions();
  int size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int rc = 2;
  if (size == 2 && strcmp(what, "partitioned") == 0) rc = partitioned();
  if (size == 2 && strcmp(what, "big") == 0) rc = big();
  MPI_Finalize();
  return rc;
}

#else

int main(void) {
  puts("this Open MPI has no MPI 4");
  return 77;
}

#endif
