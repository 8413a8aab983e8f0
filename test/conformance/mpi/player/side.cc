// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/side.h"

#include "test/conformance/mpi/player/rng.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

namespace player {
namespace {

constexpr size_t kGuard = 160;

// A type that Open MPI itself has understood wrongly: messages of it read and write beside the memory.
// Nothing would be learnt from them about a PML, and they would spoil what is next to that memory.
void check_bounds(const SideSpec& spec, const Shape& shape, const Base& base) {
  if (shape.count != 1 || spec.elements == 0 || base.parts.empty()) return;
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_true_extent(shape.type, &low, &extent);
  const std::vector<Run> runs = runs_of(shape, base);
  ptrdiff_t first = runs.front().at;
  ptrdiff_t end = first;
  for (const Run& run : runs) {
    first = std::min(first, run.at);
    end = std::max(end, run.at + static_cast<ptrdiff_t>(run.size));
  }
  if (low == first && extent == end - first) return;
  std::fprintf(stderr,
               "player: layout %s, %zu of %s, seed %llu: its bytes are at %td to %td, Open MPI says %td to "
               "%td; leave it "
               "out in player/layout.cc\n",
               spec.layout.c_str(), spec.elements, spec.base.c_str(),
               static_cast<unsigned long long>(spec.seed), first, end, low, low + extent);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

}  // namespace

void fill(Bytes* bytes, uint64_t seed) {
  const size_t words = bytes->size() / 8;
  for (size_t w = 0; w < words; ++w) {
    const uint64_t value = (seed + w) * 0x9e3779b97f4a7c15u ^ (w << 40);
    std::memcpy(bytes->data() + w * 8, &value, 8);
  }
  for (size_t i = words * 8; i < bytes->size(); ++i) (*bytes)[i] = static_cast<unsigned char>(seed + i * 31);
}

uint64_t digest(const Bytes& bytes) {
  uint64_t sum = mix(bytes.size());
  const size_t words = bytes.size() / 8;
  for (size_t w = 0; w < words; ++w) {
    uint64_t value;
    std::memcpy(&value, bytes.data() + w * 8, 8);
    sum = (sum ^ value) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 32;
  }
  for (size_t i = words * 8; i < bytes.size(); ++i) sum = mix(sum ^ bytes[i]);
  return sum;
}

Side::Side(const SideSpec& spec)
    : base_(make_base(spec.base, spec.receiving)),
      shape_(make_layout(spec.layout, base_, spec.elements, spec.seed, spec.receiving)),
      runs_(runs_of(shape_, base_)),
      elements_(spec.elements) {
  const Span span = span_of(shape_.blocks, base_);
  // A multiple of 16 below displacement 0, so that alignment is what malloc gives.
  const size_t below = (kGuard + static_cast<size_t>(std::max<ptrdiff_t>(0, -span.low)) + 15) / 16 * 16;
  origin_ = static_cast<ptrdiff_t>(below);
  memory_.resize(below + static_cast<size_t>(std::max<ptrdiff_t>(0, span.high)) + kGuard);
  address_ = memory_.data() + origin_;
  check_bounds(spec, shape_, base_);
  if (spec.layout == "bottom" && spec.elements > 0) {
    MPI_Aint here;
    MPI_Get_address(address_, &here);
    Shape absolute{MPI_DATATYPE_NULL, 1, true, std::move(shape_.blocks)};
    MPI_Type_create_struct(1, &shape_.count, &here, &shape_.type, &absolute.type);
    free_shape(&shape_);
    shape_ = std::move(absolute);
    address_ = MPI_BOTTOM;
  }
  shape_.blocks = {};
  if (shape_.owned) MPI_Type_commit(&shape_.type);
}

Side::~Side() {
  free_type();
  free_base(&base_);
}

void Side::free_type() {
  free_shape(&shape_);
}

Bytes Side::gather(const Bytes& image) const {
  Bytes stream(size());
  unsigned char* to = stream.data();
  for (const Run& run : runs_) {
    std::memcpy(to, image.data() + origin_ + run.at, run.size);
    to += run.size;
  }
  return stream;
}

void Side::scatter(const Bytes& stream, Bytes* image) const {
  size_t used = 0;
  for (const Run& run : runs_) {
    const size_t part = std::min(run.size, stream.size() - used);
    if (part == 0) break;
    std::memcpy(image->data() + origin_ + run.at, stream.data() + used, part);
    used += part;
  }
}

int Side::count_of(const MPI_Status& status) const {
  int count = 0;
  MPI_Get_count(&status, base_.type, &count);
  return count;
}

std::string Side::difference(const Bytes& is, const Bytes& wanted) const {
  Bytes data(is.size());
  for (const Run& run : runs_) std::memset(data.data() + origin_ + run.at, 1, run.size);
  size_t inside = 0;
  size_t outside = 0;
  size_t first = is.size();
  size_t last = 0;
  for (size_t i = 0; i < is.size(); ++i) {
    if (is[i] == wanted[i]) continue;
    ++(data[i] ? inside : outside);
    first = std::min(first, i);
    last = i;
  }
  return std::to_string(inside) + " bytes of data and " + std::to_string(outside) +
         " bytes outside it, from displacement " + std::to_string(static_cast<ptrdiff_t>(first) - origin_) +
         " to " + std::to_string(static_cast<ptrdiff_t>(last) - origin_) + ", " + std::to_string(size()) +
         " bytes of data in all";
}

void Side::blank(Bytes* image) const {
  for (const Run& run : runs_) std::memset(image->data() + origin_ + run.at, 0, run.size);
}

void Side::blank_padding(Bytes* image) const {
#if OMPI_MAJOR_VERSION >= 5
  constexpr size_t kWhole = sizeof(long double);
  constexpr size_t kValue = std::numeric_limits<long double>::digits == 64 ? 10 : kWhole;
  if (base_.type != MPI_LONG_DOUBLE && base_.type != MPI_LONG_DOUBLE_INT) return;
  for (const Run& run : runs_) {
    if (run.size % kWhole != 0) continue;  // the int behind one
    for (size_t at = 0; at < run.size; at += kWhole)
      std::memset(image->data() + origin_ + run.at + at + kValue, 0, kWhole - kValue);
  }
#else
  static_cast<void>(image);
#endif
}

Bytes stream_of(const SideSpec& spec, uint64_t content) {
  Side side(spec);
  side.refill(content);
  return side.gather(side.memory());
}

}  // namespace player
