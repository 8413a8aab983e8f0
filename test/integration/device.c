/* SPDX-License-Identifier: BSD-3-Clause
 *
 * device: messages from and to the memory of a device, which the processor cannot touch: that of the software
 * accelerator (softaccel/softaccel.h), which Open MPI must have loaded. Two processes.
 *
 * usage: device matrix [stock] | short | long | collectives | ahead | nobody | broken
 *
 * matrix: each way to send, from host to device, device to host and device to device, of each layout and
 * size. Every byte of the buffers is compared, also those that are not in the message; stock: only what ob1
 * can.
 *
 * short: without a rendezvous.
 *
 * long: from device to device only, messages of several fragments.
 *
 * collectives: operations that only move data.
 *
 * ahead: host messages; how often it was asked where their buffers are.
 *
 * nobody: the same without an accelerator.
 *
 * broken: the accelerator does not copy (SOFTACCEL_COPIES=0); what the calls return.
 *
 * For each message rank 0 prints "WAY PLACES LAYOUT SIZE: right, copies N, asked M", or what is wrong; the
 * counts are those of both processes. A touch by the processor ends the job with a line.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/integration/device_layouts.h"
#include "test/integration/device_memory.h"

enum { kTag = 7, kPage = 4096 };

static int rank;
static int wrong;

/* ---- one side of a message */
struct side {
  struct buffer* buffer;
  void* address; /* for MPI */
  MPI_Datatype type;
  int count;
  size_t span;
};

static struct side side_of(const struct layout* layout, size_t size, struct buffer* buffer, unsigned salt) {
  struct side s = {.buffer = buffer};
  s.span = layout->make(size, buffer->memory, &s.type, &s.count);
  MPI_Type_commit(&s.type);
  s.address = layout->absolute ? MPI_BOTTOM : buffer->memory;
  fill(buffer, s.span, salt);
  return s;
}

/* The packed bytes of its image; at an absolute place the same type once more. Returns their number. */
static int packed_image(const struct layout* layout, size_t size, const char* image, char* packed) {
  MPI_Datatype type;
  int count, n = 0;
  layout->make(size, (char*)(uintptr_t)image, &type, &count);
  MPI_Type_commit(&type);
  MPI_Pack(layout->absolute ? MPI_BOTTOM : image, count, type, packed, kSpan, &n, MPI_COMM_SELF);
  MPI_Type_free(&type);
  return n;
}
/* Puts the first n packed bytes into the image, as a receive into it would. */
static void unpack_image(const struct layout* layout, size_t size, char* image, char* packed, int n) {
  MPI_Datatype type;
  int count, at = 0;
  layout->make(size, image, &type, &count);
  MPI_Type_commit(&type);
  if (n != 0) MPI_Unpack(packed, n, &at, layout->absolute ? MPI_BOTTOM : image, count, type, MPI_COMM_SELF);
  MPI_Type_free(&type);
}

/* ---- ways to send: both processes call each with their side; `other` is the rank to talk to */

