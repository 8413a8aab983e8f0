// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/layout.h"

#include "test/conformance/mpi/player/rng.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace player {
namespace {

#if OMPI_MAJOR_VERSION == 5
constexpr bool kHalvesAreWrong = true;
#else
constexpr bool kHalvesAreWrong = false;
#endif

// More blocks only cost time.
constexpr size_t kMostBlocks = 6000;

struct Draw {
  const Base& base;
  Rng rng;
  bool receiving;

  ptrdiff_t extent() const { return static_cast<ptrdiff_t>(base.extent); }
  /// Elements in one block, so that `n` elements are not too many blocks.
  size_t block_of(size_t n) {
    static constexpr size_t kUsual[] = {1, 1, 2, 3, 5, 16, 61, 256, 1000};
    const size_t least = n / kMostBlocks + 1;
    return std::max(least, std::min(n, kUsual[rng.below(std::size(kUsual))]));
  }
  /// A gap in bytes, often not a multiple of anything.
  ptrdiff_t gap() {
    static constexpr ptrdiff_t kUsual[] = {0, 1, 3, 4, 8, 13, 64, 100};
    const ptrdiff_t usual = kUsual[rng.below(std::size(kUsual))];
    // Complex numbers whole numbers and a half apart: see shapes_test, ComplexNumbersHalfAnElementApart.
    return kHalvesAreWrong && base.type == MPI_C_DOUBLE_COMPLEX ? (usual + extent() - 1) / extent() * extent()
                                                                : usual;
  }
};

// `shape` has used up a part of `n`; the rest follows behind its end.
Shape with_rest(Draw* draw, Shape shape, size_t used, size_t n) {
  if (used == n) return shape;
  const ptrdiff_t end = span_of(shape.blocks, draw->base).high;
  return joined(as_one(std::move(shape)), contiguous(draw->base, n - used), end + draw->gap());
}

Shape vector_of(Draw* draw, size_t n, bool in_bytes) {
  const size_t block = draw->block_of(n);
  const size_t rows = n / block;
  const ptrdiff_t gap =
      in_bytes ? draw->gap() : draw->extent() * static_cast<ptrdiff_t>(1 + draw->rng.below(4));
  const ptrdiff_t stride = draw->extent() * static_cast<ptrdiff_t>(block) + gap;
  Shape shape{MPI_DATATYPE_NULL, 1, true, {}};
  for (size_t i = 0; i < rows; ++i) shape.blocks.push_back({static_cast<ptrdiff_t>(i) * stride, block});
  const int count = static_cast<int>(rows);
  if (in_bytes)
    MPI_Type_create_hvector(count, static_cast<int>(block), stride, draw->base.type, &shape.type);
  else
    MPI_Type_vector(count, static_cast<int>(block), static_cast<int>(stride / draw->extent()),
                    draw->base.type, &shape.type);
  return with_rest(draw, std::move(shape), rows * block, n);
}

enum class Index { kElements, kBytes, kSameLength, kStruct };

// Blocks with gaps between them, sometimes not in ascending order.
Shape indexed_of(Draw* draw, size_t n, Index how) {
  const size_t usual =
      how == Index::kStruct ? std::max<size_t>(1, n / (1 + draw->rng.below(8))) : draw->block_of(n);
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  ptrdiff_t at = 0;
  size_t used = 0;
  while (used < n) {
    size_t length = how == Index::kSameLength ? usual : 1 + draw->rng.below(2 * usual);
    if (how == Index::kSameLength && used + length > n) break;
    length = std::min(length, n - used);
    at += how == Index::kElements || how == Index::kSameLength
              ? draw->extent() * static_cast<ptrdiff_t>(draw->rng.below(4))
              : draw->gap();
    lengths.push_back(static_cast<int>(length));
    places.push_back(at);
    at += draw->extent() * static_cast<ptrdiff_t>(length);
    used += length;
  }
  if (draw->rng.chance(3))
    for (size_t i = places.size(); i > 1; --i) {
      const size_t j = draw->rng.below(i);
      std::swap(places[i - 1], places[j]);
      std::swap(lengths[i - 1], lengths[j]);
    }
  Shape shape{MPI_DATATYPE_NULL, 1, true, {}};
  for (size_t i = 0; i < places.size(); ++i)
    shape.blocks.push_back({places[i], static_cast<size_t>(lengths[i])});
  const int blocks = static_cast<int>(places.size());
  std::vector<int> elements;
  for (const MPI_Aint place : places) elements.push_back(static_cast<int>(place / draw->extent()));
  const std::vector<MPI_Datatype> types(places.size(), draw->base.type);
  switch (how) {
    case Index::kElements:
      MPI_Type_indexed(blocks, lengths.data(), elements.data(), draw->base.type, &shape.type);
      break;
    case Index::kBytes:
      MPI_Type_create_hindexed(blocks, lengths.data(), places.data(), draw->base.type, &shape.type);
      break;
    case Index::kSameLength:
      MPI_Type_create_indexed_block(blocks, static_cast<int>(usual), elements.data(), draw->base.type,
                                    &shape.type);
      break;
    case Index::kStruct:
      MPI_Type_create_struct(blocks, lengths.data(), places.data(), types.data(), &shape.type);
      break;
  }
  return with_rest(draw, std::move(shape), used, n);
}

// A box of planes x rows x columns inside a larger one; the dimension that varies slowest comes first.
Shape subarray_of(Draw* draw, size_t n) {
  const size_t columns = draw->block_of(n);
  const size_t planes = n / columns > 3 ? 1 + draw->rng.below(3) : 1;
  const size_t rows = n / columns / planes;
  size_t part[3] = {planes, rows, columns};
  int whole[3], inner[3], start[3];
  const bool fortran = draw->rng.chance(3);
  for (int d = 0; d < 3; ++d) {
    const int at = fortran ? 2 - d : d;
    start[at] = static_cast<int>(draw->rng.below(3));
    inner[at] = static_cast<int>(part[d]);
    whole[at] = inner[at] + start[at] + static_cast<int>(draw->rng.below(3));
  }
  const auto of = [&](const int* values, int d) { return static_cast<size_t>(values[fortran ? 2 - d : d]); };
  Shape shape{MPI_DATATYPE_NULL, 1, true, {}};
  for (size_t p = 0; p < planes; ++p)
    for (size_t r = 0; r < rows; ++r) {
      const size_t row = (p + of(start, 0)) * of(whole, 1) + r + of(start, 1);
      shape.blocks.push_back(
          {draw->extent() * static_cast<ptrdiff_t>(row * of(whole, 2) + of(start, 2)), columns});
    }
  MPI_Type_create_subarray(3, whole, inner, start, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, draw->base.type,
                           &shape.type);
  return with_rest(draw, std::move(shape), planes * rows * columns, n);
}

// What one process of a grid has: blocks of rows, and columns dealt out in blocks.
Shape darray_of(Draw* draw, size_t n) {
  const size_t block = draw->block_of(n);
  const size_t rows = n / block > 4 ? 1 + draw->rng.below(4) : 1;
  const size_t cycles = n / block / rows;
  const size_t grid[2] = {1 + draw->rng.below(3), 1 + draw->rng.below(3)};
  const size_t mine[2] = {draw->rng.below(grid[0]), draw->rng.below(grid[1])};
  const int sizes[2] = {static_cast<int>(rows * grid[0]), static_cast<int>(cycles * grid[1] * block)};
  const int kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
  const int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, static_cast<int>(block)};
  const int processes[2] = {static_cast<int>(grid[0]), static_cast<int>(grid[1])};
  Shape shape{MPI_DATATYPE_NULL, 1, true, {}};
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cycles; ++c) {
      const size_t element =
          (mine[0] * rows + r) * static_cast<size_t>(sizes[1]) + (c * grid[1] + mine[1]) * block;
      shape.blocks.push_back({draw->extent() * static_cast<ptrdiff_t>(element), block});
    }
  MPI_Type_create_darray(static_cast<int>(grid[0] * grid[1]), static_cast<int>(mine[0] * grid[1] + mine[1]),
                         2, sizes, kinds, arguments, processes, MPI_ORDER_C, draw->base.type, &shape.type);
  return with_rest(draw, std::move(shape), rows * cycles * block, n);
}

