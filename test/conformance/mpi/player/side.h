// SPDX-License-Identifier: BSD-3-Clause
// One end of a message: datatype, memory with guard bytes around it, and what every byte of that memory must
// be.
#pragma once

#include "test/conformance/mpi/player/layout.h"

#include <cstdint>
#include <string>
#include <vector>

namespace player {

using Bytes = std::vector<unsigned char>;

/// What a side is made from; the same on every rank.
struct SideSpec {
  std::string layout;
  std::string base;
  size_t elements;
  uint64_t seed;
  bool receiving;
};

/// Fills with bytes that depend on `seed` and the place alone.
void fill(Bytes* bytes, uint64_t seed);
/// A number for the bytes; equal bytes have equal numbers.
uint64_t digest(const Bytes& bytes);

class Side {
 public:
  explicit Side(const SideSpec& spec);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // What MPI is given.
  void* address() const { return address_; }
  int count() const { return shape_.count; }
  MPI_Datatype type() const { return shape_.type; }
  /// The datatype may be freed while messages with it are under way.
  void free_type();

  size_t elements() const { return elements_; }
  size_t element_size() const { return base_.size; }
  size_t size() const { return elements_ * base_.size; }

  /// New content for all memory, guard bytes and holes included.
  void refill(uint64_t seed) { fill(&memory_, seed); }
  const Bytes& memory() const { return memory_; }
  /// The data of `image`, which is laid out as the memory is, in the order of the type map.
  Bytes gather(const Bytes& image) const;
  /// The first bytes of the data of `image` become `stream`.
  void scatter(const Bytes& stream, Bytes* image) const;
  /// How many base elements a message had; MPI_UNDEFINED when it ended inside one.
  int count_of(const MPI_Status& status) const;
  /// Where `is` differs from `wanted`, in words.
  std::string difference(const Bytes& is, const Bytes& wanted) const;
  /// All data of `image` becomes zero.
  void blank(Bytes* image) const;
  /// What need not come becomes zero: from Open MPI 5.0 on libmpi packs the value of a long double, and not
  /// the padding of its 16 bytes (MPI_Sendrecv_replace, all that ob1 packs).
  void blank_padding(Bytes* image) const;

 private:
  Base base_;
  Shape shape_;
  std::vector<Run> runs_;
  size_t elements_;
  Bytes memory_;
  ptrdiff_t origin_;  // index in the memory of displacement 0
  void* address_;
};

/// The data a side made from `spec` would send after refill(`content`); needs no MPI type of its own to be
/// committed.
Bytes stream_of(const SideSpec& spec, uint64_t content);

}  // namespace player
