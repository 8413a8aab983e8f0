/* SPDX-License-Identifier: BSD-3-Clause
 *
 * first_look: a rail changes while rank 0 looks at it for the first time. Rank 1 has spoken, so the rail is
 * up; when the PML of rank 0 meets rank 1, this program stands between it and the BTL (the contract is found
 * by its name, and a program's own symbols are found first). It has the epoch closed, tells the PML what it
 * then reads, and holds the answer back while another thread makes progress, reconnects, and tries to say so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/failover_btl.h"

typedef struct mca_btl_base_module_t Btl;
typedef struct mca_btl_base_endpoint_t Ep;

enum { kHello = 1, kAnswer = 2, kEnd = 3, kHoldMs = 500 };

/* A connection needs both sides. While rank 1 makes no progress a rail that has gone down stays down: */
static const struct timespec kRank1Rests = {1, 0};
/* within that time, and long after the first message of rank 1 has arrived, rank 0 meets it. */
static const struct timespec kArrives = {0, 300000000};

static int armed;
static int held;
static int met = -1; /* the state of the rail when rank 1 was met */

static int find(struct dl_phdr_info* object, size_t size, void* path) {
  (void)size;
  if (strstr(object->dlpi_name, "/mca_btl_verbs.so") == NULL) return 0;
  *(const char**)path = object->dlpi_name;
  return 1;
}

static const bfo_failover_btl_t* real(void) {
  static const bfo_failover_btl_t* contract;
  if (contract != NULL) return contract;
  const char* path = NULL;
  dl_iterate_phdr(find, &path);
  void* library = path == NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library != NULL) contract = dlsym(library, "mca_btl_verbs_failover");
  return contract;
}

static int bind_sink(Btl* btl, const bfo_failover_sink_t* sink, void* ctx) {
  return real()->bind(btl, sink, ctx);
}
static int connect_rail(Btl* btl, Ep* ep) {
  return real()->connect(btl, ep);
}
static int fence(Btl* btl, Ep* ep, uint32_t epoch) {
  return real()->fence(btl, ep, epoch);
}
static int peer_down(Btl* btl, Ep* ep, const bfo_rail_name_t* name, int32_t cause) {
  return real()->peer_down(btl, ep, name, cause);
}
static int peer_closed(Btl* btl, Ep* ep, const bfo_rail_name_t* name, uint64_t delivered) {
  return real()->peer_closed(btl, ep, name, delivered);
}
static uint64_t outstanding(Btl* btl) {
  return real()->outstanding(btl);
}
static int send_bytes(Btl* btl, Ep* ep, uint8_t tag, const void* header, size_t header_size,
                      const void* payload, size_t payload_size) {
  return real()->send_bytes(btl, ep, tag, header, header_size, payload, payload_size);
}
static int accounting(Btl* btl, bfo_accounting_t* out) {
  return real()->accounting(btl, out);
}
static int work(Btl* btl, Ep* ep, uint64_t* taken, uint64_t* ended) {
  return real()->work(btl, ep, taken, ended);
}

/* Waits, kHoldMs at most, for a state of the rail. Without a pause: a rail that is down is up again soon. */
static void wait_for(Btl* btl, Ep* ep, bfo_rail_state_t state) {
  const double until = MPI_Wtime() + 1e-3 * kHoldMs;
  bfo_rail_info_t now;
  do {
    real()->rail_info(btl, ep, &now);
  } while (now.state != state && MPI_Wtime() < until);
}

static int rail_info(Btl* btl, Ep* ep, bfo_rail_info_t* out) {
  return real()->rail_info(btl, ep, out);
}

static int attach(Btl* btl, Ep* ep, void* rail, bfo_rail_info_t* out) {
  bfo_rail_info_t now;
  /* rail == NULL: at the end of the job. */
  if (rail == NULL || real()->rail_info(btl, ep, &now) != 0 || !armed || now.state != BFO_RAIL_UP) {
    if (rail != NULL) met = now.state;
    return real()->attach(btl, ep, rail, out);
  }
  armed = 0;
  real()->fence(btl, ep, now.name.epoch);
  wait_for(btl, ep, BFO_RAIL_DOWN);
  const int rc = real()->attach(btl, ep, rail, out);
  held = out->state == BFO_RAIL_DOWN;
  met = out->state;
  wait_for(btl, ep, BFO_RAIL_UP);
  return rc;
}

static uint32_t never_up(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, char* why,
                         size_t size) {
  return real()->never_up(btl, ep, why, size);
}

static int peer_port(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, char* device,
                     size_t size, uint32_t* number) {
  return real()->peer_port(btl, ep, device, size, number);
}

static int leave(Btl* btl, Ep* ep) {
  return real()->leave(btl, ep);
}

static void host_ports(bfo_host_ports_t* out) {
  real()->host_ports(out);
}

static int peer_ports(struct opal_proc_t* proc) {
  return real()->peer_ports(proc);
}

__attribute__((visibility("default")))
const bfo_failover_btl_t mca_btl_verbs_failover = {BFO_FAILOVER_MAGIC,
                                                   BFO_FAILOVER_VERSION,
                                                   sizeof(bfo_failover_btl_t),
                                                   "test",
                                                   bind_sink,
                                                   rail_info,
                                                   attach,
                                                   connect_rail,
                                                   fence,
                                                   peer_down,
                                                   peer_closed,
                                                   send_bytes,
                                                   outstanding,
                                                   accounting,
                                                   work,
                                                   never_up,
                                                   peer_port,
                                                   leave,
                                                   host_ports,
                                                   peer_ports};

/* Makes progress in a blocking receive, which does not ask the PML for anything meanwhile. */
static void* wait_for_end(void* unused) {
  int end = 0;
  MPI_Recv(&end, 1, MPI_INT, 0, kEnd, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  return unused;
}

static const char* missed(void) {
  static char text[100];
  if (armed)
    snprintf(text, sizeof text, "rank 1 was met before, or by a rail in state %d", met);
  else
    snprintf(text, sizeof text, "the rail was in state %d again", met);
  return text;
}

static void look(void) {
  pthread_t other;
  int here = 0;
  int value = 7;
  pthread_create(&other, NULL, wait_for_end, NULL);
  /* While the other thread makes progress. A probe that finds nothing would count as somebody who waits for
   * rank 1: it would be watched, and so be met, within a second. */
  do {
    nanosleep(&kArrives, NULL);
    MPI_Iprobe(MPI_ANY_SOURCE, kHello, MPI_COMM_WORLD, &here, MPI_STATUS_IGNORE);
  } while (!here);
  armed = 1;
  MPI_Send(&value, 1, MPI_INT, 1, kAnswer, MPI_COMM_WORLD);
  MPI_Recv(&value, 1, MPI_INT, 1, kHello, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Recv(&value, 1, MPI_INT, 1, kEnd, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Send(&value, 1, MPI_INT, 0, kEnd, MPI_COMM_SELF);
  pthread_join(other, NULL);
  printf("first_look: %s, got %d\n", held ? "looked at a rail that was down" : missed(), value);
}

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  int value = 35;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    look();
  } else {
    MPI_Send(&value, 1, MPI_INT, 0, kHello, MPI_COMM_WORLD);
    nanosleep(&kRank1Rests, NULL);
    /* From anybody: the PML would ask rank 0 for signs of life, and be met for that. */
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, kAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    value += 35;
    MPI_Send(&value, 1, MPI_INT, 0, kEnd, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
