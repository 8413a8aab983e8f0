// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/shape.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace player {
namespace {

struct Plain {
  const char* name;
  MPI_Datatype type;
  size_t size;
  size_t extent;
  std::vector<Run> parts;
};

const std::vector<Plain>& plain_bases() {
  struct DoubleInt {
    double d;
    int i;
  };
  struct LongDoubleInt {
    long double d;
    int i;
  };
  static const std::vector<Plain> all = {
      {"byte", MPI_BYTE, 1, 1, {{0, 1}}},
      {"short", MPI_SHORT, 2, 2, {{0, 2}}},
      {"int", MPI_INT, 4, 4, {{0, 4}}},
      {"double", MPI_DOUBLE, 8, 8, {{0, 8}}},
      {"complex", MPI_C_DOUBLE_COMPLEX, 16, 16, {{0, 16}}},
      {"longdouble", MPI_LONG_DOUBLE, sizeof(long double), sizeof(long double), {{0, sizeof(long double)}}},
      {"2int", MPI_2INT, 8, 8, {{0, 8}}},
      {"shortint", MPI_SHORT_INT, 6, 8, {{0, 2}, {4, 4}}},
      {"doubleint", MPI_DOUBLE_INT, 12, sizeof(DoubleInt), {{0, 8}, {8, 4}}},
      {"longdoubleint",
       MPI_LONG_DOUBLE_INT,
       sizeof(long double) + 4,
       sizeof(LongDoubleInt),
       {{0, sizeof(long double)}, {sizeof(long double), 4}}},
  };
  return all;
}

// A double, a char and an int: with the compiler's holes, or packed in another order in memory.
Base mixed(bool second) {
  const MPI_Aint natural[] = {0, 8, 12};
  const MPI_Aint packed[] = {5, 4, 0};
  const MPI_Aint* at = second ? packed : natural;
  const int lengths[] = {1, 1, 1};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_CHAR, MPI_INT};
  MPI_Datatype raw;
  Base base{MPI_DATATYPE_NULL, 13, second ? 13u : 16u, {{at[0], 8}, {at[1], 1}, {at[2], 4}}, true};
  MPI_Type_create_struct(3, lengths, at, types, &raw);
  MPI_Type_create_resized(raw, 0, static_cast<MPI_Aint>(base.extent), &base.type);
  MPI_Type_free(&raw);
  MPI_Type_commit(&base.type);
  return base;
}

}  // namespace

Base make_base(const std::string& name, bool second) {
  if (name == "mixed") return mixed(second);
  for (const Plain& plain : plain_bases())
    if (name == plain.name) return {plain.type, plain.size, plain.extent, plain.parts, false};
  std::fprintf(stderr, "player: unknown base type %s\n", name.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  return {};
}

void free_base(Base* base) {
  if (base->derived) MPI_Type_free(&base->type);
}

void free_shape(Shape* shape) {
  if (shape->owned) MPI_Type_free(&shape->type);
  shape->owned = false;
}

std::vector<Run> runs_of(const Shape& shape, const Base& base) {
  std::vector<Run> runs;
  if (base.size == base.extent && base.parts.size() == 1) {
    for (const Block& block : shape.blocks)
      if (block.count > 0) runs.push_back({block.at, block.count * base.size});
    return runs;
  }
  for (const Block& block : shape.blocks)
    for (size_t i = 0; i < block.count; ++i)
      for (const Run& part : base.parts)
        runs.push_back({block.at + static_cast<ptrdiff_t>(i * base.extent) + part.at, part.size});
  return runs;
}

Span span_of(const std::vector<Block>& blocks, const Base& base) {
  Span span{0, 0};
  bool first = true;
  for (const Block& block : blocks) {
    if (block.count == 0) continue;
    const ptrdiff_t end = block.at + static_cast<ptrdiff_t>(block.count * base.extent);
    span = first ? Span{block.at, end} : Span{std::min(span.low, block.at), std::max(span.high, end)};
    first = false;
  }
  return span;
}

Shape contiguous(const Base& base, size_t n) {
  return {base.type, static_cast<int>(n), false, {{0, n}}};
}

Shape as_one(Shape shape) {
  if (shape.count == 1 && shape.owned) return shape;
  Shape one{MPI_DATATYPE_NULL, 1, true, std::move(shape.blocks)};
  MPI_Type_contiguous(shape.count, shape.type, &one.type);
  free_shape(&shape);
  return one;
}

Shape repeated(Shape shape, size_t m, ptrdiff_t stride) {
  Shape all{MPI_DATATYPE_NULL, 1, true, {}};
  all.blocks.reserve(m * shape.blocks.size());
  for (size_t i = 0; i < m; ++i)
    for (const Block& block : shape.blocks)
      all.blocks.push_back({block.at + static_cast<ptrdiff_t>(i) * stride, block.count});
  MPI_Type_create_hvector(static_cast<int>(m), shape.count, stride, shape.type, &all.type);
  free_shape(&shape);
  return all;
}

Shape joined(Shape a, Shape b, ptrdiff_t at) {
  Shape all{MPI_DATATYPE_NULL, 1, true, std::move(a.blocks)};
  const int lengths[] = {a.count, b.count};
  const MPI_Aint places[] = {0, at};
  const MPI_Datatype types[] = {a.type, b.type};
  for (const Block& block : b.blocks) all.blocks.push_back({block.at + at, block.count});
  MPI_Type_create_struct(2, lengths, places, types, &all.type);
  free_shape(&a);
  free_shape(&b);
  return all;
}

Shape moved(Shape shape, ptrdiff_t by) {
  Shape all{MPI_DATATYPE_NULL, 1, true, std::move(shape.blocks)};
  const MPI_Aint place = by;
  for (Block& block : all.blocks) block.at += by;
  MPI_Type_create_hindexed(1, &shape.count, &place, shape.type, &all.type);
  free_shape(&shape);
  return all;
}

Shape resized(Shape shape, ptrdiff_t lb, ptrdiff_t extent) {
  Shape other{MPI_DATATYPE_NULL, shape.count, true, std::move(shape.blocks)};
  MPI_Type_create_resized(shape.type, lb, extent, &other.type);
  free_shape(&shape);
  return other;
}

}  // namespace player
