// SPDX-License-Identifier: BSD-3-Clause
//
// summary.h: the line at the end of a job that was less than perfect: connections lost, those that never came
// up and why, how long one was missing, what was sent again. One port carries many connections: both are
// counted, and where the other ends are shows which end is sick. No Open MPI here.
//
// No message is sent for it: after losses nobody can promise that one arrives. Each process that has
// something to tell leaves its facts in the page that the processes of a host share (host_page.h), whenever
// they change. Who finalizes when every other process of the host has left its last ones, or is gone, adds up
// what is there. The runtime lets all processes wait for each other between the two (MPI_Finalize), so that
// this is the first one that is through; where it does not, it is the last one. A process without such a page
// prints its own line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/claims.h"
#include "pml/bfo/glue/event_log.h"
#include "pml/bfo/glue/host_page.h"

namespace bfo::glue {

/// A rail that is not there.
enum class Away : uint8_t {
  kNo,
  kLost,   ///< it was up before
  kNever,  ///< it has not been up yet
};

/// What one process has seen of one of its ports.
struct PortFacts {
  char device[64];
  uint32_t port;
  uint32_t lost;              ///< times that a rail over it was lost
  uint32_t never;             ///< rails over it that have not been up
  uint32_t slow;              ///< times that a rail over it moved much less than it should
  uint32_t lossy;             ///< times that it was found to lose packets
  uint32_t weak;              ///< 0: `cause` is final, 1: it is not, 2: it is what the peer reported
  uint32_t ends;              ///< other ends of these rails: 0, 1, or 2 for several
  uint32_t outages;           ///< times that rails over it were missing
  uint64_t missing_ns;        ///< with at least one missing, until missing_since_ns
  uint64_t missing_since_ns;  ///< since when one is; 0: none is
  char cause[96];
  char end[136];  ///< of the first one: its host, device and port
};

/// What one process has seen. Left in the page as it is, read by a process of the same host and build.
struct Facts {
  static constexpr uint64_t kMagic = 0x3553544341464f42u;  ///< "BOFACTS5"
  static constexpr size_t kPorts = 8;
  uint64_t magic;
  uint32_t rank;
  uint32_t n_ports;
  uint32_t lost;
  uint32_t back;  ///< rails that came, or came back, after that
  uint32_t never;
  uint32_t peers_lost;
  uint32_t slow;
  uint32_t lossy;
  uint64_t missing_ns;        ///< with at least one rail missing, until missing_since_ns
  uint64_t missing_since_ns;  ///< since when one is missing (CLOCK_MONOTONIC); 0: none is
  uint64_t bytes_resent;
  uint32_t rails_up;        ///< when it was collected
  uint32_t rails_expected;  ///< its ports that are rails, or would be if they were up
  uint64_t events_lost;     ///< lines that the event file did not take
  PortFacts ports[kPorts];
};

class Summary {
 public:
  /// `print` gets the line, without a newline.
  Summary(void (*print)(const char* line), Claims& claims) : print_(print), claims_(claims) {}
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  /// Nothing is left or printed before. `page`: with records of sizeof(Facts).
  void open(HostPage& page, int rank);

  /// A rail goes down. `was`: what it was before; returns what it is now. `lost`: else it was asked for in
  /// vain, and has not been up.
  Away down(const EventNames& names, const char* cause, Away was, bool lost, uint64_t now_ns);
  /// A rail is closed: the cause is final. `of_peer`: the peer reported it.
  void closed(const EventNames& names, const char* cause, bool of_peer);
  /// A rail is up. Returns kNo.
  Away up(const EventNames& names, Away was, uint64_t now_ns);
  /// A rail moves much less than it should.
  void degraded(const EventNames& names);
  /// A port loses packets.
  void lossy(const PortLoss& loss);
  /// Its peer has finalized: it does not count as missing any more. Returns kNo.
  Away left(const EventNames& names, Away was, uint64_t now_ns);

  /// Called before collect(): how many rails this process has, and could have.
  void rails(uint32_t up, uint32_t expected);
  /// What was sent again so far, and how many peers were given up.
  void resent(uint64_t bytes, uint64_t peers_lost);

  /// Lines of the event file that could not be written so far.
  void events_lost(uint64_t lines);

  /// Called when communication is over: leaves the last facts of this process. May be called several times.
  void collect(uint64_t bytes_resent, uint64_t peers_lost, uint64_t now_ns);
  /// Prints the line, if there is something to tell and nobody else does. Times end at the last collect().
  void finish(const char* host, const char* build = "");

  const Facts& facts() const { return facts_; }
  /// For so long at least one rail has been missing, all times together.
  uint64_t missing_ns(uint64_t now_ns) const;

 private:
  PortFacts* port(const EventNames& names);
  void back(PortFacts* at, Away was, uint64_t now_ns);
  void leave();

  void (*print_)(const char* line);
  Claims& claims_;
  HostPage* page_ = nullptr;
  Facts facts_{};
  uint32_t away_ = 0;
  uint32_t away_of_[Facts::kPorts] = {};  ///< by port
  uint64_t collected_ns_ = 0;
};

/// The facts in the `size` bytes of another process's record. False: they are not whole, or not of this
/// build. What they name is printable then. Any thread.
bool read_facts(const void* bytes, size_t size, Facts* facts);

/// The line about `all`, with the version of the build, at most `size` bytes with the NUL; empty when there
/// is nothing to tell.
void format_summary(const std::vector<Facts>& all, const char* host, uint64_t now_ns, char* line, size_t size,
                    const char* build = "");

}  // namespace bfo::glue
