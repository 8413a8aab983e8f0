// SPDX-License-Identifier: BSD-3-Clause
//
// random_types.h: derived datatypes made at random: one to seven constructors around a predefined type, with
// gaps, negative strides and extents, empty parts and blocks in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "pml/bfo/glue/layout.h"

namespace bfo::glue {

using Rng = std::mt19937_64;

inline int pick(Rng& rng, int low, int high) {
  return static_cast<int>(low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1)));
}

// A committed type, freed with the object.
class Type {
 public:
  Type() = default;
  explicit Type(MPI_Datatype type) : type_(type) {}
  Type(Type&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  Type& operator=(Type&& other) noexcept {
    std::swap(type_, other.type_);
    return *this;
  }
  ~Type() {
    int integers = 0, addresses = 0, types = 0, combiner = MPI_COMBINER_NAMED;
    if (type_ == MPI_DATATYPE_NULL) return;
    MPI_Type_get_envelope(type_, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(&type_);
  }
  MPI_Datatype get() const { return type_; }
  const opal_datatype_t& opal() const { return type_->super; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

inline MPI_Datatype basic(Rng& rng) {
  const MPI_Datatype types[] = {MPI_BYTE,
                                MPI_CHAR,
                                MPI_SHORT,
                                MPI_INT,
                                MPI_LONG_LONG,
                                MPI_FLOAT,
                                MPI_DOUBLE,
                                MPI_LONG_DOUBLE,
                                MPI_DOUBLE_INT,
                                MPI_SHORT_INT,
                                MPI_LONG_DOUBLE_INT,
                                MPI_C_LONG_DOUBLE_COMPLEX,
                                MPI_C_DOUBLE_COMPLEX,
                                MPI_INT16_T};
  return types[rng() % std::size(types)];
}

// Bytes from one element to the next, in either direction.
inline MPI_Aint step_of(MPI_Datatype type) {
  MPI_Aint lb = 0, extent = 0;
  MPI_Type_get_extent(type, &lb, &extent);
  return std::max<MPI_Aint>(std::abs(extent), 1);
}

// Bytes from the first to behind the last one that `type` touches.
inline MPI_Aint span_of(MPI_Datatype type) {
  MPI_Aint lb = 0, true_extent = 0;
  MPI_Type_get_true_extent(type, &lb, &true_extent);
  return std::max(true_extent, step_of(type));
}

// Blocks that do not overlap, some of them adjacent, from a lower bound that may be negative; in ascending
// order or in any.
struct Blocks {
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
};

inline Blocks random_blocks(Rng& rng, MPI_Datatype inner, int most) {
  Blocks blocks;
  MPI_Aint lb = 0, extent = 0;
  MPI_Type_get_extent(inner, &lb, &extent);
  const MPI_Aint step = step_of(inner);
  const MPI_Aint span = span_of(inner);
  MPI_Aint at = pick(rng, -200, 100);
  for (int n = pick(rng, 1, most); n > 0; --n) {
    const int length = pick(rng, 0, extent > 0 ? 4 : 1);
    blocks.lengths.push_back(length);
    blocks.places.push_back(at);
    if (length != 0) at += (length - 1) * step + span;
    if (pick(rng, 0, 2) != 0) at += pick(rng, 0, 40);
  }
  blocks.lengths.back() = 1;  // an empty type has no bounds
  if (pick(rng, 0, 3) != 0) return blocks;
  for (size_t i = blocks.lengths.size(); i > 1; --i) {
    const size_t k = rng() % i;
    std::swap(blocks.lengths[i - 1], blocks.lengths[k]);
    std::swap(blocks.places[i - 1], blocks.places[k]);
  }
  return blocks;
}

inline MPI_Datatype vector_of(Rng& rng, MPI_Datatype inner) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const int length = pick(rng, 1, 4);
  const MPI_Aint least = (length - 1) * step_of(inner) + span_of(inner);
  const MPI_Aint stride = least + pick(rng, 0, 1) * pick(rng, 0, 50);
  MPI_Type_create_hvector(pick(rng, 1, 9), length, pick(rng, 0, 3) == 0 ? -stride : stride, inner, &type);
  return type;
}

inline MPI_Datatype struct_of(Rng& rng, MPI_Datatype inner) {
  const MPI_Datatype other = basic(rng);
  Blocks blocks = random_blocks(rng, span_of(inner) > span_of(other) ? inner : other, 5);
  std::vector<MPI_Datatype> types;
  for (size_t i = 0; i < blocks.lengths.size(); ++i) types.push_back(pick(rng, 0, 1) != 0 ? inner : other);
  // The extents differ: one of each does not overlap.
  for (int& length : blocks.lengths) length = std::min(length, 1);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(static_cast<int>(types.size()), blocks.lengths.data(), blocks.places.data(),
                         types.data(), &type);
  return type;
}

inline MPI_Datatype derive(Rng& rng, MPI_Datatype inner) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  switch (pick(rng, 0, 8)) {
    case 0:
      return vector_of(rng, inner);
    case 1: {
      const Blocks blocks = random_blocks(rng, inner, 12);
      MPI_Type_create_hindexed(static_cast<int>(blocks.lengths.size()), blocks.lengths.data(),
                               blocks.places.data(), inner, &type);
      return type;
    }
    case 2:
      return struct_of(rng, inner);
    case 3: {
      MPI_Aint lb = 0, span = 0;
      MPI_Type_get_true_extent(inner, &lb, &span);
      MPI_Type_create_resized(inner, lb - pick(rng, 0, 9), span + pick(rng, 9, 60), &type);
      return type;
    }
    case 4: {
      const int sizes[] = {pick(rng, 2, 5), pick(rng, 2, 6)};
      const int part[] = {pick(rng, 1, sizes[0]), pick(rng, 1, sizes[1])};
      const int start[] = {pick(rng, 0, sizes[0] - part[0]), pick(rng, 0, sizes[1] - part[1])};
      MPI_Type_create_subarray(2, sizes, part, start, MPI_ORDER_C, basic(rng), &type);
      return type;
    }
    case 5: {  // each element before the last one
      MPI_Aint lb = 0, span = 0;
      MPI_Type_get_true_extent(inner, &lb, &span);
      MPI_Type_create_resized(inner, lb, -(span + pick(rng, 0, 60)), &type);
      return type;
    }
    case 6: {  // nothing, among something
      MPI_Datatype nothing = MPI_DATATYPE_NULL;
      MPI_Type_contiguous(0, inner, &nothing);
      const int lengths[] = {pick(rng, 0, 3), 1, pick(rng, 0, 3)};
      const MPI_Aint places[] = {pick(rng, -90, 90), pick(rng, -90, 90), pick(rng, -90, 90)};
      const MPI_Datatype types[] = {nothing, inner, nothing};
      MPI_Type_create_struct(3, lengths, places, types, &type);
      MPI_Type_free(&nothing);
      return type;
    }
    case 7:
      MPI_Type_dup(inner, &type);
      return type;
    default:
      MPI_Type_contiguous(pick(rng, 1, 5), inner, &type);
      return type;
  }
}

// More levels of loops than a cursor stores inline.
inline MPI_Datatype deep_type(Rng& rng) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_dup(pick(rng, 0, 1) != 0 ? MPI_BYTE : MPI_SHORT_INT, &type);
  for (int depth = pick(rng, 7, 9); depth > 0; --depth) {
    MPI_Datatype outer = MPI_DATATYPE_NULL;
    const MPI_Aint stride = span_of(type) + pick(rng, 1, 9);
    MPI_Type_create_hvector(depth % 2 != 0 ? 3 : 2, 1, stride, type, &outer);
    MPI_Type_free(&type);
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, span_of(outer) + 3};
    const MPI_Datatype types[] = {outer, MPI_INT};
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_free(&outer);
  }
  return type;
}

// One to seven constructors around a predefined type; sometimes none, sometimes many.
inline Type random_type(Rng& rng) {
  if (pick(rng, 0, 39) == 0) return Type(basic(rng));
  if (pick(rng, 0, 39) == 0) {
    MPI_Datatype deep = deep_type(rng);
    MPI_Type_commit(&deep);
    return Type(deep);
  }
  MPI_Datatype type = derive(rng, basic(rng));
  for (int depth = pick(rng, 0, 6); depth > 0; --depth) {
    int size = 0;
    MPI_Type_size(type, &size);
    if (size > 1500 || span_of(type) > 8000) break;
    const MPI_Datatype outer = derive(rng, type);
    MPI_Type_free(&type);
    type = outer;
  }
  MPI_Type_commit(&type);
  return Type(type);
}

}  // namespace bfo::glue
