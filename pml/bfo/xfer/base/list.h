// SPDX-License-Identifier: BSD-3-Clause
//
// list.h: intrusive doubly linked lists. The link fields live in the element; a Link policy says where, so
// that one element may be in several lists.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/check.h"

namespace bfo::xfer {

/// Links next/prev/linked in the element itself.
struct SelfLink {
  template <class T>
  static T*& next(T* e) {
    return e->next;
  }
  template <class T>
  static T*& prev(T* e) {
    return e->prev;
  }
  template <class T>
  static bool& linked(T* e) {
    return e->linked;
  }
};
/// Links in the element's `xfer` member.
struct XferLink {
  template <class T>
  static T*& next(T* e) {
    return e->xfer.next;
  }
  template <class T>
  static T*& prev(T* e) {
    return e->xfer.prev;
  }
  template <class T>
  static auto& linked(T* e) {
    return e->xfer.linked;
  }
};
/// The second set of links of a request: named requests of a peer.
struct LiveLink {
  template <class T>
  static T*& next(T* e) {
    return e->xfer.rndv->live_next;
  }
  template <class T>
  static T*& prev(T* e) {
    return e->xfer.rndv->live_prev;
  }
  template <class T>
  static bool& linked(T* e) {
    return e->xfer.rndv->live_linked;
  }
};
/// The second set of links of a peer: those with something that waits.
struct ActiveLink {
  template <class T>
  static T*& next(T* e) {
    return e->active_next;
  }
  template <class T>
  static T*& prev(T* e) {
    return e->active_prev;
  }
  template <class T>
  static bool& linked(T* e) {
    return e->active;
  }
};

template <class T, class Link = SelfLink>
class List {
 public:
  bool empty() const { return head_ == nullptr; }
  T* front() const { return head_; }
  T* back() const { return tail_; }
  static T* next(T* e) { return Link::next(e); }
  static T* prev(T* e) { return Link::prev(e); }
  static bool linked(T* e) { return Link::linked(e); }

  void push_back(T* e) {
    BFO_DCHECK(!Link::linked(e));
    T* const last = tail_;
    Link::next(e) = nullptr;
    Link::prev(e) = last;
    Link::linked(e) = true;
    (last ? Link::next(last) : head_) = e;
    tail_ = e;
  }
  void push_front(T* e) { insert_after(nullptr, e); }

  /// Insert `e` after `at`; at the front when `at` is null.
  void insert_after(T* at, T* e) {
    BFO_DCHECK(!Link::linked(e));
    T* after = at ? Link::next(at) : head_;
    Link::next(e) = after;
    Link::prev(e) = at;
    Link::linked(e) = true;
    (at ? Link::next(at) : head_) = e;
    (after ? Link::prev(after) : tail_) = e;
  }

  void remove(T* e) {
    BFO_DCHECK(Link::linked(e));
    T* const n = Link::next(e);
    T* const p = Link::prev(e);
    (p ? Link::next(p) : head_) = n;
    (n ? Link::prev(n) : tail_) = p;
    Link::next(e) = Link::prev(e) = nullptr;
    Link::linked(e) = false;
  }

  T* pop_front() {
    T* const e = head_;
    if (!e) return nullptr;
    BFO_DCHECK(Link::linked(e));
    T* const n = Link::next(e);
    head_ = n;
    (n ? Link::prev(n) : tail_) = nullptr;
    Link::next(e) = Link::prev(e) = nullptr;
    Link::linked(e) = false;
    return e;
  }

 private:
  T* head_ = nullptr;
  T* tail_ = nullptr;
};

/// For tools and reports: it walks the list.
template <class Queue>
uint32_t length_of(const Queue& queue) {
  uint32_t n = 0;
  for (auto* e = queue.front(); e; e = queue.next(e)) ++n;
  return n;
}

}  // namespace bfo::xfer
