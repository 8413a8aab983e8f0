// SPDX-License-Identifier: BSD-3-Clause
//
// summary.h: the line at the end of a job that was less than perfect: rails lost, rails that never came up
// and why, how long one was missing, what was sent again. No Open MPI here.
//
// No message is sent for it: after losses nobody can promise that one arrives. Each process that has
// something to tell writes its facts into a file in a folder that the processes of a node share, whenever
// they change; the first process of the node adds up what it finds there. A process that cannot write prints
// its own line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pml/bfo/glue/event_log.h"

namespace bfo::glue {

// A rail that is not there.
enum class Away : uint8_t {
  kNo,
  kLost,   // it was up before
  kNever,  // it has not been up yet
};

// What one process has seen of one of its ports.
struct PortFacts {
  char device[64];
  uint32_t port;
  uint32_t lost;   // times that a rail over it was lost
  uint32_t never;  // rails over it that have not been up
  uint32_t weak;   // `cause` is what the peer reported, or not final
  char cause[96];
};

// What one process has seen. Written to a file as it is, read by a process of the same node and build.
struct Facts {
  static constexpr uint64_t kMagic = 0x3253544341464f42u;  // "BOFACTS2"
  static constexpr size_t kPorts = 8;
  uint64_t magic;
  uint32_t rank;
  uint32_t n_ports;
  uint32_t lost;
  uint32_t back;  // rails that came, or came back, after that
  uint32_t never;
  uint32_t peers_lost;
  uint64_t missing_ns;        // with at least one rail missing, until ..
  uint64_t missing_since_ns;  // .. this moment (CLOCK_MONOTONIC), since when one is; 0: none is
  uint64_t bytes_resent;
  uint32_t rails_up;        // when it was collected
  uint32_t rails_expected;  // its ports that are rails, or would be if they were up
  PortFacts ports[kPorts];
};

class Summary {
 public:
  // `print` gets the line, without a newline.
  explicit Summary(void (*print)(const char* line)) : print_(print) {}
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  // Nothing is written or printed before. `folder`: shared by the processes of this job on this node, nullptr
  // without one. `first`: this process prints for all of them.
  void open(const char* folder, int rank, bool first);

  // A rail goes down. `was`: what it was before; returns what it is now. `was_up`: in any epoch.
  Away down(const EventNames& names, const char* cause, Away was, bool was_up, uint64_t now_ns);
  // .. is closed: the cause is final. `of_peer`: the peer reported it.
  void closed(const EventNames& names, const char* cause, bool of_peer, uint64_t now_ns);
  // .. is up. Returns kNo.
  Away up(const EventNames& names, Away was, uint64_t now_ns);
  // Its peer has finalized: it does not count as missing any more. Returns kNo.
  Away left(Away was, uint64_t now_ns);

  // Called before collect(): how many rails this process has, and could have.
  void rails(uint32_t up, uint32_t expected);
  // Called when communication is over: writes the facts of this process, and reads those of the others of the
  // node. May be called several times. A process that ended earlier may have removed its file by then.
  void collect(uint64_t bytes_resent, uint64_t peers_lost, uint64_t now_ns);
  // Prints the line, if there is something to tell. Times end at the last collect().
  void finish(const char* host);

  const Facts& facts() const { return facts_; }
  // For so long at least one rail has been missing, all times together.
  uint64_t missing_ns(uint64_t now_ns) const;

 private:
  static constexpr uint64_t kPauseNs = 1'000'000;  // between two writes, unless they are the last ones
  PortFacts* port(const EventNames& names);
  void back(Away was, uint64_t now_ns);
  void write(uint64_t now_ns, bool now);
  void read_others();

  void (*print_)(const char* line);
  Facts facts_{};
  std::vector<Facts> others_;
  char folder_[512] = "";
  bool open_ = false;
  bool first_ = false;
  bool failed_ = false;  // the file could not be written
  int fd_ = -1;
  uint32_t away_ = 0;
  uint64_t written_ns_ = 0;
  uint64_t collected_ns_ = 0;
};

// The facts in the `size` bytes of another process's file. False: they are not whole, or not of this build.
// What they name is printable then. Any thread.
bool read_facts(const void* bytes, size_t size, Facts* facts);

// The line about `all`, at most `size` bytes with the NUL; empty when there is nothing to tell.
void format_summary(const std::vector<Facts>& all, const char* host, uint64_t now_ns, char* line,
                    size_t size);

}  // namespace bfo::glue
