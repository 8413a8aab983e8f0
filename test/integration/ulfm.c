/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ulfm: rank 1 dies while rank 0 waits for it in CALL, or revokes the communicator; rank 0 says with which
 * class the call ended, and after how long; rank 2 says when the runtime told it of the death. Then those
 * that are left make a communicator of their own and use it. For mpirun --with-ft ulfm.
 *
 * usage: ulfm CALL, one of
 *   recv recv-any irecv irecv-any probe probe-any mprobe
 *   send ssend isend send-init   of a long message that rank 1 does not receive
 *   bsend                        the same, and the buffer is given back afterwards
 *   mrecv                        of a message that was probed, and that is longer than what came with it
 *   recv-middle send-middle      rank 1 dies while a long message is under way, posted with two others
 *   allreduce                    of long vectors, without rank 1
 *   inter-bcast                  of rank 1 to all others, which an intercommunicator joins
 *   revoke-recv revoke-irecv     nobody dies, and rank 1 revokes the communicator
 *   revoke-send revoke-isend
 * With a second argument, seconds, rank 1 waits so long before it dies: for faults to happen before. They may
 * begin with the marks, messages of 5000 bytes between ranks 0 and 1 that come before the call. A third one:
 *   threads     rank 0 is in that call three times at once, each time with a communicator of its own
 *   late        the call begins a second after the marks
 *   cut         likewise, and rank 1 does not die by itself: it waits for a message of rank 0
 */
#include <mpi.h>
#include <mpi-ext.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(OMPI_HAVE_MPI_EXT_FTMPI)

enum { kTag = 7, kLong = 32 << 20, kDeathMs = 300, kMiddle = 3, kMark = 5000, kThreads = 3, kFinalizeS = 5 };

static _Thread_local char* buffer;
static MPI_Comm between = MPI_COMM_NULL; /* rank 1 and all others */

static int is(const char* what, const char* name) {
  return strcmp(what, name) == 0;
}

static int revokes(const char* what) {
  return strncmp(what, "revoke", 6) == 0;
}

/* Of what rank 0 waits for: who dies or revokes is rank 1. */
static int other_end(const char* what) {
  return revokes(what) ? 2 : 1;
}

static int wait_for(MPI_Request* request) {
  const int rc = MPI_Wait(request, MPI_STATUS_IGNORE);
  if (*request == MPI_REQUEST_NULL) return rc;
  /* A receive from anybody goes on until it is cancelled; a persistent request stays. */
  int class = MPI_SUCCESS;
  MPI_Error_class(rc, &class);
  if (class == MPIX_ERR_PROC_FAILED_PENDING) {
    MPI_Cancel(request);
    return MPI_Wait(request, MPI_STATUS_IGNORE) == MPI_SUCCESS && *request == MPI_REQUEST_NULL
               ? rc
               : MPI_ERR_OTHER;
  }
  MPI_Request_free(request);
  return rc;
}

