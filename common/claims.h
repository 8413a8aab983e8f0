// SPDX-License-Identifier: BSD-3-Clause
//
// claims.h: of what all processes of a job on one host could say, one says it: whoever comes first. A process
// that computes, or died, keeps nobody silent. Both components of a process use the same table, which is in
// memory that the processes share (shared_file.h). There is no lock: a process that died in the middle of
// anything stops no other one.
//
// Where there is nothing to share the table is this process's own: it speaks for itself, or leaves that to
// another one, as it knows best.
#pragma once

#include <atomic>
#include <cstdint>

namespace bfo {

/// A name for what is said, from the words that make it: the same in all processes.
uint64_t claim_key(const char* what, const char* where = "", unsigned number = 0, const char* why = "");

class Claims {
 public:
  Claims() = default;
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Called once, before another thread uses it, and before any process of the job can end: one that ends
  /// removes the file, which the others then still have. `folder`: of the job on this host. `place`: of this
  /// process among those.
  void open(const char* folder, unsigned place);
  /// Do other processes see it?
  bool shared() const { return shared_; }

  struct Turn {
    bool mine = false;     ///< this process says it
    uint32_t counted = 0;  ///< times that nobody said it, since somebody last did
  };
  /// Something happened that one process of the host is to say. It is said at most once per `quiet_ns`, which
  /// doubles each time it was said, up to `longest_ns`. Any thread, as all that follow.
  Turn take(uint64_t key, uint64_t now_ns, uint64_t quiet_ns, uint64_t longest_ns);
  Turn take(uint64_t key, uint64_t now_ns, uint64_t quiet_ns) {
    return take(key, now_ns, quiet_ns, quiet_ns);
  }
  /// What was said goes on: it is not said again before `quiet_ns` have passed from now on.
  void renew(uint64_t key, uint64_t now_ns);
  /// The same of what is said once in a job. Where nobody knows of the others this process says it when
  /// `otherwise`.
  bool take_once(uint64_t key, bool otherwise = true);
  enum class Hold : uint8_t {
    kOthers,  ///< another process has it
    kTaken,   ///< this one from now on
    kKept,    ///< this one still
  };
  /// Of what one process of the host does for all, again and again: it is this one's until it has not asked
  /// for `lapse_ns`; for `ended_ns` once it has ended. Where there is nothing to share it is.
  Hold hold(uint64_t key, uint64_t now_ns, uint64_t lapse_ns, uint64_t ended_ns);
  /// After a turn that was mine, of what will be over some day: whoever finds it over says that too.
  void begin(uint64_t key);
  bool lasts(uint64_t key) const;
  /// It is over. True: this process says so.
  bool end(uint64_t key);
  /// After a turn that was mine: it is said.
  void said(uint64_t key);
  /// After one that was not: waits until it is said, `most_ms` milliseconds at most.
  void wait(uint64_t key, int most_ms) const;

 private:
  struct Claim;
  struct Table;
  Claim* find(uint64_t key) const;

  Table* table_ = nullptr;  ///< until the process ends: a late thread may still speak
  bool shared_ = false;
};

}  // namespace bfo
