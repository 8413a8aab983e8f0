// SPDX-License-Identifier: BSD-3-Clause
//
// event_log.h: one JSON line per failover, per return of a rail, per word about a peer without one or about a
// rail that moves too little, per change of a port's rate, and per port that loses packets, appended to the
// file the user named. Does not use Open MPI.
//
// The file may be one of many jobs, hosts and processes, and it is never emptied. What goes wrong with it is
// a warning, and never the end of a job: a file that cannot be opened, a full disk, a pipe whose reader has
// left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/claims.h"
#include "common/events.h"

namespace bfo::glue {

/// Names of the rail, which the engine's event record does not have. Strings are NUL terminated and only read
/// during the call.
struct EventNames {
  int rank = 0;                  ///< own rank in MPI_COMM_WORLD
  int peer = 0;                  ///< rank of the other side, -1 when unknown
  const char* device = "";       ///< e.g. "mlx5_0"; the BTL's name where it has no device
  unsigned port = 0;             ///< port of the device
  const char* own_port = "";     ///< what no other port has, e.g. its GID; empty: unknown
  const char* peer_host = "";    ///< host name of the other side
  const char* peer_device = "";  ///< device and port there; empty: unknown
  unsigned peer_port = 0;
};

/// A port that runs at another rate than before, in million bits per second.
struct PortSpeed {
  int rank = 0;             ///< own rank in MPI_COMM_WORLD
  const char* device = "";  ///< as in EventNames
  unsigned port = 0;
  uint32_t before = 0;
  uint32_t now = 0;
  const char* cause = "";  ///< after which event, in words
  unsigned rails = 0;      ///< of this process over that port
};

/// A port that loses packets, or does not any more.
struct PortLoss {
  int rank = 0;             ///< own rank in MPI_COMM_WORLD
  const char* host = "";    ///< of this process
  const char* device = "";  ///< as in EventNames
  unsigned port = 0;
  unsigned rail = 0;     ///< number of the port among those of this process
  bool in = false;       ///< packets that are sent to it; else those that it sends
  bool lossy = true;     ///< false: not any more
  uint64_t lost = 0;     ///< as the device sees it
  uint64_t packets = 0;  ///< of so many
  uint64_t ns = 0;       ///< in so long
};

/// Which file gets the lines, and of whom.
struct EventFile {
  std::string file;  ///< its name, with placeholders; empty: see `folder`
  std::string
      folder;       ///< without a name: a file per host and job in there; empty as well: nothing is written
  std::string job;  ///< number of the job
  std::string host;
  int rank = 0;
  uint64_t limit = 0;  ///< bytes until the file gets no further line; 0: no limit
};

/// The path with %h (host), %j (job), %r (rank) and %% replaced; host and job as far as they are letters,
/// digits, '.', '-' and '_'. False: `path` is the placeholder that is none.
bool event_path(const EventFile& to, std::string* path);

/// Appends JSON lines to a file shared by all processes of a job: each line is one write() of an O_APPEND
/// file, so lines of different processes never mix; so it is with a pipe. Any
/// thread may write; open() and close() by one alone.
class EventLog {
 public:
  /// `warn` gets each warning, without a newline; one process of the host gives it.
  EventLog(Claims& claims, void (*warn)(const char* line)) : claims_(claims), warn_(warn) {}
  ~EventLog() { close(); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Opens what `to` names: a regular file with this one name, made if it is not there, or a pipe that
  /// somebody reads. In a folder that can be written the file is made with its first line, so that only jobs
  /// that have something to say leave one. Warns when it cannot.
  void open(const EventFile& to);
  void write(const FailoverEvent& event, const EventNames& names);
  void write(const DegradedEvent& event, const EventNames& names);
  void write(const PortSpeed& speed);
  void write(const PortLoss& loss);
  void close();
  bool is_open() const { return fd_ >= 0 || due_; }
  /// Lines that could not be written.
  uint64_t lost() const {
    const std::lock_guard<std::mutex> lock(lines_);
    return lost_;
  }

 private:
  bool ready();
  void put(const char* line, size_t length);
  bool full(size_t length);
  void lose(const char* why);
  void warn(const char* what, const char* why, const char* then);

  Claims& claims_;
  void (*warn_)(const char* line);
  EventFile to_;
  std::string path_;
  int fd_ = -1;
  bool due_ = false;  ///< the file is made with the first line
  bool pipe_ = false;
  bool cut_ = false;  ///< the last line was not written whole
  bool over_ = false;
  uint64_t lost_ = 0;
  mutable std::mutex lines_;  ///< rates of ports change outside the engine's lock
};

/// Formats one event as a JSON object and a newline into `out` (NUL terminated, never more than `size`
/// bytes). `unix_time` and `lost_at` in seconds, 0: unknown. Times that did not happen are null. "rail_up"
/// and "no_rail" have fields of their own. Returns the length, 0 when it does not fit.
size_t format_event(const FailoverEvent& event, const EventNames& names, double unix_time, double lost_at,
                    const EventFile& of, char* out, size_t size);
/// The same of a rail that moves too little, or does not any more.
size_t format_degraded(const DegradedEvent& event, const EventNames& names, double unix_time,
                       const EventFile& of, char* out, size_t size);
/// Which end is the slow one, by the other rails over the same port here: "here", "there" or "unknown".
const char* slow_side(const DegradedEvent& event);
/// The same of a port's rate.
size_t format_speed(const PortSpeed& speed, double unix_time, const EventFile& of, char* out, size_t size);
/// The same of packets that a port loses.
size_t format_loss(const PortLoss& loss, double unix_time, const EventFile& of, char* out, size_t size);
/// The same of the last line of a file that has reached its limit.
size_t format_limit(double unix_time, const EventFile& of, char* out, size_t size);

}  // namespace bfo::glue
