// SPDX-License-Identifier: BSD-3-Clause
//
// layout.cc: walking the description of a type (opal_datatype_internal.h): entries that are data, in blocks
// at a constant distance; loops around further entries; loops whose contents are in one piece.
#include "pml/bfo/glue/layout.h"

#include <algorithm>

namespace bfo::glue {
namespace {

size_t basic_size(const dt_elem_desc_t& entry) {
  return opal_datatype_basicDatatypes[entry.elem.common.type]->size;
}

bool is_data(const dt_elem_desc_t& entry) {
  return (entry.elem.common.flags & OPAL_DATATYPE_FLAG_DATA) != 0;
}

template <bool kScatter>
void copy_one(uint8_t* memory, uint8_t* packed, size_t n) {
  memcpy(kScatter ? memory : packed, kScatter ? packed : memory, n);
}

// Blocks of a size known to the compiler are copied without a call.
template <bool kScatter, size_t kSize>
void copy_fixed(uintptr_t memory, ptrdiff_t stride, uint8_t* packed, size_t blocks) {
  for (; blocks != 0; --blocks) {
    copy_one<kScatter>(reinterpret_cast<uint8_t*>(memory), packed, kSize);
    memory += static_cast<uintptr_t>(stride);
    packed += kSize;
  }
}

template <bool kScatter>
void copy_blocks(uintptr_t memory, ptrdiff_t stride, size_t size, uint8_t* packed, size_t blocks) {
  switch (size) {
    case 1:
      return copy_fixed<kScatter, 1>(memory, stride, packed, blocks);
    case 2:
      return copy_fixed<kScatter, 2>(memory, stride, packed, blocks);
    case 4:
      return copy_fixed<kScatter, 4>(memory, stride, packed, blocks);
    case 8:
      return copy_fixed<kScatter, 8>(memory, stride, packed, blocks);
    case 12:
      return copy_fixed<kScatter, 12>(memory, stride, packed, blocks);
    case 16:
      return copy_fixed<kScatter, 16>(memory, stride, packed, blocks);
    case 24:
      return copy_fixed<kScatter, 24>(memory, stride, packed, blocks);
    case 32:
      return copy_fixed<kScatter, 32>(memory, stride, packed, blocks);
    case 64:
      return copy_fixed<kScatter, 64>(memory, stride, packed, blocks);
    default:
      for (; blocks != 0; --blocks) {
        copy_one<kScatter>(reinterpret_cast<uint8_t*>(memory), packed, size);
        memory += static_cast<uintptr_t>(stride);
        packed += size;
      }
  }
}

// How bytes move: by the processor, between memory that it may touch.
template <bool kScatter>
struct ByProcessor {
  static void one(uintptr_t memory, uint8_t* packed, size_t n) {
    copy_one<kScatter>(reinterpret_cast<uint8_t*>(memory), packed, n);
  }
  static void blocks(uintptr_t memory, ptrdiff_t stride, size_t size, uint8_t* packed, size_t n) {
    copy_blocks<kScatter>(memory, stride, size, packed, n);
  }
};

// By the accelerator framework, of which a call costs more than thousands of bytes: pieces that follow each
// other in memory move together. They always do in `packed`.
template <bool kScatter>
class ByFramework {
 public:
  void one(uintptr_t memory, uint8_t* packed, size_t n) {
    if (n_ != 0 && memory == memory_ + n_) {
      n_ += n;
      return;
    }
    finish();
    memory_ = memory;
    packed_ = packed;
    n_ = n;
  }
  void blocks(uintptr_t memory, ptrdiff_t stride, size_t size, uint8_t* packed, size_t n) {
    if (stride == static_cast<ptrdiff_t>(size)) return one(memory, packed, size * n);
    for (; n != 0; --n) {
      one(memory, packed, size);
      memory += static_cast<uintptr_t>(stride);
      packed += size;
    }
  }
  /// False: some bytes have not moved.
  bool finish() {
    void* const memory = reinterpret_cast<void*>(memory_);
    if (ok_ && n_ != 0) ok_ = device_copy(kScatter ? memory : packed_, kScatter ? packed_ : memory, n_);
    n_ = 0;
    return ok_;
  }

