/* SPDX-License-Identifier: BSD-3-Clause
 *
 * threads_pthreads_threads.h: stand-in, see threads_pthreads_mutex.h. Only macros of Open MPI that the components do
 * not use yield through it; the yield of the running libopen-pal is a private function pointer.
 */
#ifndef BFO_COMPAT_THREADS_PTHREADS_THREADS_H
#define BFO_COMPAT_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "opal/mca/threads/threads.h"

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

static inline void opal_thread_yield(void) { sched_yield(); }

#endif /* BFO_COMPAT_THREADS_PTHREADS_THREADS_H */