static int receive(const char* what, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message;
  const int source = strstr(what, "any") != NULL ? MPI_ANY_SOURCE : other_end(what);
  if (strncmp(what, "probe", 5) == 0) return MPI_Probe(source, kTag, comm, MPI_STATUS_IGNORE);
  if (is(what, "mprobe")) return MPI_Mprobe(source, kTag, comm, &message, MPI_STATUS_IGNORE);
  if (strncmp(what, "recv", 4) == 0 || is(what, "revoke-recv"))
    return MPI_Recv(buffer, kLong, MPI_CHAR, source, kTag, comm, MPI_STATUS_IGNORE);
  if (is(what, "mrecv")) {
    const int rc = MPI_Mprobe(1, kTag + 1, comm, &message, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) return rc;
    usleep(3 * kDeathMs * 1000);
    return MPI_Mrecv(buffer, kLong, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  }
  MPI_Irecv(buffer, kLong, MPI_CHAR, source, kTag, comm, &request);
  return wait_for(&request);
}

static int send(const char* what, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int to = other_end(what);
  if (is(what, "send") || is(what, "revoke-send")) return MPI_Send(buffer, kLong, MPI_CHAR, to, kTag, comm);
  if (is(what, "ssend")) return MPI_Ssend(buffer, 1, MPI_CHAR, 1, kTag, comm);
  if (is(what, "bsend")) {
    const int length = kLong / 16;
    int size = length + MPI_BSEND_OVERHEAD;
    MPI_Buffer_attach(malloc((size_t)size), size);
    MPI_Bsend(buffer, length, MPI_CHAR, 1, kTag, comm);
    /* It must come back, though nobody waits for the message itself. */
    char* given = NULL;
    MPI_Buffer_detach(&given, &size);
    free(given);
    return MPI_Send(buffer, 1, MPI_CHAR, 1, kTag, comm);
  }
  if (is(what, "isend") || is(what, "revoke-isend")) {
    MPI_Isend(buffer, kLong, MPI_CHAR, to, kTag, comm, &request);
  } else {
    MPI_Send_init(buffer, kLong, MPI_CHAR, 1, kTag, comm, &request);
    MPI_Start(&request);
  }
  return wait_for(&request);
}

static void die(void) {
  kill(getpid(), SIGKILL);
}

/* The worst of several messages in one direction. Who `dies` does so when the first and shortest is over, and
 * knows nothing of the last. */
static int middle(int sends, int other, int dies, MPI_Comm comm) {
  MPI_Request requests[kMiddle];
  for (int i = 0; i < kMiddle - dies; ++i) {
    const int length = i == 0 ? kLong / 16 : kLong;
    if (sends)
      MPI_Isend(buffer, length, MPI_CHAR, other, kTag + i, comm, &requests[i]);
    else
      MPI_Irecv(buffer, length, MPI_CHAR, other, kTag + i, comm, &requests[i]);
  }
  int worst = MPI_SUCCESS;
  for (int i = 0; i < kMiddle; ++i) {
    const int rc = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    if (dies) die();
    if (rc != MPI_SUCCESS) worst = rc;
  }
  return worst;
}

static int call(const char* what, MPI_Comm comm) {
  if (is(what, "inter-bcast")) return MPI_Bcast(buffer, 1, MPI_INT, 0, between);
  if (is(what, "allreduce")) return MPI_Allreduce(MPI_IN_PLACE, buffer, kLong / 4, MPI_INT, MPI_SUM, comm);
  if (strstr(what, "middle") != NULL) return middle(is(what, "send-middle"), 1, 0, comm);
  return strstr(what, "send") != NULL ? send(what, comm) : receive(what, comm);
}

typedef struct {
  pthread_t thread;
  const char* what;
  MPI_Comm comm;
  int rc;
} Caller;

static void* call_in_thread(void* argument) {
  Caller* const caller = argument;
  buffer = calloc(1, kLong);
  caller->rc = call(caller->what, caller->comm);
  free(buffer);
  return NULL;
}

static int class_of(int rc) {
  int class = MPI_SUCCESS;
  MPI_Error_class(rc, &class);
  return class;
}

/* What all have got; where they differ, that of one which differs from the first. */
static int call_together(const char* what, const MPI_Comm* comms) {
  Caller callers[kThreads];
  for (int k = 0; k < kThreads; ++k) {
    callers[k] = (Caller){.what = what, .comm = comms[k]};
    if (pthread_create(&callers[k].thread, NULL, call_in_thread, &callers[k]) != 0) exit(2);
  }
  int rc = MPI_SUCCESS;
  for (int k = 0; k < kThreads; ++k) {
    pthread_join(callers[k].thread, NULL);
    if (k == 0 || class_of(callers[k].rc) != class_of(callers[0].rc)) rc = callers[k].rc;
  }
  return rc;
}

static void exchange_marks(int other) {
  char mark[kMark] = {0}, got[kMark];
  MPI_Sendrecv(mark, kMark, MPI_CHAR, other, kTag, got, kMark, MPI_CHAR, other, kTag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

/* What rank 1 does meanwhile, and its death. */
static void end(const char* what, unsigned seconds, int by_itself) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (!by_itself) MPI_Recv(buffer, 1, MPI_CHAR, 0, kTag + 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (is(what, "mrecv")) MPI_Isend(buffer, kLong, MPI_CHAR, 0, kTag + 1, MPI_COMM_WORLD, &request);
  if (strstr(what, "middle") != NULL) middle(is(what, "recv-middle"), 0, 1, MPI_COMM_WORLD);
  usleep(kDeathMs * 1000);
  sleep(seconds);
  if (!revokes(what)) die();
  MPIX_Comm_revoke(MPI_COMM_WORLD);
}

/* Seconds of a clock that all processes of a host share. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_for_word(void) {
  int failed = 0;
  while (failed == 0) {
    int flag = 0;
    MPI_Group group;
    MPI_Iprobe(0, kTag, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &group);
    MPI_Group_size(group, &failed);
    MPI_Group_free(&group);
  }
  printf("told at %.2f\n", now());
  fflush(stdout);
}

static const char* name_of(int rc) {
  const int class = class_of(rc);
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
  const unsigned seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
  const char* const how = argc > 3 ? argv[3] : "";
  const int threads = is(how, "threads");
  const int cut = is(how, "cut");
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &(int){0});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  buffer = calloc(1, kLong);
  if (buffer == NULL || size < 3 || *what == '\0') return 2;
  /* Everybody has spoken with everybody. */
  for (int i = 0; i < 3; ++i) MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, buffer, 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm comms[kThreads];
  for (int k = 0; threads && k < kThreads; ++k) MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
  if (is(what, "inter-bcast")) {
    MPI_Comm own;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, rank == 1 ? 0 : 1, kTag, &between);
    MPI_Comm_set_errhandler(between, MPI_ERRORS_RETURN);
  }
  if (rank < 2) exchange_marks(1 - rank);
  if (rank == 1) end(what, seconds, !cut);
  if (cut || is(how, "late")) sleep(1);
  const double begin = now();
  if (rank == 0 || (rank > 1 && (is(what, "allreduce") || is(what, "inter-bcast")))) {
    const int rc = threads ? call_together(what, comms) : call(what, MPI_COMM_WORLD);
    if (rank == 0) printf("%s: %s after %.2f s, at %.2f\n", what, name_of(rc), now() - begin, now());
    fflush(stdout);
  } else if (rank > 1 && !revokes(what)) {
    wait_for_word();
  }
  MPI_Comm left = MPI_COMM_NULL;
  const int rc = MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
  int alive = 1;
  int together = 0;
  int agreed = 1;
  if (rc == MPI_SUCCESS && MPIX_Comm_agree(left, &agreed) == MPI_SUCCESS && agreed == 1)
    MPI_Allreduce(&alive, &together, 1, MPI_INT, MPI_SUM, left);
  if (rank == 0) printf("left: %d of %d\n", together, size);
  fflush(stdout);
  /* After a death the launcher does not always answer the fence of MPI_Finalize, whatever the PML. */
  alarm(kFinalizeS);
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
