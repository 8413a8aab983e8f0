/* SPDX-License-Identifier: BSD-3-Clause
 *
 * blind_unmap: a library as allocators are that bring their own munmap(): it asks the kernel directly, so
 * that Open MPI, which patches the C library's function, does not notice. Preloaded, or loaded later, by
 * memory_hooks_test.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int munmap(void* address, size_t size) {
  return (int)syscall(SYS_munmap, address, size);
}
