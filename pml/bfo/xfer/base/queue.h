// SPDX-License-Identifier: BSD-3-Clause
//
// queue.h: a queue of messages or receives that wait to be matched, in order of arrival, which finds the
// oldest element with a key. It begins as a plain list. The first search that passes a few elements makes an
// index of all elements by key (key_index.h). From then on adding, finding and removing take the same time
// for any length. The index is dropped when the queue is short again. Without memory for an index the list is
// searched.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/base/key_index.h"

namespace bfo::xfer {

/// Intrusive. `Link` has next, prev, chain_next, chain_prev and mark(element, in the queue?). `Key::of(e)`
/// must not change while `e` is in the queue. Functions that may make or drop an index take the port whose
/// memory it lives in. Not copied while it has elements.
template <class T, class Link, class Key>
class Queue {
 public:
  /// A search looks at this many elements before an index is made.
  static constexpr unsigned kShort = 16;
  /// The index is dropped when this many elements are left.
  static constexpr unsigned kFew = 8;

  bool empty() const { return head_ == nullptr; }
  T* front() const { return head_; }
  T* back() const { return tail_; }
  static T* next(T* e) { return Link::next(e); }
  bool indexed() const { return index_ != nullptr; }

  template <class Port>
  [[gnu::always_inline]] void push_back(Port& port, T* e) {
    T* const last = tail_;
    Link::next(e) = nullptr;
    Link::prev(e) = last;
    Link::mark(e, true);
    tail_ = e;
    if (!last) {
      head_ = e;
      return;
    }
    Link::next(last) = e;
    if (index_) [[unlikely]]
      enter(port, e);
  }

  template <class Port>
  [[gnu::always_inline]] void remove(Port& port, T* e) {
    T* const n = Link::next(e);
    T* const p = Link::prev(e);
    (p ? Link::next(p) : head_) = n;
    (n ? Link::prev(n) : tail_) = p;
    Link::mark(e, false);
    if (index_) [[unlikely]]
      leave(port, e);
  }

  template <class Port>
  T* pop_front(Port& port) {
    T* const e = head_;
    if (e) remove(port, e);
    return e;
  }

  /// Forgets its elements without touching them. The queue is not used any more.
  template <class Port>
  void forget(Port& port) {
    if (index_) drop(port);
    head_ = tail_ = nullptr;
  }

  /// The oldest element with `key`, or nullptr.
  template <class Port>
  [[gnu::always_inline]] T* find(Port& port, int64_t key) {
    return find(port, key, key);
  }

  /// The oldest element with one of the two keys, or nullptr.
  template <class Port>
  [[gnu::always_inline]] T* find(Port& port, int64_t key, int64_t other) {
    const auto wanted = [key, other](const T* e) { return Key::of(e) == key || Key::of(e) == other; };
    T* e = head_;
    if (!e || wanted(e)) return e;
    if (index_) [[unlikely]]
      return chosen(key, other);
    unsigned left = kShort - 1;
    while ((e = Link::next(e)) && !wanted(e))
      if (--left == 0) return search_far(port, e, key, other);
    return e;
  }

 private:
  /// No element up to `last` matches.
  template <class Port>
  [[gnu::noinline]] T* search_far(Port& port, T* last, int64_t key, int64_t other) {
    T* e = Link::next(last);
    if (!e) return nullptr;
    if (build(port)) return chosen(key, other);
    while (e && Key::of(e) != key && Key::of(e) != other) e = Link::next(e);
    return e;
  }

  [[gnu::noinline]] T* chosen(int64_t key, int64_t other) {
    T* const a = index_->first(key);
    T* const b = other == key ? nullptr : index_->first(other);
    if (!a || !b) return a ? a : b;
    if constexpr (requires { Key::older(a, b); }) return Key::older(a, b) ? a : b;
    return a;
  }

  template <class Port>
  bool build(Port& port) {
    index_ = KeyIndex<T, Link>::make(port);
    for (T* e = head_; e && index_; e = Link::next(e)) enter(port, e);
    return index_ != nullptr;
  }

  template <class Port>
  [[gnu::noinline]] void enter(Port& port, T* e) {
    if (KeyIndex<T, Link>::reserve(port, index_))
      index_->add(e, Key::of(e));
    else
      drop(port);
  }

  template <class Port>
  [[gnu::noinline]] void leave(Port& port, T* e) {
    index_->remove(e, Key::of(e));
    if (index_->size() <= kFew) drop(port);
  }

  template <class Port>
  void drop(Port& port) {
    port.free(index_);
    index_ = nullptr;
  }

  T* head_ = nullptr;
  T* tail_ = nullptr;
  KeyIndex<T, Link>* index_ = nullptr;
};

}  // namespace bfo::xfer
