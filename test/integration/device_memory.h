/* SPDX-License-Identifier: BSD-3-Clause
 *
 * device_memory.h: the buffers of the program device: what MPI gets, on a device or not, and what the program
 * thinks is in it. A touch of device memory by the processor ends the process with a line.
 */
#pragma once

#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/integration/softaccel/softaccel.h"

enum { kSpan = 16 << 20 };

static struct softaccel accel;

struct buffer {
  char* memory;
  char* image;
};
static struct buffer host[2], device[2]; /* of the message that is sent, and of that which is received */

static void touched(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  char line[80];
  const int n = snprintf(line, sizeof(line), "touched by the processor: %p\n", info->si_addr);
  if (write(STDOUT_FILENO, line, (size_t)n) != n) _exit(4);
  _exit(3);
}

static void load(void) {
  *(void**)&accel.alloc = dlsym(RTLD_DEFAULT, "softaccel_alloc");
  *(void**)&accel.copy = dlsym(RTLD_DEFAULT, "softaccel_copy");
  *(void**)&accel.count = dlsym(RTLD_DEFAULT, "softaccel_count");
  if (accel.alloc == NULL || accel.copy == NULL || accel.count == NULL) {
    printf("the software accelerator is not loaded\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
}

static void make_buffers(void) {
  for (int i = 0; i < 2; ++i) {
    host[i].memory = (char*)malloc(kSpan);
    host[i].image = (char*)malloc(kSpan);
    device[i].memory = (char*)accel.alloc(kSpan);
    device[i].image = (char*)malloc(kSpan);
    if (!host[i].memory || !host[i].image || !device[i].memory || !device[i].image) {
      printf("there is not enough memory\n");
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }
}

static void fill(struct buffer* b, size_t span, unsigned salt) {
  for (size_t i = 0; i < span; ++i) b->image[i] = (char)(i * 2654435761u >> 11 ^ salt * 97u);
  accel.copy(b->memory, b->image, span);
}

/* Is in the memory what is in the image? */
static int same(const struct buffer* b, size_t span) {
  static char now[kSpan];
  accel.copy(now, b->memory, span);
  return memcmp(now, b->image, span) == 0;
}