 private:
  uintptr_t memory_ = 0;
  uint8_t* packed_ = nullptr;
  size_t n_ = 0;
  bool ok_ = true;
};

}  // namespace

Layout::Layout(const opal_datatype_t& type, size_t elements, const void* buffer, bool on_device)
    : base(reinterpret_cast<uintptr_t>(buffer)),
      desc(type.opt_desc.desc),
      used(static_cast<uint32_t>(type.opt_desc.used)),
      extent(type.ub - type.lb),
      size(type.size),
      count(elements),
      device(on_device) {
  if (kStagesDevices && device) join(type);
}

Layout::Layout(const opal_convertor_t& conv, bool on_device)
    : Layout(*conv.pDesc, conv.count, conv.pBaseBuf, on_device) {
  if (kStagesDevices && one_block()) return;
  desc = conv.use_desc->desc;
  used = static_cast<uint32_t>(conv.use_desc->used);
}

// What is in one piece becomes one element of one block: no walk from element to element.
void Layout::join(const opal_datatype_t& type) {
  if (opal_datatype_is_contiguous_memory_layout(&type, count == 1 ? 1 : 2) == 0) return;
  base += static_cast<uintptr_t>(type.true_lb);
  desc = nullptr;
  used = 1;
  size *= count;
  extent = static_cast<ptrdiff_t>(size);
  count = 1;
}

// ---- LoopStack

LoopStack& LoopStack::operator=(const LoopStack& other) {
  if (this == &other) return *this;
  ok_ = other.ok_ && reserve(other.n_);
  n_ = ok_ ? other.n_ : 0;
  memcpy(data(), other.data(), n_ * sizeof(LoopLevel));
  return *this;
}

LoopStack& LoopStack::operator=(LoopStack&& other) noexcept {
  std::swap(ok_, other.ok_);
  std::swap(n_, other.n_);
  std::swap(capacity_, other.capacity_);
  std::swap(more_, other.more_);
  std::swap(inline_, other.inline_);
  return *this;
}

bool LoopStack::reserve(uint32_t n) {
  if (n <= capacity_) [[likely]]
    return true;
  const uint32_t capacity = std::max(n, 2 * capacity_);
  auto* more = static_cast<LoopLevel*>(::malloc(capacity * sizeof(LoopLevel)));
  if (more == nullptr) return false;
  memcpy(more, data(), n_ * sizeof(LoopLevel));
  ::free(more_);
  more_ = more;
  capacity_ = capacity;
  return true;
}

void LoopStack::push(const LoopLevel& level) {
  if (reserve(n_ + 1)) [[likely]]
    data()[n_++] = level;
  else
    ok_ = false;
}

// ---- Cursor

// At the start of an element of the buffer: leaves out those that `n` covers. Returns what is left of `n`.
uint64_t Cursor::skip_elements(const Layout& layout, uint64_t n) {
  if (n < layout.size) return n;
  const uint64_t elements = n / layout.size;
  element_ += elements;
  base_ += static_cast<ptrdiff_t>(elements) * layout.extent;
  return n - elements * layout.size;
}

// At the end of a level: goes back to the start of its loop, or of the next element, or leaves it.
void Cursor::repeat(const Layout& layout, uint64_t& n) {
  if (entry_ >= layout.used) {
    ++element_;
    base_ = static_cast<ptrdiff_t>(element_) * layout.extent;
    entry_ = 0;
    n = skip_elements(layout, n);
    return;
  }
  LoopLevel& level = loops_.top();
  const ddt_loop_desc_t& loop = layout.desc[level.loop].loop;
  const size_t size = layout.desc[entry_].end_loop.size;
  const uint64_t whole = n < size || size == 0 ? 0 : n / size;
  if (whole >= level.left) {
    n -= level.left * size;
    base_ = level.base;
    loops_.pop();
    ++entry_;
    return;
  }
  n -= whole * size;
  level.left -= static_cast<uint32_t>(whole) + 1;
  base_ = level.base + static_cast<ptrdiff_t>(loop.loops - 1 - level.left) * loop.extent;
  entry_ = level.loop + 1;
}

bool Cursor::next_run(const Layout& layout, uint64_t& n) {
  for (;;) {
    if (kStagesDevices && layout.one_block()) [[unlikely]] {
      if (entry_ >= layout.used) {
        repeat(layout, n);
        continue;
      }
      blocks_ = 1;
      block_ = layout.size;
      stride_ = 0;
      at_ = base_;
      ++entry_;
    } else if (const dt_elem_desc_t& entry = layout.desc[entry_]; entry_ < layout.used && is_data(entry))
        [[likely]] {
      blocks_ = entry.elem.count;
      block_ = entry.elem.blocklen * basic_size(entry);
      stride_ = entry.elem.extent;
      at_ = base_ + entry.elem.disp;
      ++entry_;
    } else if (entry_ >= layout.used || entry.elem.common.type == OPAL_DATATYPE_END_LOOP) {
      repeat(layout, n);
      continue;
    } else if (entry.elem.common.type == OPAL_DATATYPE_LOOP) {
      const ddt_endloop_desc_t& end = layout.desc[entry_ + entry.loop.items].end_loop;
      if ((entry.loop.common.flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) == 0) {
        if (n != 0 && n >= end.size * entry.loop.loops) {
          n -= end.size * entry.loop.loops;
          entry_ += entry.loop.items + 1;
          continue;
        }
        const uint64_t whole = n == 0 ? 0 : n / end.size;
        n -= whole * end.size;
        loops_.push({entry_, entry.loop.loops - 1 - static_cast<uint32_t>(whole), base_});
        if (!ok()) [[unlikely]]
          return false;
        base_ += static_cast<ptrdiff_t>(whole) * entry.loop.extent;
        ++entry_;
        continue;
      }
      blocks_ = entry.loop.loops;
      block_ = end.size;
      stride_ = entry.loop.extent;
      at_ = base_ + end.first_elem_disp;
      entry_ += entry.loop.items + 1;
    } else {
      ++entry_;
      continue;
    }
    into_ = 0;
    const uint64_t bytes = blocks_ * block_;
    if (bytes == 0) [[unlikely]] {
      blocks_ = 0;
      continue;
    }
    if (n < bytes) [[likely]]
      return true;
    n -= bytes;
    blocks_ = 0;
    if (n == 0) return true;
  }
}

bool Cursor::skip(const Layout& layout, uint64_t n) {
  if (n == 0 || !ok()) return ok();
  const uint64_t end = position_ + n;
  const uint64_t here = blocks_ * block_ - into_;
  if (n >= here) {
    n -= here;
    blocks_ = 0;
    into_ = 0;
    if (n != 0) {
      if (position_ == 0 && entry_ == 0 && element_ == 0) n = skip_elements(layout, n);
      if (!next_run(layout, n)) [[unlikely]]
        return false;
    }
  }
  if (n != 0) {
    const size_t done = into_ + n;
    const size_t whole = done / block_;
    blocks_ -= whole;
    at_ += static_cast<ptrdiff_t>(whole) * stride_;
    into_ = done - whole * block_;
  }
  position_ = end;
  return true;
}

template <class Mover>
bool Cursor::copy(const Layout& layout, Mover& mover, uint8_t* packed, size_t n) {
  uint64_t none = 0;
  if (!ok()) [[unlikely]]
    return false;
  position_ += n;
  while (n != 0) {
    if (blocks_ == 0 && !next_run(layout, none)) return false;
    const uintptr_t memory = layout.base + static_cast<uintptr_t>(at_);
    if (into_ != 0 || n < block_) [[unlikely]] {
      const size_t part = std::min(n, block_ - into_);
      mover.one(memory + into_, packed, part);
      packed += part;
      n -= part;
      into_ += part;
      if (into_ != block_) return true;
      into_ = 0;
      at_ += stride_;
      --blocks_;
      continue;
    }
    // Most pieces end with a run: no division for those.
    const size_t whole = n >= blocks_ * block_ ? blocks_ : n / block_;
    mover.blocks(memory, stride_, block_, packed, whole);
    packed += whole * block_;
    n -= whole * block_;
    at_ += static_cast<ptrdiff_t>(whole) * stride_;
    blocks_ -= whole;
  }
  return true;
}

bool Cursor::gather(const Layout& layout, void* packed, size_t n) {
  auto* const to = static_cast<uint8_t*>(packed);
  if constexpr (kStagesDevices) {
    ByFramework<false> framework;
    if (layout.device) [[unlikely]]
      return copy(layout, framework, to, n) && framework.finish();
  }
  ByProcessor<false> processor;
  return copy(layout, processor, to, n);
}

bool Cursor::scatter(const Layout& layout, const void* packed, size_t n) {
  auto* const from = const_cast<uint8_t*>(static_cast<const uint8_t*>(packed));
  if constexpr (kStagesDevices) {
    ByFramework<true> framework;
    if (layout.device) [[unlikely]]
      return copy(layout, framework, from, n) && framework.finish();
  }
  ByProcessor<true> processor;
  return copy(layout, processor, from, n);
}

// ---- Trail

Trail::Trail(const Layout& layout) : layout_(layout) {
  for (unsigned i = 0; i < kFew; ++i) order_[i] = static_cast<uint8_t>(i);
}

Trail::~Trail() {
  if (marks_ == few_) return;
  for (unsigned i = 0; i < capacity_; ++i) marks_[i].~Mark();
  ::free(marks_);
}

// The last cursor that is not past `offset`; -1 when there is none.
int Trail::before(uint64_t offset) const {
  int i = static_cast<int>(n_) - 1;
  while (i >= 0 && position(static_cast<unsigned>(i)) > offset) --i;
  return i;
}

Cursor Trail::at(uint64_t offset) {
  const int i = before(offset);
  Cursor cursor;
  if (i >= 0) cursor = mark(static_cast<unsigned>(i)).cursor;
  skipped_ += offset - cursor.position();
  cursor.skip(layout_, offset - cursor.position());
  return cursor;
}

void Trail::forget(unsigned i) {
  const uint8_t slot = order_[i];
  --n_;
  memmove(order_ + i, order_ + i + 1, n_ - i);
  order_[n_] = slot;
}

// The one that is reached most cheaply from the one before it. The last one stays: what comes next is
// usually there.
unsigned Trail::cheapest() const {
  unsigned least = 0;
  uint64_t distance = position(0);
  for (unsigned i = 1; i + 1 < n_; ++i) {
    const uint64_t d = position(i) - position(i - 1);
    if (d >= distance) continue;
    distance = d;
    least = i;
  }
  return least;
}

// False: there are enough, or there is no memory.
bool Trail::grow() {
  if (capacity_ == kMost) return false;
  const unsigned capacity = 4 * capacity_;
  auto* more = static_cast<Mark*>(::malloc(capacity * sizeof(Mark)));
  if (more == nullptr) return false;
  for (unsigned i = 0; i < capacity; ++i) {
    ::new (&more[i]) Mark();
    if (i < capacity_) more[i] = std::move(marks_[i]);
    if (i >= capacity_) order_[i] = static_cast<uint8_t>(i);
  }
  if (marks_ != few_) {
    for (unsigned i = 0; i < capacity_; ++i) marks_[i].~Mark();
    ::free(marks_);
  }
  marks_ = more;
  capacity_ = capacity;
  return true;
}

void Trail::keep(uint64_t begin, const Cursor& end, bool wanted) {
  // The mark where this piece begins has been used, and one that is not wanted was kept for this piece only.
  if (const int i = before(begin); i >= 0 && position(static_cast<unsigned>(i)) == begin)
    forget(static_cast<unsigned>(i));
  if (const int i = before(begin); i >= 0 && !mark(static_cast<unsigned>(i)).wanted)
    forget(static_cast<unsigned>(i));
  if (const int i = before(end.position()); i >= 0 && position(static_cast<unsigned>(i)) == end.position())
    return;
  if (n_ == capacity_ && !grow()) forget(cheapest());
  const uint8_t slot = order_[n_];
  const auto k = static_cast<unsigned>(before(end.position()) + 1);
  memmove(order_ + k + 1, order_ + k, n_ - k);
  order_[k] = slot;
  ++n_;
  marks_[slot].cursor = end;
  marks_[slot].wanted = wanted;
  if (!marks_[slot].cursor.ok()) [[unlikely]]
    forget(k);
}

bool Trail::scatter(uint64_t offset, const void* packed, size_t n, bool wanted) {
  Cursor cursor = at(offset);
  if (!cursor.scatter(layout_, packed, n)) [[unlikely]]
    return false;
  keep(offset, cursor, wanted);
  return true;
}

}  // namespace bfo::glue
