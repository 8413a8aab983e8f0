/* SPDX-License-Identifier: BSD-3-Clause
 *
 * peruse.h: stand-in for the PERUSE header that distributions do not ship although their installed
 * ompi/peruse/peruse-internal.h includes it. Only the types that header names are here; the components do
 * not report PERUSE events (libmpi is built without PERUSE, its macros expand to nothing).
 */
#ifndef BFO_COMPAT_PERUSE_H
#define BFO_COMPAT_PERUSE_H

#include "mpi.h"

typedef struct ompi_peruse_handle_t* peruse_event_h;

/* Class name used by one declaration in peruse-internal.h; never instantiated. */
typedef struct ompi_peruse_handle_t ompi_peruse_t;

#endif /* BFO_COMPAT_PERUSE_H */
