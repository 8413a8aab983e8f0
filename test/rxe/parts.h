/* SPDX-License-Identifier: BSD-3-Clause
 *
 * parts: what the time of an MPI call goes into, on a kernel whose RDMA device is software. A program linked
 * with it stands between the verbs component and libibverbs: its own ibv_open_device and control verbs are
 * found first, and the ibv_post_send of each device it opens is replaced by one that looks at the clock.
 * Only what the calling thread does itself is counted.
 */
#pragma once

/* The control verbs that are watched: those that a round of progress could be tempted to call. */
enum ControlVerb { kModifyQp, kDestroyQp, kCreateAh, kRegisterMemory, kDeregisterMemory, kControlVerbs };

/* Seconds of the calling thread since its start; the difference of two readings is what lies between. */
struct Parts {
  double wall;    /* CLOCK_MONOTONIC */
  double running; /* on a processor: the thread's CPU clock */
  double post; /* in ibv_post_send: rxe builds and sends the packets there, and what they meet may run there,
                  too */
  double post_running;           /* of it, on a processor */
  double control[kControlVerbs]; /* in each of these */
  double calls[kControlVerbs];   /* of them, a count */
  double asleep;                 /* times the thread went to sleep by itself: a count, not seconds */
};
enum { kParts = sizeof(struct Parts) / sizeof(double) };

/* Reads the counters of this thread. */
void parts_read(struct Parts* now);
/* sum += after - before, field by field. */
void parts_add(struct Parts* sum, const struct Parts* before, const struct Parts* after);
/* Seconds of a call that neither ibv_post_send nor another thread on its processor explains. */
double parts_beyond(const struct Parts* parts);
/* "102 ms: posting 80, without a processor 12 (2 of it posting, asleep 0 times), the rest 10" into text. */
void parts_print(char* text, int size, const struct Parts* parts);
