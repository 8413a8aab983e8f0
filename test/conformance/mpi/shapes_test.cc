// SPDX-License-Identifier: BSD-3-Clause
//
// shapes_test.cc: the types of the differential test, whose bytes are known without Open MPI: packed and
// unpacked by Open MPI in one pass, and by the component's own code. BFO_SHAPES says how many,
// BFO_SHAPES_SEED which.
#include "pml/bfo/glue/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "test/conformance/mpi/player/rng.h"
#include "test/conformance/mpi/player/side.h"

namespace bfo::glue {
namespace {

using player::Bytes;
using player::Side;
using player::SideSpec;

const char* const kLayouts[] = {"contiguous", "vector", "hvector",  "indexed", "hindexed",
                                "block",      "struct", "subarray", "darray",  "resized",
                                "negative",   "zero",   "bottom",   "nested"};
const char* const kBases[] = {"byte", "short",    "int",       "double",        "complex", "longdouble",
                              "2int", "shortint", "doubleint", "longdoubleint", "mixed"};

Layout layout_of(const Side& side) {
  return Layout(side.type()->super, static_cast<size_t>(side.count()), side.address());
}

// The same but for the padding of long doubles where Open MPI does not carry it.
bool same_memory(const Side& side, Bytes is, Bytes wanted) {
  if (is == wanted) return true;
  side.blank_padding(&is);
  side.blank_padding(&wanted);
  return is == wanted;
}

bool same_stream(const Side& side, const Bytes& is, const Bytes& wanted) {
  if (is == wanted) return true;
  Bytes here = side.memory();
  Bytes there = here;
  side.scatter(is, &here);
  side.scatter(wanted, &there);
  return same_memory(side, std::move(here), std::move(there));
}

std::string wrongly_sent(Side& side, uint64_t seed) {
  side.refill(seed);
  const Bytes wanted = side.gather(side.memory());
  Bytes got(wanted.size());
  int position = 0;
  MPI_Pack(side.address(), side.count(), side.type(), got.data(), static_cast<int>(got.size()), &position,
           MPI_COMM_SELF);
  if (!same_stream(side, got, wanted)) return "packed wrongly by Open MPI";
  got.assign(wanted.size(), 0);
  Cursor cursor;
  cursor.gather(layout_of(side), got.data(), got.size());
  return got != wanted ? "gathered wrongly" : "";
}

std::string wrongly_received(Side& side, uint64_t seed) {
  Bytes stream(side.size());
  player::fill(&stream, seed);
  side.refill(~seed);
  Bytes wanted = side.memory();
  side.scatter(stream, &wanted);
  int position = 0;
  MPI_Unpack(stream.data(), static_cast<int>(stream.size()), &position, side.address(), side.count(),
             side.type(), MPI_COMM_SELF);
  if (!same_memory(side, side.memory(), wanted)) return "unpacked wrongly by Open MPI";
  side.refill(~seed);
  Cursor cursor;
  cursor.scatter(layout_of(side), stream.data(), stream.size());
  return side.memory() != wanted ? "scattered wrongly" : "";
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

TEST(Shapes, TypesOfTheDifferentialTest_OpenMpiAndTheComponentFindTheSameBytes) {
  const uint64_t shapes = number("BFO_SHAPES", 20000);
  const uint64_t seed = number("BFO_SHAPES_SEED", 1);
  unsigned wrong = 0;
  for (uint64_t i = seed; i < seed + shapes && wrong < 5; ++i) {
    player::Rng rng(i);
    SideSpec spec;
    spec.layout = kLayouts[rng.below(std::size(kLayouts))];
    spec.base = kBases[rng.below(std::size(kBases))];
    spec.elements = 1 + rng.below(rng.chance(2) ? 30 : 700);
    spec.seed = i;
    spec.receiving = rng.chance(2);
    Side side(spec);
    const std::string what = spec.receiving ? wrongly_received(side, i) : wrongly_sent(side, i);
    if (what.empty()) continue;
    ++wrong;
    ADD_FAILURE() << spec.elements << " " << spec.base << ", " << spec.layout << ": " << what
                  << ": BFO_SHAPES_SEED=" << i;
  }
}

// The places of the bytes that MPI_Pack takes.
std::string places_packed(MPI_Datatype type) {
  constexpr int kOrigin = 64;
  char buffer[2 * kOrigin];
  for (int i = 0; i < 2 * kOrigin; ++i) buffer[i] = static_cast<char>(i);
  char packed[16];
  int size = 0;
  MPI_Type_commit(&type);
  MPI_Pack(buffer + kOrigin, 1, type, packed, sizeof(packed), &size, MPI_COMM_SELF);
  MPI_Type_free(&type);
  std::string said;
  for (int i = 0; i < size; ++i) said += " " + std::to_string(packed[i] - kOrigin);
  return said;
}

// Open MPI 4.1 takes a stride of -1 byte for none: elements follow one another upwards. The type itself is
// another one then, as its bounds and MPI_Pack tell, and no PML can know what was meant. Others are right.
TEST(Shapes, StrideOfMinusOneByte_IsAnotherTypeForOpenMpiItself) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_hvector(4, 1, -1, MPI_BYTE, &type);
  MPI_Aint lb = 0, extent = 0;
  MPI_Type_get_true_extent(type, &lb, &extent);
  const std::string said = places_packed(type);
  std::printf("hvector(4, 1, -1, MPI_BYTE): true lower bound %td, packed from%s\n", lb, said.c_str());
  // A libmpi that knows better is welcome, but its bounds and its bytes must agree.
  EXPECT_EQ(said, lb == 0 ? " 0 1 2 3" : " 0 -1 -2 -3");
  MPI_Type_create_hvector(4, 1, -2, MPI_BYTE, &type);
  EXPECT_EQ(places_packed(type), " 0 -2 -4 -6");
  MPI_Type_create_hvector(2, 2, -2, MPI_BYTE, &type);
  EXPECT_EQ(places_packed(type), " 0 1 -2 -1");
}

// libmpi of 5.0 takes other bytes, or dies, when a complex number follows the one before it by whole numbers
// and a half; every other distance is right, and so are other releases.
TEST(Shapes, ComplexNumbersHalfAnElementApart_ArePackedWronglyByOpenMpi5Itself) {
  constexpr int kSize = 16;
  for (int stride = kSize; stride < 3 * kSize; ++stride) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_hvector(2, 1, stride, MPI_C_DOUBLE_COMPLEX, &type);
    MPI_Type_commit(&type);
    char buffer[4 * kSize];
    for (int i = 0; i < 4 * kSize; ++i) buffer[i] = static_cast<char>(i);
    char packed[2 * kSize];
    int size = 0;
    MPI_Pack(buffer, 1, type, packed, sizeof(packed), &size, MPI_COMM_SELF);
    MPI_Type_free(&type);
    bool right = true;
    for (int i = 0; i < kSize; ++i)
      right &= packed[i] == buffer[i] && packed[kSize + i] == buffer[stride + i];
    if (!right) std::printf("hvector(2, 1, %d, MPI_C_DOUBLE_COMPLEX): packed wrongly\n", stride);
    // A libmpi of 5.0 that knows better is welcome.
    EXPECT_TRUE(right || (OMPI_MAJOR_VERSION == 5 && stride % kSize == kSize / 2)) << stride;
  }
}

}  // namespace
}  // namespace bfo::glue

int main(int argc, char** argv) {
  // Alone, with stock components: only the types are of interest.
  setenv("OMPI_MCA_pml", "ob1", 1);
  setenv("OMPI_MCA_btl", "self", 1);
  MPI_Init(&argc, &argv);
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
