// SPDX-License-Identifier: BSD-3-Clause
// A shape is an MPI datatype together with where its bytes are, computed without MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>
#include <vector>

namespace player {

/// `size` consecutive bytes at `at`, relative to the address given to MPI.
struct Run {
  ptrdiff_t at;
  size_t size;
};

/// What all layouts are made of. A derived base belongs to whoever made it (free_base).
struct Base {
  MPI_Datatype type;
  size_t size;             ///< bytes of data
  size_t extent;           ///< from one element to the next
  std::vector<Run> parts;  ///< where the data is inside one element
  bool derived;
};

/// `second` gives another arrangement in memory with the same type signature, where there is one. Ends the
/// job for an unknown name.
Base make_base(const std::string& name, bool second);
void free_base(Base* base);

/// `count` base elements, one extent apart, the first at `at`.
struct Block {
  ptrdiff_t at;
  size_t count;
};

/// `count` elements of `type`; `blocks` is what they cover, in the order of the type map. The type is not
/// committed and belongs to the holder (free_shape), unless it is the base itself.
struct Shape {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int count = 0;
  bool owned = false;
  std::vector<Block> blocks;
};

void free_shape(Shape* shape);

/// The bytes of a shape in the order of the type map.
std::vector<Run> runs_of(const Shape& shape, const Base& base);

/// Low and high end of the bytes a shape touches; {0, 0} when it touches none.
struct Span {
  ptrdiff_t low;
  ptrdiff_t high;
};
Span span_of(const std::vector<Block>& blocks, const Base& base);

// How shapes are put together; each takes over what it is given.
Shape contiguous(const Base& base, size_t n);
/// The same as one element of a new type.
Shape as_one(Shape shape);
/// `m` times `shape`, which must be one element, `stride` bytes apart.
Shape repeated(Shape shape, size_t m, ptrdiff_t stride);
/// `a` at displacement 0, and `b` at `at`.
Shape joined(Shape a, Shape b, ptrdiff_t at);
/// One element moved by `by` bytes.
Shape moved(Shape shape, ptrdiff_t by);
/// One element with other bounds.
Shape resized(Shape shape, ptrdiff_t lb, ptrdiff_t extent);

}  // namespace player
