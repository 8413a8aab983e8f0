/* SPDX-License-Identifier: BSD-3-Clause
 *
 * softaccel.h: what a test program asks of the software accelerator. It is loaded by Open MPI: a program
 * finds the functions by dlsym() after MPI_Init.
 */
#pragma once

#include <stddef.h>

struct softaccel_counts {
  unsigned long copies; /* by Open MPI, since the last call of softaccel_count() */
  unsigned long asked;  /* whether an address is a device's */
};

struct softaccel {
  /* Memory that only softaccel's own functions can read and write; NULL: there is none. It is never freed. */
  void* (*alloc)(size_t size);
  /* Copies from and to it, uncounted. */
  void (*copy)(void* to, const void* from, size_t size);
  struct softaccel_counts (*count)(void);
};
