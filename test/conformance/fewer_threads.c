// SPDX-License-Identifier: BSD-3-Clause
//
// fewer_threads.c: preloaded. pthread_create() fails with EAGAIN, as where the kernel, a cgroup (pids.max) or
// ulimit -u gives no more threads: from call FEWER_THREADS_FROM on, to call FEWER_THREADS_TO; they count
// from 1.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

static int number(const char* name, int fallback) {
  const char* text = getenv(name);
  return text == NULL ? fallback : atoi(text);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  static int calls;
  int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  const int call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  if (call >= number("FEWER_THREADS_FROM", INT_MAX) && call <= number("FEWER_THREADS_TO", INT_MAX))
    return EAGAIN;
  return real(thread, attributes, start, argument);
}
