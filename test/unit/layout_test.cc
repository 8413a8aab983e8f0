// SPDX-License-Identifier: BSD-3-Clause
//
// layout_test.cc: bytes of random types, moved in random pieces and orders by the component's own code,
// against one pass of Open MPI's convertor. BFO_LAYOUT_TYPES says how many types, BFO_LAYOUT_SEED which.
#include "test/unit/random_types.h"

#include "test/sim/sanitized.h"
#ifdef BFO_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace bfo::glue {
namespace {

constexpr uint8_t kGuard = 0xa5;

// `count` elements of a type, with guard bytes around.
struct Buffer {
  static constexpr MPI_Aint kMargin = 64;
  std::vector<uint8_t> bytes;
  MPI_Aint origin = 0;
  Buffer(const Type& type, int count, uint8_t fill) {
    MPI_Aint lb = 0, extent = 0, true_lb = 0, true_extent = 0;
    MPI_Type_get_extent(type.get(), &lb, &extent);
    MPI_Type_get_true_extent(type.get(), &true_lb, &true_extent);
    const MPI_Aint shift = (count - 1) * extent;
    const MPI_Aint low = std::min<MPI_Aint>({true_lb, true_lb + shift, 0});
    const MPI_Aint high = std::max<MPI_Aint>({true_lb + true_extent, true_lb + true_extent + shift, 0});
    origin = kMargin - low;
    bytes.assign(static_cast<size_t>(high - low + 2 * kMargin), fill);
  }
  uint8_t* address() { return bytes.data() + origin; }
};

struct Piece {
  size_t offset;
  size_t length;
};

// Where FRAGs would be cut: mostly of one size, as by a rail's limit; some anywhere.
std::vector<Piece> cut(Rng& rng, size_t total) {
  std::vector<Piece> pieces;
  const size_t usual = 1 + rng() % std::max<size_t>(total / 3 + 1, 1);
  for (size_t at = 0; at < total;) {
    const size_t n = std::min(total - at, pick(rng, 0, 3) == 0 ? 1 + rng() % 40 : usual);
    pieces.push_back({at, n});
    at += n;
  }
  return pieces;
}

// The orders that rails make: in order, two rails one of which is late, backwards, any.
void reorder(Rng& rng, std::vector<Piece>& pieces) {
  switch (pick(rng, 0, 4)) {
    case 0:
      return;
    case 1:
      for (size_t i = 0; i + 1 < pieces.size(); i += 2) std::swap(pieces[i], pieces[i + 1]);
      return;
    case 2:
      std::reverse(pieces.begin(), pieces.end());
      return;
    case 3:
      std::stable_partition(pieces.begin(), pieces.end(),
                            [&](const Piece& p) { return (&p - pieces.data()) % 2; });
      return;
    default:
      std::shuffle(pieces.begin(), pieces.end(), rng);
  }
}

// Some pieces come again, some are longer than they need to be: what a restart sends.
void overlap(Rng& rng, std::vector<Piece>& pieces, size_t total) {
  const size_t n = pieces.size();
  for (size_t i = 0; i < n; ++i) {
    if (rng() % 8 != 0) continue;
    Piece again = pieces[i];
    again.length = std::min(total - again.offset, again.length + rng() % 64);
    pieces.insert(pieces.begin() + static_cast<ptrdiff_t>(rng() % (pieces.size() + 1)), again);
  }
}

// All bytes of the buffer packed in one pass by the convertor, from its start: that is right (shapes_test).
std::vector<uint8_t> packed(const Type& type, int count, uint8_t* address) {
  int size = 0;
  MPI_Pack_size(count, type.get(), MPI_COMM_SELF, &size);
  std::vector<uint8_t> out(static_cast<size_t>(size) + 1);
  int position = 0;
  MPI_Pack(address, count, type.get(), out.data(), size, &position, MPI_COMM_SELF);
  out.resize(static_cast<size_t>(position));
  return out;
}

void unpack_whole(const Type& type, int count, const std::vector<uint8_t>& in, uint8_t* address) {
  int position = 0;
  MPI_Unpack(in.data(), static_cast<int>(in.size()), &position, address, count, type.get(), MPI_COMM_SELF);
}

// Where the elements are: at an address, or at MPI_BOTTOM in a type that knows the address.
struct Place {
  Type absolute;
  Layout layout;
  Place(Rng& rng, const Type& type, int count, uint8_t* address) {
    if (pick(rng, 0, 2) != 0) {
      layout = Layout(type.opal(), static_cast<size_t>(count), address);
      return;
    }
    MPI_Datatype made = MPI_DATATYPE_NULL;
    const MPI_Aint place = reinterpret_cast<MPI_Aint>(address);
    MPI_Type_create_hindexed(1, &count, &place, type.get(), &made);
    MPI_Type_commit(&made);
    absolute = Type(made);
    layout = Layout(absolute.opal(), 1, MPI_BOTTOM);
  }
};

// The same as a send finds it.
Layout sent(const Layout& whole, const Type& type, size_t count) {
  opal_convertor_t conv;
  OBJ_CONSTRUCT(&conv, opal_convertor_t);
  opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &type.opal(), count,
                                           reinterpret_cast<void*>(whole.base), 0, &conv);
  Layout layout(conv);
  opal_convertor_cleanup(&conv);
  OBJ_DESTRUCT(&conv);
  return layout;
}