// Columns of a matrix, each of which begins one element after the other; or elements with a wide extent.
Shape resized_of(Draw* draw, size_t n) {
  if (draw->rng.chance(3)) {
    const size_t block = draw->block_of(n);
    const size_t m = n / block;
    const ptrdiff_t extent = draw->extent() * static_cast<ptrdiff_t>(block) + draw->gap();
    Shape shape = resized(as_one(contiguous(draw->base, block)), 0, extent);
    const std::vector<Block> one = std::move(shape.blocks);
    shape.blocks.clear();
    for (size_t i = 0; i < m; ++i) shape.blocks.push_back({static_cast<ptrdiff_t>(i) * extent, one[0].count});
    shape.count = static_cast<int>(m);
    return with_rest(draw, std::move(shape), m * block, n);
  }
  const size_t wide = std::min<size_t>(n, 1 + draw->rng.below(12));
  const size_t rows = std::min(n / wide, kMostBlocks / wide);
  const ptrdiff_t pitch = draw->extent() * static_cast<ptrdiff_t>(wide);
  Shape shape = resized(repeated(as_one(contiguous(draw->base, 1)), rows, pitch), 0, draw->extent());
  shape.blocks.clear();
  for (size_t column = 0; column < wide; ++column)
    for (size_t row = 0; row < rows; ++row)
      shape.blocks.push_back(
          {static_cast<ptrdiff_t>(row) * pitch + static_cast<ptrdiff_t>(column) * draw->extent(), 1});
  shape.count = static_cast<int>(wide);
  return with_rest(draw, std::move(shape), rows * wide, n);
}

