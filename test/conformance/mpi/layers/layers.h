/* SPDX-License-Identifier: BSD-3-Clause
 *
 * layers: what stands on top of point-to-point messages. Each section computes values that depend on the
 * number of ranks alone, and says a number for them; the numbers of two runs are equal if both are right.
 */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Adds `size` bytes at `data` to what is said of `what` on this rank. Collective over MPI_COMM_WORLD: rank 0
   prints one line, "layers: WHAT: NUMBER", made from the bytes of all ranks in their order. */
void say(const char* what, const void* data, size_t size);

/* Counts and prints a value that is not what it must be. */
void expect(int right, const char* what);

/* Element i of rank r in step s of a section. */
int value(int s, int r, int i);

void collectives(void); /* blocking and nonblocking, over intracommunicators and an intercommunicator */
void neighbours(void);  /* Cartesian and distributed graph topologies; one rank in a dimension */
void one_sided(void);   /* fence, post and start, locks; contiguous and strided */
void files(const char* folder);

extern int rank, ranks;
