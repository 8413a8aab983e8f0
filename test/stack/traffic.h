// SPDX-License-Identifier: BSD-3-Clause
//
// traffic.h: what of each message was given to rails, counted where the PML gives it: after a failure only
// what is missing goes again (P4), and the PML's counters say the same (P8).
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pml/bfo/xfer/counters.h"
#include "test/stack/scenario.h"

namespace bfo::stack {

class Traffic {
 public:
  explicit Traffic(const Scenario& s);

  // ---- what a rail accepted
  void message(uint32_t pair, size_t header, uint64_t offset, size_t payload);
  void write(uint32_t pair, uint64_t offset, size_t n) { message(pair, 0, offset, n); }
  void read(uint32_t pair, uint64_t offset, size_t n);
  /// Bytes that no request stands for: an eager message among them goes again.
  void stored(uint8_t tag, size_t size);
  /// A message of a process to itself, which needs no rail: the PML counts it as an eager one.
  void oneself(size_t length);

  // ---- what came of it
  /// `n` bytes ended with an unknown fate, or were never sent.
  void failed(uint32_t pair, size_t n);
  /// A READ was executed, or may have been.
  void fetched(uint32_t pair, uint64_t offset, size_t n);
  void told(uint64_t bytes) { told_ += bytes; }

  // ---- the message
  /// Its rendezvous is over after so many rounds beyond the first. `both_ways`: its first bytes came with its
  /// header, and it was to be read.
  void rounds(uint32_t pair, uint32_t restarts, bool both_ways);
  /// One of its two requests ended with an error, or a process died: only the other side may know what moved.
  void cut(uint32_t pair) { of_[pair].cut = true; }
  void truncated(uint32_t pair) { of_[pair].truncated = true; }

  // ---- at the end: what is wrong, or an empty text
  /// A byte goes twice only if its first journey had an unknown fate, or if a restart found it in doubt: it
  /// was written, but the FIN that says so had not arrived. That is one window per restart. The payload of a
  /// RNDV goes with every repetition of that header; there are at most `repetitions`.
  std::string resent(uint32_t pair, uint64_t repetitions) const;
  /// The sums of all PMLs.
  std::string balance(const xfer::Counters& all) const;

 private:
  struct Message {
    uint64_t again = 0;        // bytes that had been given to a rail before
    uint64_t failed = 0;       // bytes whose fate was unknown
    uint64_t moved_again = 0;  // `again` without READs that went nowhere
    uint32_t restarts = 0;
    bool cut = false;
    bool both_ways = false;
    bool truncated = false;
    size_t bits = 0;  // where its bytes begin in the two maps
  };
  /// Those have no message of the program, and are not counted.
  bool of_stream(uint32_t pair) const { return pair >= of_.size(); }
  uint64_t mark(std::vector<uint64_t>& bits, uint32_t pair, uint64_t offset, uint64_t n);
  void moved(uint32_t pair, uint64_t offset, size_t n);

  const Scenario& scenario_;
  std::vector<Message> of_;
  std::vector<uint64_t> given_;  // a bit per byte: was it given to a rail?
  std::vector<uint64_t> moved_;  // the same, but for READs that went nowhere
  uint64_t control_ = 0;         // headers and control messages
  uint64_t payload_ = 0;
  uint64_t asked_ = 0;    // payload that READs ask for
  uint64_t fetched_ = 0;  // of it, what was not handed back as never sent
  uint64_t again_ = 0;
  uint64_t told_ = 0;  // by records of failovers
};

}  // namespace bfo::stack
