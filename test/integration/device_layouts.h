/* SPDX-License-Identifier: BSD-3-Clause
 *
 * device_layouts.h: the datatypes that the program device sends: contiguous ones, with gaps, of several basic
 * types, with blocks that touch, and of absolute addresses.
 */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

struct layout {
  const char* name;
  /* A type and a count of about `size` bytes, beginning at `memory`. Returns the bytes from the first to the
   * last. */
  size_t (*make)(size_t size, char* memory, MPI_Datatype* type, int* count);
  int absolute; /* the buffer is MPI_BOTTOM */
};

static size_t make_bytes(size_t size, char* memory, MPI_Datatype* type, int* count) {
  (void)memory;
  MPI_Type_dup(MPI_BYTE, type);
  *count = (int)size;
  return size;
}
static size_t make_doubles(size_t size, char* memory, MPI_Datatype* type, int* count) {
  (void)memory;
  MPI_Type_contiguous(1, MPI_DOUBLE, type);
  *count = (int)(size / 24 * 3);
  return size;
}
static size_t make_vector(size_t size, char* memory, MPI_Datatype* type, int* count) {
  (void)memory;
  MPI_Type_vector((int)(size / 24), 3, 7, MPI_DOUBLE, type);
  *count = size < 24 ? 0 : 1;
  return size / 24 * 56;
}
/* Elements of 12 bytes, 16 bytes apart. */
static size_t make_structs(size_t size, char* memory, MPI_Datatype* type, int* count) {
  (void)memory;
  int lengths[] = {1, 1};
  MPI_Aint places[] = {0, 8};
  MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT};
  MPI_Datatype bare;
  MPI_Type_create_struct(2, lengths, places, types, &bare);
  MPI_Type_create_resized(bare, 0, 16, type);
  MPI_Type_free(&bare);
  *count = (int)(size / 12);
  return size / 12 * 16;
}
/* Blocks that follow each other although the type says them one by one, then a gap. */
static size_t make_rows(size_t size, char* memory, MPI_Datatype* type, int* count) {
  (void)memory;
  int places[8];
  for (int i = 0; i < 8; ++i) places[i] = i < 4 ? i : i + 3;
  MPI_Datatype row;
  MPI_Type_create_indexed_block(8, 1, places, MPI_DOUBLE, &row);
  MPI_Type_create_resized(row, 0, 128, type);
  MPI_Type_free(&row);
  *count = (int)(size / 64);
  return size / 64 * 128;
}
static size_t make_bottom(size_t size, char* memory, MPI_Datatype* type, int* count) {
  const int doubles = (int)(size / 8 / 2);
  int lengths[] = {doubles, doubles};
  MPI_Aint places[] = {(MPI_Aint)(uintptr_t)memory, (MPI_Aint)(uintptr_t)memory + (doubles + 5) * 8};
  MPI_Type_create_hindexed(2, lengths, places, MPI_DOUBLE, type);
  *count = doubles == 0 ? 0 : 1;
  return (size_t)(2 * doubles + 5) * 8;
}

static const struct layout kLayouts[] = {
    {"bytes", make_bytes, 0},     {"doubles", make_doubles, 0}, {"vector", make_vector, 0},
    {"structs", make_structs, 0}, {"rows", make_rows, 0},       {"bottom", make_bottom, 1},
};
enum { kBytes, kLayoutCount = sizeof(kLayouts) / sizeof(kLayouts[0]) };