static void token(int from) {
  if (rank == from)
    MPI_Send(NULL, 0, MPI_CHAR, 1 - rank, 99, MPI_COMM_WORLD);
  else
    MPI_Recv(NULL, 0, MPI_CHAR, 1 - rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void receive(const struct side* s) {
  MPI_Recv(s->address, s->count, s->type, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void by_send(const struct side* s) {
  if (rank == 0)
    MPI_Send(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD);
  else
    receive(s);
}
/* The receive from any source is there before the message. */
static void by_isend(const struct side* s) {
  MPI_Request request;
  if (rank == 1)
    MPI_Irecv(s->address, s->count, s->type, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Isend(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
/* The message is there before the receive. */
static void by_late(const struct side* s) {
  MPI_Request request;
  if (rank == 0) MPI_Isend(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD, &request);
  token(0);
  if (rank == 0)
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  else
    receive(s);
}
static void by_ssend(const struct side* s) {
  if (rank == 0)
    MPI_Ssend(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD);
  else
    receive(s);
}
static void by_bsend(const struct side* s) {
  static char* room;
  if (room == NULL && rank == 0) room = malloc(kSpan);
  if (rank == 0) {
    int size;
    MPI_Buffer_attach(room, kSpan);
    MPI_Bsend(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD);
    MPI_Buffer_detach(&room, &size);
  } else {
    receive(s);
  }
}
static void by_start(const struct side* s) {
  MPI_Request request;
  if (rank == 0)
    MPI_Send_init(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD, &request);
  else
    MPI_Recv_init(s->address, s->count, s->type, 0, kTag, MPI_COMM_WORLD, &request);
  for (int i = 0; i < 2; ++i) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&request);
}
static void by_mprobe(const struct side* s) {
  if (rank == 0) {
    MPI_Send(s->address, s->count, s->type, 1, kTag, MPI_COMM_WORLD);
    return;
  }
  MPI_Message message;
  MPI_Request request;
  MPI_Mprobe(0, kTag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Imrecv(s->address, s->count, s->type, &message, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

struct way {
  const char* name;
  void (*go)(const struct side*);
  int all_sizes;
  int messages;
};
static const struct way kWays[] = {
    {"send", by_send, 1, 1},     {"isend", by_isend, 1, 1}, {"late", by_late, 0, 1},
    {"ssend", by_ssend, 0, 1},   {"bsend", by_bsend, 0, 1}, {"start", by_start, 0, 2},
    {"mprobe", by_mprobe, 0, 1},
};
static const size_t kSizes[] = {0, 48, 480, 3000, 9600, 16800, 100008, 3000000};
static const int kFew[] = {0, 1, 0, 1, 0, 0, 1, 0}; /* of ways that are not tried with all */

/* ---- what came, and the line of a message */

/* `mine`: what was counted in this process while the message went. */
static void report(const char* way, const char* places, const char* layout, size_t size, int right,
                   struct softaccel_counts mine) {
  unsigned long sum[3] = {mine.copies, mine.asked, (unsigned long)!right};
  MPI_Allreduce(MPI_IN_PLACE, sum, 3, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
  accel.count();
  if (sum[2] != 0) ++wrong;
  if (rank == 0)
    printf("%s %s %s %zu: %s, copies %lu, asked %lu\n", way, places, layout, size,
           sum[2] == 0 ? "right" : "WRONG BYTES", sum[0], sum[1]);
}

/* The packed bytes of what rank 0 sends, which both processes know. */
static int sent_bytes(const struct layout* layout, size_t size, unsigned salt, char* packed) {
  static struct buffer sender;
  if (sender.image == NULL) {
    sender.image = malloc(kSpan);
    sender.memory = malloc(kSpan);
  }
  fill(&sender, 3 * size + 64, salt);
  return packed_image(layout, size, sender.image, packed);
}

static const char* const kPlaces[] = {"host-device", "device-host", "device-device"};

static struct buffer* place(int places, int receiver) {
  const int on_device = receiver ? places != 1 : places != 0;
  return on_device ? &device[receiver] : &host[receiver];
}

static void one_message(const struct way* way, int places, const struct layout* layout, size_t size) {
  static char packed[kSpan];
  static unsigned salt;
  ++salt;
  const int n = sent_bytes(layout, size, salt, packed);
  const int received = rank == 1;
  struct side s = side_of(layout, size, place(places, received), received ? salt + 1000 : salt);
  MPI_Barrier(MPI_COMM_WORLD);
  accel.count();
  way->go(&s);
  const struct softaccel_counts mine = accel.count();
  if (received) unpack_image(layout, size, s.buffer->image, packed, n);
  report(way->name, kPlaces[places], layout->name, size, same(s.buffer, s.span), mine);
  MPI_Type_free(&s.type);
}

/* A message to oneself, posted before or after its send. */
static void to_oneself(int places, const struct layout* layout, size_t size, int posted) {
  static char packed[kSpan];
  static unsigned salt = 5000;
  ++salt;
  const int n = sent_bytes(layout, size, salt, packed);
  struct side from = side_of(layout, size, place(places, 0), salt);
  struct side to = side_of(layout, size, place(places, 1), salt + 1000);
  MPI_Request requests[2];
  accel.count();
  if (posted) MPI_Irecv(to.address, to.count, to.type, 0, kTag, MPI_COMM_SELF, &requests[0]);
  MPI_Isend(from.address, from.count, from.type, 0, kTag, MPI_COMM_SELF, &requests[1]);
  if (!posted) MPI_Irecv(to.address, to.count, to.type, 0, kTag, MPI_COMM_SELF, &requests[0]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  const struct softaccel_counts mine = accel.count();
  unpack_image(layout, size, to.buffer->image, packed, n);
  report(posted ? "self" : "self-late", kPlaces[places], layout->name, size,
         same(from.buffer, from.span) && same(to.buffer, to.span), mine);
  MPI_Type_free(&from.type);
  MPI_Type_free(&to.type);
}

/* Contiguous at one side, strided at the other. */
static void spread(int places, size_t size, int strided) {
  static char packed[kSpan];
  const struct layout* const layout = &kLayouts[(rank == strided) ? 2 : 1];
  const unsigned salt = 9000 + (unsigned)strided;
  const int n = sent_bytes(&kLayouts[strided == 0 ? 2 : 1], size, salt, packed);
  struct side s = side_of(layout, size, place(places, rank), rank == 1 ? salt + 500 : salt);
  accel.count();
  by_send(&s);
  const struct softaccel_counts mine = accel.count();
  if (rank == 1) unpack_image(layout, size, s.buffer->image, packed, n);
  report(strided == 0 ? "from-strided" : "to-strided", kPlaces[places], "doubles", size,
         same(s.buffer, s.span), mine);
  MPI_Type_free(&s.type);
}

/* A message that is longer than its receive. */
static void truncated(size_t size) {
  static char packed[kSpan];
  sent_bytes(&kLayouts[kBytes], size, 77, packed);
  struct side s = side_of(&kLayouts[kBytes], size, &device[rank], rank == 1 ? 78 : 77);
  int class = MPI_ERR_TRUNCATE;
  accel.count();
  if (rank == 0) {
    MPI_Send(s.address, s.count, s.type, 1, kTag, MPI_COMM_WORLD);
  } else {
    const int half = s.count / 2;
    MPI_Error_class(MPI_Recv(s.address, half, s.type, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), &class);
    memcpy(s.buffer->image, packed, (size_t)half);
  }
  report("truncated", kPlaces[2], "bytes", size, class == MPI_ERR_TRUNCATE && same(s.buffer, s.span),
         accel.count());
  MPI_Type_free(&s.type);
}

static void cancelled(void) {
  struct side s = side_of(&kLayouts[kBytes], 5000, &device[1], 80);
  MPI_Request request;
  MPI_Status status;
  int flag = 0;
  accel.count();
  MPI_Irecv(s.address, s.count, s.type, 1 - rank, kTag + 1, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &flag);
  report("cancelled", kPlaces[2], "bytes", 5000, flag && same(s.buffer, s.span), accel.count());
  MPI_Type_free(&s.type);
}

static void replaced(size_t size) {
  static char packed[kSpan];
  sent_bytes(&kLayouts[kBytes], size, 90 + (unsigned)(1 - rank), packed);
  struct side s = side_of(&kLayouts[kBytes], size, &device[0], 90 + (unsigned)rank);
  accel.count();
  MPI_Sendrecv_replace(s.address, s.count, s.type, 1 - rank, kTag, 1 - rank, kTag, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE);
  memcpy(s.buffer->image, packed, size);
  report("replace", kPlaces[2], "bytes", size, same(s.buffer, s.span), accel.count());
  MPI_Type_free(&s.type);
}

/* `all`: also what ob1 of 5.0.7 cannot: it looks for the device at the address of a buffer alone, and touches
 * its memory when only one side is contiguous, or in longer messages to oneself. */
static void matrix(int all) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (size_t w = 0; w < sizeof(kWays) / sizeof(kWays[0]); ++w)
    for (int places = 0; places < 3; ++places)
      for (int l = 0; l < kLayoutCount; ++l)
        for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) {
          if (kLayouts[l].absolute && !all) continue;
          if (kWays[w].all_sizes || kFew[i]) one_message(&kWays[w], places, &kLayouts[l], kSizes[i]);
        }
  for (int places = 0; all && places < 3; ++places)
    for (size_t i = 1; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) {
      for (int posted = 0; posted < 2; ++posted) {
        to_oneself(places, &kLayouts[kBytes], kSizes[i], posted);
        to_oneself(places, &kLayouts[2], kSizes[i], posted);
      }
      for (int strided = 0; strided < 2; ++strided) spread(places, kSizes[i], strided);
    }
  for (size_t i = 1; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) {
    truncated(kSizes[i]);
    replaced(kSizes[i]);
  }
  cancelled();
}

/* At MPI_BOTTOM ob1 does not find the device, see matrix(). */
static void short_messages(void) {
  for (int places = 0; places < 3; ++places)
    for (int l = 0; l < kLayoutCount; ++l)
      for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]) && kSizes[i] < 10000; ++i)
        if (!kLayouts[l].absolute) one_message(&kWays[0], places, &kLayouts[l], kSizes[i]);
}

static void long_messages(void) {
  static const size_t sizes[] = {100008, 600000};
  for (size_t w = 0; w < sizeof(kWays) / sizeof(kWays[0]); ++w)
    for (int l = 0; l < kLayoutCount; ++l)
      for (int i = 0; i < 2; ++i) one_message(&kWays[w], 2, &kLayouts[l], sizes[i]);
}

/* ---- collective operations: both processes have `size` bytes for each other */

static void collectives(void) {
  static const size_t sizes[] = {480, 100008};
  static char theirs[kSpan];
  for (size_t i = 0; i < 2; ++i) {
    const size_t size = sizes[i];
    const int n = (int)size;
    char* const in = device[0].memory;
    char* const out = device[1].memory;
    fill(&device[0], 2 * size, 40 + (unsigned)rank);
    fill(&device[1], 2 * size, 50);
    sent_bytes(&kLayouts[kBytes], 2 * size, 40 + (unsigned)(1 - rank), theirs);
    const char* const first = rank == 0 ? device[0].image : theirs;
    const char* const second = rank == 0 ? theirs : device[0].image;
    accel.count();
    MPI_Allgather(in, n, MPI_BYTE, out, n, MPI_BYTE, MPI_COMM_WORLD);
    memcpy(device[1].image, first, size);
    memcpy(device[1].image + size, second, size);
    report("allgather", kPlaces[2], "bytes", size, same(&device[1], 2 * size), accel.count());
    MPI_Alltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, MPI_COMM_WORLD);
    memcpy(device[1].image, first + (size_t)rank * size, size);
    memcpy(device[1].image + size, second + (size_t)rank * size, size);
    report("alltoall", kPlaces[2], "bytes", size, same(&device[1], 2 * size), accel.count());
    MPI_Gather(in, n, MPI_BYTE, out, n, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      memcpy(device[1].image, first, size);
      memcpy(device[1].image + size, second, size);
    }
    report("gather", kPlaces[2], "bytes", size, same(&device[1], 2 * size), accel.count());
    MPI_Scatter(in, n, MPI_BYTE, out, n, MPI_BYTE, 1, MPI_COMM_WORLD);
    memcpy(device[1].image, second + (size_t)rank * size, size);
    report("scatter", kPlaces[2], "bytes", size, same(&device[1], 2 * size), accel.count());
    MPI_Bcast(in, n, MPI_BYTE, 0, MPI_COMM_WORLD);
    memcpy(device[0].image, first, size);
    report("bcast", kPlaces[2], "bytes", size, same(&device[0], 2 * size), accel.count());
  }
}

/* ---- host messages, and an accelerator that fails */

static void ahead(void) {
  for (int i = 0; i < 2; ++i)
    for (size_t k = 0; k < sizeof(kSizes) / sizeof(kSizes[0]); ++k) {
      struct side s = side_of(&kLayouts[i == 0 ? kBytes : 2], kSizes[k], &host[rank], 3);
      MPI_Barrier(MPI_COMM_WORLD);
      accel.count();
      by_send(&s);
      report("send", "host-host", i == 0 ? "bytes" : "vector", kSizes[k], 1, accel.count());
      MPI_Type_free(&s.type);
    }
}

/* The first function of Open MPI's table for accelerators, in place of that which is never one's. */
static unsigned long asked;
static int nowhere(const void* address, int* id, uint64_t* flags) {
  (void)address;
  ++asked;
  *id = -1;
  *flags = 0;
  return 0;
}
static void plain_copy(void* to, const void* from, size_t size) {
  memmove(to, from, size);
}
static struct softaccel_counts count_asked(void) {
  const struct softaccel_counts now = {0, asked};
  asked = 0;
  return now;
}
static void load_nothing(void) {
  void* const table = dlsym(RTLD_DEFAULT, "opal_accelerator");
  if (table == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  int (*const hook)(const void*, int*, uint64_t*) = nowhere;
  memcpy(table, &hook, sizeof(hook));
  accel = (struct softaccel){malloc, plain_copy, count_asked};
}

static void broken(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  static const size_t sizes[] = {480, 100008};
  for (int i = 0; i < 2; ++i) {
    struct side s = side_of(&kLayouts[kBytes], sizes[i], rank == 0 ? &host[0] : &device[1], 3);
    int class = MPI_SUCCESS, rc = MPI_SUCCESS;
    if (rank == 0)
      MPI_Send(s.address, s.count, s.type, 1, kTag, MPI_COMM_WORLD);
    else
      rc = MPI_Recv(s.address, s.count, s.type, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(rc, &class);
    if (rank == 1) printf("receive of %zu: %s\n", sizes[i], class == MPI_ERR_OTHER ? "MPI_ERR_OTHER" : "?");
    fflush(stdout);
    MPI_Type_free(&s.type);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  struct side s = side_of(&kLayouts[kBytes], 100008, rank == 0 ? &device[0] : &host[1], 3);
  by_send(&s);
  printf("a send that cannot be read ended\n");
  fflush(stdout);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "nobody") == 0)
    load_nothing();
  else
    load();
  make_buffers();
  if (strcmp(what, "matrix") == 0)
    matrix(argc < 3 || strcmp(argv[2], "stock") != 0);
  else if (strcmp(what, "short") == 0)
    short_messages();
  else if (strcmp(what, "long") == 0)
    long_messages();
  else if (strcmp(what, "collectives") == 0)
    collectives();
  else if (strcmp(what, "ahead") == 0 || strcmp(what, "nobody") == 0)
    ahead();
  else if (strcmp(what, "broken") == 0)
    broken();
  else
    wrong = 1;
  if (rank == 0) printf("device: %d wrong\n", wrong);
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
