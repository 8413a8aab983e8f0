/* SPDX-License-Identifier: BSD-3-Clause
 *
 * unversioned.c: preloaded into a rank of versions_test. Its PML publishes no version, as builds before there
 * were versions.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

int PMIx_Put(int scope, const char* key, void* value);
int PMIx_Put(int scope, const char* key, void* value) {
  if (strcmp(key, "bfo.pml.wire") == 0) return 0;
  int (*put)(int, const char*, void*);
  *(void**)&put = dlsym(RTLD_NEXT, "PMIx_Put");
  return put == NULL ? -1 : put(scope, key, value);
}
