/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics.h: what the parts of semantics share: who runs, how an expectation is checked, two large buffers
 * and what they are filled with.
 */
#pragma once

#include <mpi.h>

extern int g_rank, g_size;

void expect(int ok, const char* what, const char* file, int line);
#define EXPECT(x) expect((x), #x, __FILE__, __LINE__)

enum { kSizeCount = 25, kMaxSize = 4 << 20 };
extern const int kSizes[kSizeCount];

/* kMaxSize bytes each. */
extern unsigned char* g_out;
extern unsigned char* g_in;

void fill(unsigned char* p, int n, unsigned seed);
int holds(const unsigned char* p, int n, unsigned seed);

/* Ranks 0 and 1 talk to each other, 2 and 3, ...; a last one alone has nobody. */
int peer_of(int rank);
int paired(void);

/* semantics_messages.c */
void send_modes(MPI_Comm comm);
void nonblocking(MPI_Comm comm);
void ordering(MPI_Comm comm);
void proc_null(MPI_Comm comm);
void datatypes(MPI_Comm comm);
void to_self(void);

/* semantics_requests.c */
void persistent(MPI_Comm comm);
void persistent_buffered(MPI_Comm comm);
void cancelling(MPI_Comm comm);
void freed_active(MPI_Comm comm);

/* semantics_receives.c */
void wildcards(MPI_Comm comm);
void probes(MPI_Comm comm);
void truncation(MPI_Comm comm);

/* semantics_lifetimes.c */
void lifetimes(MPI_Comm comm);

/* semantics_groups.c */
void communicators(void);
void collectives(void);
void threads(void);
