// SPDX-License-Identifier: BSD-3-Clause
//
// event_log.h: one JSON line per failover and per return of a rail, appended to the file the user named. Does
// not use Open MPI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/events.h"

namespace bfo::glue {

// Names of the rail, which the engine's event record does not have. Strings are NUL terminated and only read
// during the call.
struct EventNames {
  int rank = 0;             // own rank in MPI_COMM_WORLD
  int peer = 0;             // rank of the other side, -1 when unknown
  const char* device = "";  // e.g. "mlx5_0"; the BTL's name where it has no device
  unsigned port = 0;        // port of the device
};

// Appends JSON lines to a file shared by all processes of a job: each line is one write() of an O_APPEND
// file, so lines of different processes never mix. Used under the engine's rules: any thread, one at a time.
class EventLog {
 public:
  EventLog() = default;
  ~EventLog() { close(); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Opens `path`, emptying it first when `truncate`. Returns 0 or an errno for output_problem(): only
  // regular files are opened. An empty path is no error: nothing is logged.
  int open(const char* path, bool truncate);
  // Appends one line. A write that fails is ignored: a full disk does not end the job.
  void write(const FailoverEvent& event, const EventNames& names);
  void close();

 private:
  int fd_ = -1;
  char host_[256] = "";
};

// Formats one event as a JSON object and a newline into `out` (NUL terminated, never more than `size` bytes).
// `unix_time` in seconds. Times that did not happen are null. "rail_up" has fields of its own, and the line
// says when the rail came up. Returns the length, 0 when it does not fit.
size_t format_event(const FailoverEvent& event, const EventNames& names, double unix_time, const char* host,
                    char* out, size_t size);

}  // namespace bfo::glue
