// SPDX-License-Identifier: BSD-3-Clause
//
// host_page.h: what each process of a job on one host has to tell at the end, where the others read it. Does
// not use Open MPI.
//
// It is memory that they share (common/shared_file.h). Nobody waits for anybody, and there is no lock: a
// process that died in the middle of anything stops no other one.
//
// Without a folder, or without room in it, the page is this process's own: it speaks for itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/shared_file.h"

namespace bfo::glue {

class HostPage {
 public:
  HostPage() = default;
  HostPage(const HostPage&) = delete;
  HostPage& operator=(const HostPage&) = delete;

  /// Called once, before another thread uses it. `place` of `places`: of this process among those of the job
  /// on this host. `record_size`: bytes that each may leave there.
  void open(const char* folder, unsigned place, unsigned places, size_t record_size);
  /// Do other processes see it?
  bool shared() const { return shared_; }

  // Replaces what this process leaves. One thread at a time.
  void leave(const void* record);
  /// This process has nothing more to leave.
  void leave_last();
  unsigned places() const { return places_; }
  /// What the process at `place` left, copied to `record`. False: nothing.
  bool read(unsigned place, void* record) const;
  /// Each process that used the page has left its last record, or is gone.
  bool all_left() const;

 private:
  struct Head;
  struct Place;
  bool map(const char* folder);
  Place& at(unsigned place) const;

  SharedFile file_;
  Head* head_ = nullptr;
  size_t record_size_ = 0;
  unsigned place_ = 0;
  unsigned places_ = 0;
  bool shared_ = false;
};

}  // namespace bfo::glue
