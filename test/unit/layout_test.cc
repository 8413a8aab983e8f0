// SPDX-License-Identifier: BSD-3-Clause
//
// layout_test.cc: bytes of random types, moved in random pieces and orders by the component's own code,
// against one pass of Open MPI's convertor. BFO_LAYOUT_TYPES says how many types, BFO_LAYOUT_SEED which.
#include "pml/bfo/glue/layout.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace bfo::glue {
namespace {

using Rng = std::mt19937_64;

constexpr uint8_t kGuard = 0xa5;

int pick(Rng& rng, int low, int high) {
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

MPI_Datatype basic_type(Rng& rng) {
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

MPI_Datatype basic(Rng& rng) {
  return basic_type(rng);
}

// Bytes from one element to the next, in either direction.
MPI_Aint step_of(MPI_Datatype type) {
  MPI_Aint lb = 0, extent = 0;
  MPI_Type_get_extent(type, &lb, &extent);
  return std::max<MPI_Aint>(std::abs(extent), 1);
}

// Bytes from the first to behind the last one that `type` touches.
MPI_Aint span_of(MPI_Datatype type) {
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

Blocks random_blocks(Rng& rng, MPI_Datatype inner, int most) {
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

MPI_Datatype vector_of(Rng& rng, MPI_Datatype inner) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const int length = pick(rng, 1, 4);
  const MPI_Aint least = (length - 1) * step_of(inner) + span_of(inner);
  const MPI_Aint stride = least + pick(rng, 0, 1) * pick(rng, 0, 50);
  MPI_Type_create_hvector(pick(rng, 1, 9), length, pick(rng, 0, 3) == 0 ? -stride : stride, inner, &type);
  return type;
}

MPI_Datatype struct_of(Rng& rng, MPI_Datatype inner) {
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

MPI_Datatype derive(Rng& rng, MPI_Datatype inner) {
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
MPI_Datatype deep_type(Rng& rng) {
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
Type random_type(Rng& rng) {
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
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(rng() % (pieces.size() + 1)), again);
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
#ifdef __SANITIZE_ADDRESS__
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
  LibraryLeaks::begin();
  MPI_Init(&argc, &argv);
  LibraryLeaks::end();
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  LibraryLeaks::begin();
  MPI_Finalize();
  return failed;
}