// Below the address given: strided backwards, or with a lower bound.
Shape negative_of(Draw* draw, size_t n) {
  if (draw->rng.chance(2)) {
    const size_t block = draw->block_of(n);
    const size_t m = n / block;
    ptrdiff_t stride = draw->extent() * static_cast<ptrdiff_t>(block) + draw->gap();
    // A stride of -1 byte is none for Open MPI 4.1: see shapes_test, StrideOfMinusOneByte.
    if (stride == 1) stride = 2;
    return with_rest(draw, repeated(as_one(contiguous(draw->base, block)), m, -stride), m * block, n);
  }
  const ptrdiff_t by =
      -(draw->extent() * static_cast<ptrdiff_t>(draw->rng.below(2 * n + 2)) + draw->gap() + 1);
  Shape shape = moved(as_one(vector_of(draw, n, false)), by);
  const Span span = span_of(shape.blocks, draw->base);
  return resized(std::move(shape), span.low - draw->gap(), span.high - span.low + draw->gap());
}

// No extent: a sender reads the same bytes again and again, a receiver takes one element.
Shape zero_extent_of(Draw* draw, size_t n) {
  if (draw->receiving) return resized(as_one(vector_of(draw, n, true)), 0, 0);
  const size_t block = draw->block_of(n);
  const size_t m = n / block;
  Shape shape = resized(as_one(contiguous(draw->base, block)), 0, 0);
  shape.count = static_cast<int>(m);
  shape.blocks.assign(m, Block{0, block});
  return with_rest(draw, std::move(shape), m * block, n);
}

Shape any_of(Draw* draw, size_t n, size_t depth);

// Types of types of types.
Shape nested_of(Draw* draw, size_t n, size_t depth) {
  const size_t most = std::max<size_t>(1, n / (1 + draw->rng.below(n < 8 ? n : 8)));
  const size_t least = std::min(n, n / (kMostBlocks / 4) + 1);
  const size_t inner = least + draw->rng.below(most - std::min(most, least) + 1);
  Shape shape = as_one(any_of(draw, inner, depth));
  const Span span = span_of(shape.blocks, draw->base);
  const size_t m =
      std::min(n / inner, std::max<size_t>(1, kMostBlocks / std::max<size_t>(1, shape.blocks.size())));
  const ptrdiff_t stride = span.high - span.low + draw->gap();
  if (draw->rng.chance(3)) {
    shape = resized(std::move(shape), span.low, stride);
    const std::vector<Block> one = shape.blocks;
    for (size_t i = 1; i < m; ++i)
      for (const Block& block : one)
        shape.blocks.push_back({block.at + static_cast<ptrdiff_t>(i) * stride, block.count});
    shape.count = static_cast<int>(m);
  } else {
    shape = repeated(std::move(shape), m, stride);
  }
  return with_rest(draw, std::move(shape), m * inner, n);
}

Shape any_of(Draw* draw, size_t n, size_t depth) {
  if (n == 0) return contiguous(draw->base, 0);
  if (depth > 0 && draw->rng.chance(2)) return nested_of(draw, n, depth - 1);
  switch (draw->rng.below(6)) {
    case 0:
      return vector_of(draw, n, false);
    case 1:
      return vector_of(draw, n, true);
    case 2:
      return indexed_of(draw, n, Index::kElements);
    case 3:
      return indexed_of(draw, n, Index::kStruct);
    case 4:
      return subarray_of(draw, n);
    default:
      return contiguous(draw->base, n);
  }
}

}  // namespace

Shape make_layout(const std::string& kind, const Base& base, size_t n, uint64_t seed, bool receiving) {
  Draw draw{base, Rng(seed), receiving};
  if (kind == "contiguous" || n == 0)
    return draw.rng.chance(2) ? contiguous(base, n) : as_one(contiguous(base, n));
  if (kind == "vector") return vector_of(&draw, n, false);
  if (kind == "hvector") return vector_of(&draw, n, true);
  if (kind == "indexed") return indexed_of(&draw, n, Index::kElements);
  if (kind == "hindexed") return indexed_of(&draw, n, Index::kBytes);
  if (kind == "block") return indexed_of(&draw, n, Index::kSameLength);
  if (kind == "struct") return indexed_of(&draw, n, Index::kStruct);
  if (kind == "subarray") return subarray_of(&draw, n);
  if (kind == "darray") return darray_of(&draw, n);
  if (kind == "resized") return resized_of(&draw, n);
  if (kind == "negative") return negative_of(&draw, n);
  if (kind == "zero") return zero_extent_of(&draw, n);
  if (kind == "bottom") return any_of(&draw, n, 1);
  if (kind == "nested") return nested_of(&draw, n, 1 + draw.rng.below(4));
  std::fprintf(stderr, "player: unknown layout %s\n", kind.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  return {};
}

}  // namespace player