// Open MPI itself takes some types for contiguous that were resized and then put into a struct with empty
// blocks. They are sent and received without a Layout, and come out wrong with any PML.
bool misjudged(const Type& type) {
  const opal_datatype_t& t = type.opal();
  return (t.flags & OPAL_DATATYPE_FLAG_NO_GAPS) != 0 && t.ub - t.lb != static_cast<ptrdiff_t>(t.size);
}

// One random type: scattered and gathered in pieces. Empty: right.
std::string wrong_of(uint64_t seed) {
  Rng rng(seed);
  const Type type = random_type(rng);
  if (misjudged(type)) return "";
  const int count = pick(rng, 1, 12);
  Buffer source(type, count, 0);
  for (uint8_t& b : source.bytes) b = static_cast<uint8_t>(rng());
  const std::vector<uint8_t> message = packed(type, count, source.address());
  if (message.empty()) return "";
  Buffer expected(type, count, kGuard);
  unpack_whole(type, count, message, expected.address());
  // Where data overlap, what is there depends on the order.
  const bool overlaps = packed(type, count, expected.address()) != message;

  std::vector<Piece> pieces = cut(rng, message.size());
  reorder(rng, pieces);
  if (rng() % 2 != 0) overlap(rng, pieces, message.size());
  Buffer got(type, count, kGuard);
  std::vector<uint8_t> gathered(message.size(), kGuard);
  const Place target(rng, type, count, got.address());
  const Place origin(rng, type, count, source.address());
  Trail into(target.layout);
  Trail from(origin.absolute.get() != MPI_DATATYPE_NULL
                 ? sent(origin.layout, origin.absolute, 1)
                 : sent(origin.layout, type, static_cast<size_t>(count)));
  for (const Piece& p : pieces) {
    into.scatter(p.offset, message.data() + p.offset, p.length, rng() % 8 != 0);
    Cursor cursor = from.at(p.offset);
    cursor.gather(from.layout(), gathered.data() + p.offset, p.length);
    if (rng() % 4 != 0) from.keep(p.offset, cursor, true);  // else its rail refused it
  }
  if (!overlaps && got.bytes != expected.bytes) return "scattered wrongly";
  if (gathered != message) return "gathered wrongly";
  return "";
}

// A message of `pieces` pieces over `rails` rails, of each of which the receiver reads `queue` at a time.
// Returns the bytes walked in vain, for each byte of the message.
double vain(unsigned rails, unsigned pieces, unsigned queue) {
  constexpr size_t kPiece = 1000;
  std::vector<int> lengths(pieces * kPiece / 8, 8), places(lengths.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i) * 9;
  MPI_Datatype made = MPI_DATATYPE_NULL;
  MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_BYTE, &made);
  MPI_Type_commit(&made);
  const Type type(made);
  Buffer buffer(type, 1, kGuard);
  Trail trail(Layout(type.opal(), 1, buffer.address()));
  const std::vector<uint8_t> bytes(kPiece, 1);
  std::vector<bool> here(pieces + 1);
  here[pieces] = true;
  std::vector<unsigned> next(rails);
  for (unsigned r = 0; r < rails; ++r) next[r] = r;
  for (unsigned done = 0; done < pieces;)
    for (unsigned k = 0; k < rails; ++k) {
      const unsigned r = rails - 1 - k;  // the rail with the oldest piece comes last
      for (unsigned q = 0; q < queue && next[r] < pieces; ++q, next[r] += rails, ++done) {
        trail.scatter(next[r] * kPiece, bytes.data(), kPiece, !here[next[r] + 1]);
        here[next[r]] = true;
      }
    }
  EXPECT_LE(trail.count(), Trail::kMost);
  EXPECT_EQ(static_cast<size_t>(std::count(buffer.bytes.begin(), buffer.bytes.end(), 1)), pieces * kPiece);
  return static_cast<double>(trail.skipped()) / static_cast<double>(pieces * kPiece);
}

