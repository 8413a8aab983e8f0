// SPDX-License-Identifier: BSD-3-Clause
//
// shared_file.h: memory that the processes of a job on one host share: a file of the job's session directory,
// mapped. Whoever ends first may remove that file: the mappings of the others stay, and so does what a
// process left there that is gone. Does not use Open MPI.
#pragma once

#include <cstddef>
#include <utility>

namespace bfo {

class SharedFile {
 public:
  SharedFile() = default;
  ~SharedFile() { close(); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  /// Maps `size` bytes of the file `name` in `folder`, which are 0 where nobody has written. False: there is
  /// no such folder, no room, or something else under that name.
  bool map(const char* folder, const char* name, size_t size);
  /// Maps memory of this process alone instead, all 0.
  bool own(size_t size);
  void close();
  /// The mapping stays until the process ends.
  void* release() { return std::exchange(memory_, nullptr); }
  /// nullptr: nothing is mapped.
  void* memory() const { return memory_; }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bfo
