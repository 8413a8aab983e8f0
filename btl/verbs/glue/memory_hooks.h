// SPDX-License-Identifier: BSD-3-Clause
//
// memory_hooks.h: does Open MPI notice when memory leaves this process?
//
// A registration may be kept after its message only if the cache is told when the pages behind it go. Open
// MPI patches the C library's munmap(), mremap(), mmap() and madvise() for that. A library with functions of
// its own under these names that ask the kernel directly (gperftools' tcmalloc) gives memory back unseen: the
// next buffer at the same address would be sent with the pages of the one before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bfo::verbs {

/// A function that changed a mapping without Open MPI noticing.
struct BlindSpot {
  const char* function;  ///< its name; nullptr: there is none
  char library[192];     ///< the file that it is in
};

/// Calls every munmap(), mremap(), mmap() and madvise() that a loaded library exports, on pages made for
/// that, and looks whether Open MPI's release hook was called for them. Takes the time of some ten system
/// calls and of one symbol lookup for each loaded library. After the memory framework is open. Any thread.
/// What it cannot see: system calls that a library makes without a function of these names, and a library
/// whose names are hidden.
BlindSpot find_blind_spot();

/// A number that changes when a library is loaded. Takes the loader's lock, no system call.
uint64_t libraries_loaded();

}  // namespace bfo::verbs
