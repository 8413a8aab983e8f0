// SPDX-License-Identifier: BSD-3-Clause
//
// event_log.cc: formats and appends failover events.
#include "pml/bfo/glue/event_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "common/output_file.h"

namespace bfo::glue {
namespace {

constexpr size_t kMaxLine = 2048;

// JSON string contents: quotes and backslashes escaped, control characters dropped.
void escape(const char* in, char* out, size_t size) {
  size_t n = 0;
  for (; *in != '\0' && n + 3 < size; ++in) {
    const unsigned char c = static_cast<unsigned char>(*in);
    if (c < 0x20) continue;
    if (c == '"' || c == '\\') out[n++] = '\\';
    out[n++] = static_cast<char>(c);
  }
  out[n] = '\0';
}

// Milliseconds from one clock reading to a later one; "null" when either did not happen.
struct Millis {
  char text[32];
  Millis(uint64_t from_ns, uint64_t to_ns) {
    if (from_ns == 0 || to_ns == 0) {
      snprintf(text, sizeof(text), "null");
    } else {
      const uint64_t ns = to_ns > from_ns ? to_ns - from_ns : 0;
      snprintf(text, sizeof(text), "%.3f", static_cast<double>(ns) * 1e-6);
    }
  }
};

using ull = unsigned long long;

bool is_return(const FailoverEvent& e) {
  return strcmp(e.what, "rail_up") == 0;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

size_t format_event(const FailoverEvent& e, const EventNames& names, double unix_time, const char* host,
                    char* out, size_t size) {
  char host_text[300];
  char device[200];
  char cause[200];
  escape(host, host_text, sizeof(host_text));
  escape(names.device, device, sizeof(device));
  escape(e.text, cause, sizeof(cause));
  char who[1024];
  snprintf(
      who, sizeof(who),
      "{\"time\": %.6f, \"what\": \"%s\", \"host\": \"%s\", \"rank\": %d, \"peer\": %d, \"device\": \"%s\", "
      "\"port\": %u, \"rail\": %d,",
      unix_time, e.what, host_text, names.rank, names.peer, device, names.port, static_cast<int>(e.rail));
  if (is_return(e)) {
    const Millis away(e.down_ns, e.up_ns);
    const int n = snprintf(
        out, size,
        "%s \"epoch\": %u, \"lost_epoch\": %u, \"cause\": \"%s\", \"away_ms\": %s, \"rails_up\": %u}\n", who,
        static_cast<unsigned>(e.up_epoch), static_cast<unsigned>(e.epoch), cause, away.text,
        static_cast<unsigned>(e.rails_up));
    return n > 0 && static_cast<size_t>(n) < size ? static_cast<size_t>(n) : 0;
  }
  const Millis detect(e.evidence_ns, e.down_ns);
  const Millis fence(e.down_ns, e.closed_ns);
  const Millis resume(e.evidence_ns, e.resumed_ns);
  const int n = snprintf(
      out, size,
      "%s \"epoch\": %u, \"cause\": \"%s\", \"detect_ms\": %s, \"fence_ms\": %s, "
      "\"resume_ms\": %s, \"bytes_resent\": %llu, \"messages_resent\": %llu, \"bytes_waiting\": %llu, "
      "\"messages_waiting\": %llu, \"duplicates_dropped\": %llu, "
      "\"restarts\": %llu, \"rails_left\": %u}\n",
      who, static_cast<unsigned>(e.epoch), cause, detect.text, fence.text, resume.text,
      static_cast<ull>(e.bytes_resent), static_cast<ull>(e.messages_resent),
      static_cast<ull>(e.bytes_waiting), static_cast<ull>(e.messages_waiting),
      static_cast<ull>(e.duplicates_dropped), static_cast<ull>(e.restarts),
      static_cast<unsigned>(e.rails_left));
  return n > 0 && static_cast<size_t>(n) < size ? static_cast<size_t>(n) : 0;
}

int EventLog::open(const char* path, bool truncate) {
  close();
  if (path == nullptr || *path == '\0') return 0;
  fd_ = open_output(path, truncate);
  if (fd_ < 0) return errno;
  if (gethostname(host_, sizeof(host_) - 1) != 0) host_[0] = '\0';
  return 0;
}

void EventLog::write(const FailoverEvent& event, const EventNames& names) {
  if (fd_ < 0) return;
  double seconds = seconds_of(CLOCK_REALTIME);
  if (is_return(event))  // it may have waited for the line of its loss
    seconds -= seconds_of(CLOCK_MONOTONIC) - static_cast<double>(event.up_ns) * 1e-9;
  char line[kMaxLine];
  const size_t length = format_event(event, names, seconds, host_, line, sizeof(line));
  if (length == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd_, line, length);
}

void EventLog::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace bfo::glue