TEST(Layout, RailsAreReadOneAfterTheOther_WorkIsLinear) {
  EXPECT_EQ(vain(1, 200, 1), 0.0);
  for (unsigned rails : {2u, 3u, 4u, 8u})
    for (unsigned queue : {1u, 4u, 30u, 1000u})
      EXPECT_LE(vain(rails, 2000, queue), rails) << rails << " rails, " << queue << " pieces at a time";
}

// From the allocation with this number on, there is no memory; negative: there is.
int allocations_left = -1;

// A type of more levels than a cursor stores inline, in pieces, while memory ends sooner or later: what was
// moved is right, and what could not be is said.
TEST(Layout, NoMemoryForTheLevelsOfAType_IsSaidAndNothingElseIsWrong) {
  unsigned refused = 0;
  for (int memory = 0; memory < 12; ++memory) {
    Rng rng(static_cast<uint64_t>(memory));
    MPI_Datatype made = deep_type(rng);
    MPI_Type_commit(&made);
    const Type type(made);
    Buffer source(type, 2, 0);
    for (uint8_t& b : source.bytes) b = static_cast<uint8_t>(rng());
    const std::vector<uint8_t> message = packed(type, 2, source.address());
    std::vector<Piece> pieces = cut(rng, message.size());
    reorder(rng, pieces);
    Buffer got(type, 2, kGuard);
    Trail into(Layout(type.opal(), 2, got.address()));
    Trail from(Layout(type.opal(), 2, source.address()));
    allocations_left = memory;
    for (const Piece& p : pieces) {
      std::vector<uint8_t> bytes(p.length);
      Cursor cursor = from.at(p.offset);
      const bool gathered = cursor.gather(from.layout(), bytes.data(), p.length);
      if (gathered) {
        EXPECT_EQ(memcmp(bytes.data(), message.data() + p.offset, p.length), 0);
        from.keep(p.offset, cursor, true);
      }
      refused += !gathered;
      const bool scattered = into.scatter(p.offset, message.data() + p.offset, p.length, true);
      refused += !scattered;
      if (scattered) continue;
      // Memory is back: the same piece comes again.
      allocations_left = -1;
      EXPECT_TRUE(into.scatter(p.offset, message.data() + p.offset, p.length, true));
    }
    allocations_left = -1;
    EXPECT_EQ(packed(type, 2, got.address()), message) << memory;
  }
  EXPECT_GT(refused, 12u);
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

TEST(Layout, RandomTypesInRandomPieces_EveryByteIsRight) {
  const uint64_t types = number("BFO_LAYOUT_TYPES", 10000);
  const uint64_t seed = number("BFO_LAYOUT_SEED", 1);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < types; ++i) {
    const std::string what = wrong_of(seed + i);
    if (what.empty()) continue;
    if (++wrong <= 5) ADD_FAILURE() << what << ": BFO_LAYOUT_SEED=" << seed + i << " BFO_LAYOUT_TYPES=1";
  }
  std::printf("%llu types, %llu wrong\n", static_cast<unsigned long long>(types),
              static_cast<unsigned long long>(wrong));
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace bfo::glue

// The linker puts it in the place of malloc() of the component's code (--wrap).
extern "C" {
void* __real_malloc(size_t size);
void* __wrap_malloc(size_t size);
void* __wrap_malloc(size_t size) {
  if (bfo::glue::allocations_left == 0) return nullptr;
  if (bfo::glue::allocations_left > 0) --bfo::glue::allocations_left;
  return __real_malloc(size);
}
}

namespace {

// libmpi keeps what it allocates when it starts and ends: that is no leak of the code under test.
struct LibraryLeaks {
#ifdef BFO_ADDRESS_SANITIZER
  static void begin() {
    __lsan_disable();
  }
  static void end() {
    __lsan_enable();
  }
#else
  static void begin() {}
  static void end() {}
#endif
};

}  // namespace

int main(int argc, char** argv) {
  // Alone, with stock components: only the types are of interest.
  setenv("OMPI_MCA_pml", "ob1", 1);
  setenv("OMPI_MCA_btl", "self", 1);
  // hwloc lets the table of PCI names grow by one name at a time, and AddressSanitizer copies it each time.
  setenv("HWLOC_COMPONENTS", "-pci", 1);
  LibraryLeaks::begin();
  MPI_Init(&argc, &argv);
  LibraryLeaks::end();
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  LibraryLeaks::begin();
  MPI_Finalize();
  return failed;
}
