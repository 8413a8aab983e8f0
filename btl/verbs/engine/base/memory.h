// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h: objects and arrays on the C heap, so that the component needs no C++ run-time library. Set-up
// paths only.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace bfo::engine {

/// A new T, or nullptr when memory is short. Free with unmake().
template <class T, class... Args>
T* make(Args&&... args) {
  void* raw = nullptr;
  constexpr size_t align = alignof(T) < sizeof(void*) ? sizeof(void*) : alignof(T);
  if (posix_memalign(&raw, align, sizeof(T)) != 0) return nullptr;
  return new (raw) T(std::forward<Args>(args)...);
}

/// Destroys and frees what make() returned; nullptr is ignored.
template <class T>
void unmake(T* object) {
  if (object == nullptr) return;
  object->~T();
  free(object);
}

/// A fixed-size array of zero-initialised trivial elements on the C heap.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { free(data_); }

  /// Drops the old content. False when memory is short.
  bool reset(size_t count) {
    free(data_);
    data_ = static_cast<T*>(calloc(count == 0 ? 1 : count, sizeof(T)));
    size_ = data_ == nullptr ? 0 : count;
    return data_ != nullptr;
  }
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }
  T* data() { return data_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bfo::engine
