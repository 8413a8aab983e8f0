// SPDX-License-Identifier: BSD-3-Clause
//
// thread.h: how the component starts its threads: those that run control verbs (control.h), and the one that
// reads events (async.h).
#pragma once

#include <pthread.h>

namespace bfo::engine {

/// Starts `main(argument)` on a thread that takes no signal: they are the application's. 0, or what
/// pthread_create returned. Any thread may call it.
int start_thread(pthread_t* thread, void* (*main)(void*), void* argument);

/// The first allocation of a thread makes a heap of its own in some C libraries (glibc: an arena, which takes
/// several system calls and fresh pages). A thread whose work must not wait for that calls this when it
/// starts.
void make_thread_heap();

}  // namespace bfo::engine
