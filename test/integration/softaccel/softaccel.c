/* SPDX-License-Identifier: BSD-3-Clause
 *
 * softaccel.c: a component of Open MPI's accelerator framework for hosts without one. The memory of its
 * device is mapped for the program without any access, so that whatever part of Open MPI touches it by the
 * processor dies there; only the component's own copies, which go through a second mapping of the same
 * memory, move its bytes. They are counted. With SOFTACCEL_COPIES=N in the environment all copies after the
 * first N fail. Open MPI 4.1 has no such framework: for it this is an empty module.
 */
#define _GNU_SOURCE
#include "test/integration/softaccel/softaccel.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __has_include("opal/mca/accelerator/accelerator.h")
#include "opal_config.h"

#include "opal/constants.h"
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/base/base.h"

#define EXPORT __attribute__((visibility("default")))

/* The table of 6.0 has more functions, and one has another argument. */
#if defined(IPC_MAX_HANDLE_SIZE)
#define SOFTACCEL_OF_6 1
#else
#define SOFTACCEL_OF_6 0
#endif

enum { kMost = 64, kPage = 4096 };

struct area {
  char* seen; /* by the program */
  char* real;
  size_t size;
};
static struct area areas[kMost];
static int n_areas;
static struct softaccel_counts counts;
static unsigned long copies_left = ~0ul;

static const struct area* area_of(const void* address) {
  const char* const at = address;
  for (int i = 0; i < n_areas; ++i)
    if (at >= areas[i].seen && at < areas[i].seen + areas[i].size) return &areas[i];
  return NULL;
}

/* Where the bytes are that the program knows under `address`, which may be its own memory. */
static void* real_of(const void* address) {
  const struct area* const area = area_of(address);
  return area == NULL ? (void*)(uintptr_t)address : area->real + ((const char*)address - area->seen);
}

/* ---- for the program */

EXPORT void* softaccel_alloc(size_t size) {
  size = (size + kPage - 1) & ~(size_t)(kPage - 1);
  const int fd = memfd_create("softaccel", MFD_CLOEXEC);
  if (n_areas == kMost || fd < 0 || ftruncate(fd, (off_t)size) != 0) return NULL;
  struct area* const area = &areas[n_areas];
  area->size = size;
  area->seen = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
  area->real = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (area->seen == MAP_FAILED || area->real == MAP_FAILED) return NULL;
  ++n_areas;
  return area->seen;
}

EXPORT void softaccel_copy(void* to, const void* from, size_t size) {
  memmove(real_of(to), real_of(from), size);
}

EXPORT struct softaccel_counts softaccel_count(void) {
  const struct softaccel_counts now = counts;
  memset(&counts, 0, sizeof(counts));
  return now;
}

/* ---- for Open MPI */

static int check_addr(const void* address, int* device, uint64_t* flags) {
  __atomic_fetch_add(&counts.asked, 1, __ATOMIC_RELAXED);
  *device = 0;
  *flags = 0;
  return area_of(address) != NULL;
}

static int copy(int to_device, int from_device, void* to, const void* from, size_t size,
                opal_accelerator_transfer_type_t type) {
  (void)to_device, (void)from_device, (void)type;
  if (copies_left == 0) return OPAL_ERROR;
  --copies_left;
  __atomic_fetch_add(&counts.copies, 1, __ATOMIC_RELAXED);
  softaccel_copy(to, from, size);
  return OPAL_SUCCESS;
}

static int copy_async(int to_device, int from_device, void* to, const void* from, size_t size,
                      opal_accelerator_stream_t* stream, opal_accelerator_transfer_type_t type) {
  (void)stream;
  return copy(to_device, from_device, to, from, size, type);
}

