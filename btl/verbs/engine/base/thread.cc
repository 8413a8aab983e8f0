// SPDX-License-Identifier: BSD-3-Clause
//
// thread.cc: see thread.h.
#include "btl/verbs/engine/base/thread.h"

#include <signal.h>

#include <cstdlib>

namespace bfo::engine {

int start_thread(pthread_t* thread, void* (*main)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int rc = pthread_create(thread, nullptr, main, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return rc;
}

void make_thread_heap() {
  void* volatile kept = malloc(1);  // volatile: the compiler may not leave out the pair
  free(kept);
}

}  // namespace bfo::engine
