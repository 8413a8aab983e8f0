/* SPDX-License-Identifier: BSD-3-Clause
 *
 * threads_pthreads_mutex.h: stand-in for a header of Open MPI 5 and later that its installed opal_config.h names and
 * distributions do not ship. The types are part of the layout of libopen-pal's structs: POSIX mutexes and conditions.
 */
#ifndef BFO_COMPAT_THREADS_PTHREADS_MUTEX_H
#define BFO_COMPAT_THREADS_PTHREADS_MUTEX_H

#include <errno.h>
#include <pthread.h>

#include "opal_config.h"

#include "opal/class/opal_object.h"
#include "opal/constants.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_RECURSIVE_MUTEX_INITIALIZER PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t* mutex, bool recursive) {
  pthread_mutexattr_t attr;
  int rc;
  if (!recursive) return pthread_mutex_init(mutex, NULL) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
  if (pthread_mutexattr_init(&attr) != 0) return OPAL_ERR_IN_ERRNO;
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
  rc = pthread_mutex_init(mutex, &attr);
  pthread_mutexattr_destroy(&attr);
  return rc == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t* mutex) {
  pthread_mutex_lock(mutex);
}
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t* mutex) {
  return pthread_mutex_trylock(mutex) == 0 ? 0 : 1;
}
static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t* mutex) {
  pthread_mutex_unlock(mutex);
}
static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t* mutex) {
  pthread_mutex_destroy(mutex);
}
static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t* cond) {
  return pthread_cond_init(cond, NULL) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline void opal_thread_internal_cond_wait(opal_thread_internal_cond_t* cond,
                                                  opal_thread_internal_mutex_t* mutex) {
  pthread_cond_wait(cond, mutex);
}
static inline void opal_thread_internal_cond_broadcast(opal_thread_internal_cond_t* cond) {
  pthread_cond_broadcast(cond);
}
static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t* cond) {
  pthread_cond_signal(cond);
}
static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t* cond) {
  pthread_cond_destroy(cond);
}

#endif /* BFO_COMPAT_THREADS_PTHREADS_MUTEX_H */
