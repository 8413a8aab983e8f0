// SPDX-License-Identifier: BSD-3-Clause
//
// opener.c: opens all devices, each with a completion queue, as programs do when they start. For the tests of
// what the software HCA does when it cannot be had, or not all of it (environment, room). Status 3 and one
// line when something fails.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char* what) {
  printf("opener: %s: %s\n", what, strerror(errno));
  return 3;
}

/// Arguments: entries of each completion queue (default 64), completion queues per device (1), seconds to
/// stay (0).
int main(int argc, char** argv) {
  const int entries = argc > 1 ? atoi(argv[1]) : 64;
  const int queues = argc > 2 ? atoi(argv[2]) : 1;
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL || count == 0) return failed("no device");
  for (int i = 0; i < count; ++i) {
    struct ibv_context* context = ibv_open_device(list[i]);
    if (context == NULL) return failed(ibv_get_device_name(list[i]));
    for (int q = 0; q < queues; ++q) {
      if (ibv_create_cq(context, entries, NULL, NULL, 0) == NULL) return failed("ibv_create_cq");
    }
  }
  printf("opener: %d devices\n", count);
  fflush(stdout);
  if (argc > 3) sleep((unsigned)atoi(argv[3]));
  ibv_free_device_list(list);
  return 0;
}
