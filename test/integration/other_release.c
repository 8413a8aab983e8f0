// SPDX-License-Identifier: BSD-3-Clause
//
// other_release.c: preloaded by component_test, makes the Open MPI of a process look like one that the
// components were not built for. BFO_TEST_RELEASE is its version; the class of BFO_TEST_CLASS has objects
// that are 8 bytes longer.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What libopen-pal says of each class.
struct class {
  const char* name;
  struct class* parent;
  void (*construct)(void*);
  void (*destruct)(void*);
  int initialized;
  int depth;
  void** constructors;
  void** destructors;
  size_t size;
};

// In place of the one in libopen-pal.
char opal_version_string[64];

__attribute__((constructor)) static void pretend(void) {
  const char* release = getenv("BFO_TEST_RELEASE");
  const char* const name = getenv("BFO_TEST_CLASS");
  if (release == NULL) release = dlsym(RTLD_NEXT, "opal_version_string");
  if (release != NULL) snprintf(opal_version_string, sizeof opal_version_string, "%s", release);
  if (name == NULL) return;
  struct class* const found = dlsym(RTLD_NEXT, name);
  if (found != NULL) found->size += 8;
}
