// SPDX-License-Identifier: BSD-3-Clause
//
// host_page.h: memory that the processes of a job on one host share: who says what, and what each process has
// to tell at the end. Does not use Open MPI.
//
// It is a file of the job's session directory, mapped. Whoever finalizes first may remove that file: the
// mappings of the others stay, and so does what a process left there that is gone. Nobody waits for anybody,
// and there is no lock: a process that died in the middle of anything stops no other one.
//
// Without a folder, or without room in it, the page is this process's own: it speaks for itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bfo::glue {

/// A name for what is said, from the words that make it: the same in all processes.
uint64_t claim_key(const char* what, const char* where = "", unsigned number = 0, const char* why = "");

class HostPage {
 public:
  HostPage() = default;
  ~HostPage();
  HostPage(const HostPage&) = delete;
  HostPage& operator=(const HostPage&) = delete;

  /// Called once, before another thread uses it. `place` of `places`: of this process among those of the job
  /// on this host. `record_size`: bytes that each may leave there.
  void open(const char* folder, unsigned place, unsigned places, size_t record_size);
  /// Do other processes see it?
  bool shared() const { return shared_; }

  // ---- who speaks
  struct Turn {
    bool mine = false;     ///< this process says it
    uint32_t counted = 0;  ///< times that nobody said it, since somebody last did
  };
  /// Something happened that one process of the host is to say. It is said at most once per `quiet_ns`, which
  /// doubles each time it was said, up to `longest_ns`. Any thread.
  Turn claim(uint64_t key, uint64_t now_ns, uint64_t quiet_ns, uint64_t longest_ns);
  Turn claim(uint64_t key, uint64_t now_ns, uint64_t quiet_ns) {
    return claim(key, now_ns, quiet_ns, quiet_ns);
  }

  // ---- records
  // Replaces what this process leaves. One thread at a time.
  void leave(const void* record);
  /// This process has nothing more to leave.
  void leave_last();
  unsigned places() const { return places_; }
  /// What the process at `place` left, copied to `record`. False: nothing.
  bool read(unsigned place, void* record) const;
  /// Each process that used the page has left its last record, or is gone.
  bool all_left() const;
  /// True for the first process that asks.
  bool first_to_print();

 private:
  struct Head;
  struct Place;
  bool map(const char* folder);
  void own();
  Place& at(unsigned place) const;

  Head* head_ = nullptr;
  size_t size_ = 0;
  size_t record_size_ = 0;
  unsigned place_ = 0;
  unsigned places_ = 0;
  bool shared_ = false;
};

}  // namespace bfo::glue
