// SPDX-License-Identifier: BSD-3-Clause
//
// layout.h: where the bytes of a message are in a buffer that is not contiguous, and how they are copied from
// any offset of the message, cut at any byte, in any order.
//
// Open MPI's convertor does that only for one pass from the first byte to the last: 4.1's
// opal_convertor_set_position() is wrong for a jump from or into an element or a block, walks the type again
// from its start for every jump back, and unpacks an element of more than 16 bytes wrongly when it is cut.
// FRAGs are cut anywhere and overtake each other on several rails, and after a failure some go again. So
// they do not use the convertor: a Cursor walks the description of the committed type itself, a Trail
// remembers where fragments ended, so that a message costs time linear in the type however its fragments
// come.
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

/// `count` elements of a committed type at `base` (which may be MPI_BOTTOM). Valid as long as the type.
struct Layout {
  uintptr_t base = 0;
  const dt_elem_desc_t* desc = nullptr;  ///< nullptr: an element is one block of `size` bytes, at `base`
  uint32_t used = 0;                     ///< entries of `desc`, without the one that ends it
  ptrdiff_t extent = 0;
  size_t size = 0;  ///< packed bytes of one element
  uint64_t count = 0;
  bool device = false;  ///< its bytes are copied by the accelerator framework, in as few pieces as they are

  Layout() = default;
  Layout(const opal_datatype_t& type, size_t elements, const void* buffer, bool on_device = false);
  /// What a convertor was prepared for.
  explicit Layout(const opal_convertor_t& conv, bool on_device = false);
  bool one_block() const { return desc == nullptr; }

 private:
  void join(const opal_datatype_t& type);
};

/// One level of nesting: a LOOP of the description that is being repeated.
struct LoopLevel {
  uint32_t loop;  ///< index of its entry
  uint32_t left;  ///< repetitions after this one
  ptrdiff_t base;
};

/// Levels of nesting of a cursor. Few types need more than are stored inline; without memory for those of one
/// that does, or of the stack it was copied from, it is not ok() and of no use.
class LoopStack {
 public:
  LoopStack() = default;
  LoopStack(const LoopStack& other) { *this = other; }
  LoopStack& operator=(const LoopStack& other);
  LoopStack& operator=(LoopStack&& other) noexcept;
  ~LoopStack() { ::free(more_); }

  bool ok() const { return ok_; }
  LoopLevel& top() { return data()[n_ - 1]; }
  void pop() { --n_; }
  void push(const LoopLevel& level);

 private:
  static constexpr uint32_t kInline = 6;
  LoopLevel* data() { return more_ != nullptr ? more_ : inline_; }
  const LoopLevel* data() const { return more_ != nullptr ? more_ : inline_; }
  bool reserve(uint32_t n);

  bool ok_ = true;
  uint32_t n_ = 0;
  uint32_t capacity_ = kInline;
  LoopLevel* more_ = nullptr;
  LoopLevel inline_[kInline];
};

/// A position in the packed bytes of a layout. skip(), gather() and scatter() return false, as ok() does from
/// then on, when there is no memory for the levels of a type that is nested deeply; then some bytes have not
/// moved. The latter two also when the accelerator framework cannot copy.
class Cursor {
 public:
  /// At byte 0.
  Cursor() = default;
  uint64_t position() const { return position_; }
  bool ok() const { return loops_.ok(); }
  /// None of them may go past the last byte.
  bool skip(const Layout& layout, uint64_t n);
  bool gather(const Layout& layout, void* packed, size_t n);         ///< from the buffer
  bool scatter(const Layout& layout, const void* packed, size_t n);  ///< into the buffer

 private:
  template <class Mover>
  bool copy(const Layout& layout, Mover& mover, uint8_t* packed, size_t n);
  /// Goes to the next run of blocks, past all of which `n` bytes from here on do not reach: those that they
  /// cover are left out, and taken from `n`. False: without memory.
  bool next_run(const Layout& layout, uint64_t& n);
  void repeat(const Layout& layout, uint64_t& n);
  uint64_t skip_elements(const Layout& layout, uint64_t n);

  uint64_t position_ = 0;
  /// the run: `blocks_` blocks of `block_` bytes, the first of which `into_` bytes are behind us
  size_t blocks_ = 0;
  size_t block_ = 0;
  size_t into_ = 0;
  ptrdiff_t at_ = 0;  ///< displacement of the block
  ptrdiff_t stride_ = 0;
  /// what follows it
  uint64_t element_ = 0;  ///< of the buffer
  ptrdiff_t base_ = 0;    ///< displacement of this repetition of everything around
  uint32_t entry_ = 0;    ///< of the description
  LoopStack loops_;
};

/// Remembered cursors of one message: the starts of the ranges that are missing, and where the last piece
/// ended that closed such a range. A piece starts from the nearest one before it. Rails that are read one
/// after the other leave many gaps; of more than kMost, those are forgotten that are reached cheaply from
/// their neighbours. Not thread-safe.
class Trail {
 public:
  static constexpr unsigned kMost = 64;

  explicit Trail(const Layout& layout);
  ~Trail();
  Trail(const Trail&) = delete;
  Trail& operator=(const Trail&) = delete;
  const Layout& layout() const { return layout_; }
  /// A cursor that stands at `offset`, or is not ok(). It is a copy: keep() it when its bytes have moved.
  Cursor at(uint64_t offset);
  /// The piece from `begin` to `end` has moved. `wanted`: what follows it has not.
  void keep(uint64_t begin, const Cursor& end, bool wanted);
  /// False: without memory, see Cursor.
  bool scatter(uint64_t offset, const void* packed, size_t n, bool wanted);
  unsigned count() const { return n_; }
  /// Bytes that were walked past, not moved: what disorder has cost.
  uint64_t skipped() const { return skipped_; }

 private:
  static constexpr unsigned kFew = 4;
  struct Mark {
    Cursor cursor;
    bool wanted = false;
  };
  const Mark& mark(unsigned i) const { return marks_[order_[i]]; }
  uint64_t position(unsigned i) const { return mark(i).cursor.position(); }
  int before(uint64_t offset) const;
  void forget(unsigned i);
  unsigned cheapest() const;
  bool grow();

  Layout layout_;
  uint64_t skipped_ = 0;
  unsigned n_ = 0;
  unsigned capacity_ = kFew;
  Mark* marks_ = few_;
  uint8_t order_[kMost];  ///< of `marks_`: first those in use, ascending, then the free ones
  Mark few_[kFew];
};

}  // namespace bfo::glue