static int create_stream(int device, opal_accelerator_stream_t** stream) {
  (void)device;
  *stream = OBJ_NEW(opal_accelerator_stream_t);
  return *stream == NULL ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

#if SOFTACCEL_OF_6
static int create_event(int device, opal_accelerator_event_t** event, bool between_processes) {
  (void)between_processes;
#else
static int create_event(int device, opal_accelerator_event_t** event) {
#endif
  (void)device;
  *event = OBJ_NEW(opal_accelerator_event_t);
  return *event == NULL ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

/* Copies are complete when they return: so is what comes after them in a stream. */
static int record_event(int device, opal_accelerator_event_t* event, opal_accelerator_stream_t* stream) {
  (void)device, (void)event, (void)stream;
  return OPAL_SUCCESS;
}

static int query_event(int device, opal_accelerator_event_t* event) {
  (void)device, (void)event;
  return OPAL_SUCCESS;
}

static int mem_alloc(int device, void** memory, size_t size) {
  (void)device;
  *memory = softaccel_alloc(size);
  return *memory == NULL ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

static int mem_release(int device, void* memory) {
  (void)device, (void)memory;
  return OPAL_SUCCESS;
}

static int address_range(int device, const void* address, void** base, size_t* size) {
  (void)device;
  const struct area* const area = area_of(address);
  if (area == NULL) return OPAL_ERROR;
  *base = area->seen;
  *size = area->size;
  return OPAL_SUCCESS;
}

static int host_memory(int device, void* memory, size_t size) {
  (void)device, (void)memory, (void)size;
  return OPAL_SUCCESS;
}

static int no_host_memory(int device, void* memory) {
  (void)device, (void)memory;
  return OPAL_SUCCESS;
}

static int get_device(int* device) {
  *device = 0;
  return OPAL_SUCCESS;
}

static int pci_attributes(int device, opal_accelerator_pci_attr_t* attributes) {
  (void)device, (void)attributes;
  return OPAL_ERR_NOT_SUPPORTED;
}

static int reaches_peer(int* access, int one, int other) {
  (void)one, (void)other;
  *access = 0;
  return OPAL_SUCCESS;
}

static int buffer_id(int device, const void* address, opal_accelerator_buffer_id_t* id) {
  (void)device;
  const struct area* const area = area_of(address);
  if (area == NULL) return OPAL_ERROR;
  *id = (opal_accelerator_buffer_id_t)(area - areas) + 1;
  return OPAL_SUCCESS;
}

#if SOFTACCEL_OF_6
static int of_stream(opal_accelerator_stream_t* stream) {
  (void)stream;
  return OPAL_SUCCESS;
}

static int alloc_in_stream(int device, void** memory, size_t size, opal_accelerator_stream_t* stream) {
  (void)stream;
  return mem_alloc(device, memory, size);
}

static int release_in_stream(int device, void* memory, opal_accelerator_stream_t* stream) {
  (void)stream;
  return mem_release(device, memory);
}

static bool no_ipc(void) {
  return false;
}

static int one_device(int* devices) {
  *devices = 1;
  return OPAL_SUCCESS;
}

static int bandwidth(int device, float* rate) {
  (void)device;
  *rate = 1;
  return OPAL_SUCCESS;
}

static void memory_kind(ompi_memkind_t* kind) {
  memset(kind, 0, sizeof(*kind));
  kind->im_name = "softaccel";
  kind->im_no_restrictors = true;
}
#endif

static opal_accelerator_base_module_t module = {
  .check_addr = check_addr,
  .create_stream = create_stream,
  .create_event = create_event,
  .record_event = record_event,
  .query_event = query_event,
  .mem_copy_async = copy_async,
  .mem_copy = copy,
  .mem_move = copy,
  .mem_alloc = mem_alloc,
  .mem_release = mem_release,
  .get_address_range = address_range,
  .host_register = host_memory,
  .host_unregister = no_host_memory,
  .get_device = get_device,
  .get_device_pci_attr = pci_attributes,
  .device_can_access_peer = reaches_peer,
  .get_buffer_id = buffer_id,
#if SOFTACCEL_OF_6
  .sync_stream = of_stream,
  .wait_event = record_event,
  .mem_move_async = copy_async,
  .mem_alloc_stream = alloc_in_stream,
  .mem_release_stream = release_in_stream,
  .is_ipc_enabled = no_ipc,
  .num_devices = one_device,
  .get_mem_bw = bandwidth,
  .get_memkind = memory_kind,
#endif
};

static opal_accelerator_base_module_t* start(void) {
  const char* const limit = getenv("SOFTACCEL_COPIES");
  if (limit != NULL) copies_left = strtoul(limit, NULL, 10);
  return &module;
}

static void stop(opal_accelerator_base_module_t* stopped) {
  (void)stopped;
}

EXPORT opal_accelerator_base_component_t mca_accelerator_softaccel_component = {
    .base_version =
        {
            OPAL_ACCELERATOR_BASE_VERSION_1_0_0,
            .mca_component_name = "softaccel",
            MCA_BASE_MAKE_VERSION(component, 1, 0, 0),
        },
    .base_data = {MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .accelerator_init = start,
    .accelerator_finalize = stop,
};
#else
extern int softaccel_has_no_framework;
#endif
