// SPDX-License-Identifier: BSD-3-Clause
//
// event_log.cc: formats and appends failover events.
#include "pml/bfo/glue/event_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "common/decimal.h"
#include "common/output_file.h"

namespace bfo::glue {
namespace {

constexpr int kSchema = 1;
constexpr size_t kMaxLine = 3072;  // a pipe takes up to 4096 bytes as one

// JSON string contents: quotes and backslashes escaped, control characters dropped.
struct Escaped {
  char text[300];
  explicit Escaped(const char* in) {
    size_t n = 0;
    for (; *in != '\0' && n + 3 < sizeof(text); ++in) {
      const unsigned char c = static_cast<unsigned char>(*in);
      if (c < 0x20) continue;
      if (c == '"' || c == '\\') text[n++] = '\\';
      text[n++] = static_cast<char>(c);
    }
    text[n] = '\0';
  }
};

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

// A line that grows; once it does not fit it stays too long.
class Line {
 public:
  Line(char* out, size_t size) : out_(out), size_(size) {}
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    if (used_ >= size_) return;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(out_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    used_ = n < 0 ? size_ : used_ + static_cast<size_t>(n);
  }
  // 0: too long.
  size_t end() {
    add("}\n");
    return used_ < size_ ? used_ : 0;
  }

 private:
  char* out_;
  size_t size_;
  size_t used_ = 0;
};

using ull = unsigned long long;

bool is(const FailoverEvent& e, const char* what) {
  return strcmp(e.what, what) == 0;
}

void begin(Line& line, double unix_time, const char* what, const EventFile& of) {
  line.add(
      "{\"schema\": %d, \"time\": %.6f, \"what\": \"%s\", \"job\": \"%s\", \"host\": \"%s\", \"rank\": %d",
      kSchema, unix_time, what, Escaped(of.job.c_str()).text, Escaped(of.host.c_str()).text, of.rank);
}

void add_ends(Line& line, const EventNames& names, int rail) {
  line.add(
      ", \"peer\": %d, \"peer_host\": \"%s\", \"device\": \"%s\", \"port\": %u, \"peer_device\": \"%s\", "
      "\"peer_port\": %u, \"rail\": %d",
      names.peer, Escaped(names.peer_host).text, Escaped(names.device).text, names.port,
      Escaped(names.peer_device).text, names.peer_port, rail);
}

void add_return(Line& line, const FailoverEvent& e) {
  line.add(", \"epoch\": %u, \"lost_epoch\": %u, \"cause\": \"%s\", \"away_ms\": %s, \"rails_up\": %u",
           static_cast<unsigned>(e.up_epoch), static_cast<unsigned>(e.epoch), Escaped(e.text).text,
           Millis(e.down_ns, e.up_ns).text, static_cast<unsigned>(e.rails_up));
}

void add_wait(Line& line, const FailoverEvent& e) {
  line.add(", \"epoch\": %u, \"cause\": \"%s\", \"waited_ms\": %.3f, \"messages_waiting\": %llu",
           static_cast<unsigned>(e.epoch), Escaped(e.text).text, static_cast<double>(e.waited_ns) * 1e-6,
           static_cast<ull>(e.messages_waiting));
}

void add_loss(Line& line, const FailoverEvent& e) {
  line.add(", \"epoch\": %u, \"cause\": \"%s\", \"detect_ms\": %s, \"fence_ms\": %s, \"resume_ms\": %s",
           static_cast<unsigned>(e.epoch), Escaped(e.text).text, Millis(e.evidence_ns, e.down_ns).text,
           Millis(e.down_ns, e.closed_ns).text, Millis(e.evidence_ns, e.resumed_ns).text);
  line.add(
      ", \"bytes_resent\": %llu, \"messages_resent\": %llu, \"bytes_waiting\": %llu, "
      "\"messages_waiting\": %llu, \"duplicates_dropped\": %llu, \"restarts\": %llu, \"rails_left\": %u",
      static_cast<ull>(e.bytes_resent), static_cast<ull>(e.messages_resent),
      static_cast<ull>(e.bytes_waiting), static_cast<ull>(e.messages_waiting),
      static_cast<ull>(e.duplicates_dropped), static_cast<ull>(e.restarts),
      static_cast<unsigned>(e.rails_left));
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string plain(const std::string& name) {
  std::string text = name;
  for (char& c : text)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '_';
  return text;
}

// A pipe whose reader has left ends a process that does not expect that: the signal is taken here.
ssize_t write_to_pipe(int fd, const char* bytes, size_t size) {
  sigset_t pipe_signal;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(fd, bytes, size);
  const int error = errno;
  const timespec now{};
  if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
    while (sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

// Opens `path` for appending; `make`: O_CREAT or 0. -1 with errno: EMLINK for a file that has other names,
// ENXIO for what is neither a file nor a pipe that is read.
int open_for_lines(const char* path, int make, bool* pipe) {
  const int fd =
      ::open(path, O_WRONLY | make | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd < 0) return -1;
  struct stat info {};
  int why = 0;
  if (fstat(fd, &info) != 0) {
    why = errno;
  } else if (S_ISREG(info.st_mode)) {
    why = info.st_nlink > 1 ? EMLINK : 0;
  } else if (!S_ISFIFO(info.st_mode)) {
    why = ENXIO;
  }
  *pipe = S_ISFIFO(info.st_mode);
  if (why == 0) return fd;
  ::close(fd);
  errno = why;
  return -1;
}

const char* problem(int error) {
  return error == ENXIO ? "it is neither a file nor a pipe that somebody reads" : output_problem(error);
}

}  // namespace

size_t format_event(const FailoverEvent& e, const EventNames& names, double unix_time, double lost_at,
                    const EventFile& of, char* out, size_t size) {
  Line line(out, size);
  begin(line, unix_time, e.what, of);
  add_ends(line, names, static_cast<int>(e.rail));
  if (lost_at > 0) {
    line.add(", \"lost_at\": %.6f", lost_at);
  } else {
    line.add(", \"lost_at\": null");
  }
  if (is(e, "rail_up")) {
    add_return(line, e);
  } else if (is(e, "no_rail")) {
    add_wait(line, e);
  } else {
    add_loss(line, e);
  }
  return line.end();
}

const char* slow_side(const DegradedEvent& e) {
  if (e.rails_judged < 2) return "unknown";
  return e.rails_low == e.rails_judged ? "here" : e.rails_low <= 1 ? "there" : "unknown";
}

size_t format_degraded(const DegradedEvent& e, const EventNames& names, double unix_time, const EventFile& of,
                       char* out, size_t size) {
  Line line(out, size);
  begin(line, unix_time, e.degraded ? "degraded" : "recovered", of);
  add_ends(line, names, static_cast<int>(e.rail));
  line.add(", \"epoch\": %u, \"direction\": \"%s\", \"mbit\": %u", static_cast<unsigned>(e.epoch),
           e.in ? "in" : "out", static_cast<unsigned>(e.rate));
  if (e.before != 0) {
    line.add(", \"mbit_before\": %u", static_cast<unsigned>(e.before));
  } else {
    line.add(", \"mbit_before\": null");
  }
  line.add(", \"mbit_others\": %u, \"low_ms\": %.3f, \"age_ms\": %s, \"side\": \"%s\"",
           static_cast<unsigned>(e.others), static_cast<double>(e.low_ns) * 1e-6,
           Millis(1, e.age_ns != 0 ? 1 + e.age_ns : 0).text, slow_side(e));
  line.add(", \"rails_low\": %u, \"rails_judged\": %u", static_cast<unsigned>(e.rails_low),
           static_cast<unsigned>(e.rails_judged));
  return line.end();
}

size_t format_speed(const PortSpeed& speed, double unix_time, const EventFile& of, char* out, size_t size) {
  Line line(out, size);
  begin(line, unix_time, "port_speed", of);
  line.add(
      ", \"device\": \"%s\", \"port\": %u, \"mbit_before\": %u, \"mbit\": %u, \"cause\": \"%s\", \"rails\": "
      "%u",
      Escaped(speed.device).text, speed.port, static_cast<unsigned>(speed.before),
      static_cast<unsigned>(speed.now), Escaped(speed.cause).text, speed.rails);
  return line.end();
}

size_t format_loss(const PortLoss& loss, double unix_time, const EventFile& of, char* out, size_t size) {
  Line line(out, size);
  begin(line, unix_time, loss.lossy ? "packet_loss" : "packet_loss_over", of);
  line.add(
      ", \"device\": \"%s\", \"port\": %u, \"rail\": %u, \"direction\": \"%s\", \"packets_lost\": %llu, "
      "\"packets\": %llu, \"over_ms\": %.3f",
      Escaped(loss.device).text, loss.port, loss.rail, loss.in ? "in" : "out", static_cast<ull>(loss.lost),
      static_cast<ull>(loss.packets), static_cast<double>(loss.ns) * 1e-6);
  return line.end();
}

size_t format_limit(double unix_time, const EventFile& of, char* out, size_t size) {
  Line line(out, size);
  begin(line, unix_time, "limit", of);
  line.add(", \"limit_bytes\": %llu", static_cast<ull>(of.limit));
  return line.end();
}

bool event_path(const EventFile& to, std::string* path) {
  const bool named = !to.file.empty();
  const std::string from = named ? to.file : "bfo-events.%h.%j.jsonl";
  *path = named ? "" : to.folder + "/";
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != '%') {
      *path += from[i];
      continue;
    }
    const char what = i + 1 < from.size() ? from[++i] : '\0';
    if (what == 'h') {
      *path += plain(to.host);
    } else if (what == 'j') {
      *path += plain(to.job);
    } else if (what == 'r') {
      *path += decimal(to.rank);
    } else if (what == '%') {
      *path += '%';
    } else {
      *path = what == '\0' ? std::string("%") : std::string("%") + what;
      return false;
    }
  }
  return true;
}

void EventLog::warn(const char* what, const char* why, const char* then) {
  if (!claims_.take_once(claim_key("event file", what, 0, why))) return;
  const std::string line =
      "bfo: rank " + decimal(to_.rank) + ": the event file " + path_ + " " + what + ": " + why + "; " + then;
  warn_(line.c_str());
}

void EventLog::open(const EventFile& to) {
  close();
  to_ = to;
  if (to.file.empty() && to.folder.empty()) return;
  if (!event_path(to, &path_)) {
    const std::string bad = std::exchange(path_, to.file);
    return warn(
        "is not written",
        (bad + " is no placeholder: %h is the host, %j the job, %r the rank, %% a percent sign").c_str(),
        "the job goes on without it");
  }
  fd_ = open_for_lines(path_.c_str(), to.file.empty() ? 0 : O_CREAT, &pipe_);
  if (fd_ >= 0) return;
  const int error = errno;
  due_ = to.file.empty() && error == ENOENT && eaccess(to.folder.c_str(), W_OK | X_OK) == 0;
  // Of a folder that is not there, or not to be written, the second error tells.
  if (!due_) warn("cannot be opened", problem(error == ENOENT ? errno : error), "the job goes on without it");
}

// Can a line be written? Makes the file that waited for it.
bool EventLog::ready() {
  if (fd_ >= 0 || !due_) return fd_ >= 0;
  fd_ = open_for_lines(path_.c_str(), O_CREAT, &pipe_);
  if (fd_ < 0) lose(problem(errno));
  return fd_ >= 0;
}

// Does a line of `length` bytes exceed what the file may have? Says so once, there too.
bool EventLog::full(size_t length) {
  if (to_.limit == 0 || pipe_ || over_) return over_;
  struct stat info {};
  if (fstat(fd_, &info) != 0) return false;
  const auto has = static_cast<uint64_t>(info.st_size);
  if (has + length <= to_.limit) return false;
  over_ = true;
  char line[kMaxLine];
  const size_t last = format_limit(seconds_of(CLOCK_REALTIME), to_, line, sizeof(line));
  // A file that is longer has that line already.
  if (has <= to_.limit && last != 0 && claims_.take_once(claim_key("event limit", path_.c_str())))
      [[maybe_unused]]
    const ssize_t written = ::write(fd_, line, last);
  warn("is full", ("it has reached pml_bfo_event_limit (" + decimal(to_.limit) + " bytes)").c_str(),
       "further lines are lost");
  return true;
}

void EventLog::lose(const char* why) {
  if (lost_++ == 0 && !over_) warn("cannot be written", why, "the job goes on, and lines are lost");
}

void EventLog::put(const char* line, size_t length) {
  if (full(length)) return lose("");
  // A line of which a part was written is ended first.
  const char* const from = cut_ ? line : line + 1;
  const size_t size = cut_ ? length + 1 : length;
  const ssize_t written = pipe_ ? write_to_pipe(fd_, from, size) : ::write(fd_, from, size);
  if (written == static_cast<ssize_t>(size)) {
    cut_ = false;
    return;
  }
  const int error = written < 0 ? errno : ENOSPC;
  cut_ = cut_ || written > 0;
  lose(error == EAGAIN ? "nobody reads the pipe fast enough" : strerror(error));
}

void EventLog::write(const FailoverEvent& event, const EventNames& names) {
  const std::lock_guard<std::mutex> lock(lines_);
  if (!ready()) return;
  const double now = seconds_of(CLOCK_REALTIME);
  const double monotonic = seconds_of(CLOCK_MONOTONIC);
  const auto at = [&](uint64_t ns) {
    return ns == 0 ? 0 : now - (monotonic - static_cast<double>(ns) * 1e-9);
  };
  // The line of a return may have waited for that of its loss.
  const double when = is(event, "rail_up") ? at(event.up_ns) : now;
  char line[1 + kMaxLine];
  line[0] = '\n';
  const double lost_at = at(event.evidence_ns != 0 ? event.evidence_ns : event.down_ns);
  const size_t length = format_event(event, names, when, lost_at, to_, line + 1, sizeof(line) - 1);
  if (length != 0) put(line, length);
}

void EventLog::write(const DegradedEvent& event, const EventNames& names) {
  const std::lock_guard<std::mutex> lock(lines_);
  if (!ready()) return;
  char line[1 + kMaxLine];
  line[0] = '\n';
  const size_t length =
      format_degraded(event, names, seconds_of(CLOCK_REALTIME), to_, line + 1, sizeof(line) - 1);
  if (length != 0) put(line, length);
}

void EventLog::write(const PortSpeed& speed) {
  const std::lock_guard<std::mutex> lock(lines_);
  if (!ready()) return;
  char line[1 + kMaxLine];
  line[0] = '\n';
  const size_t length = format_speed(speed, seconds_of(CLOCK_REALTIME), to_, line + 1, sizeof(line) - 1);
  if (length != 0) put(line, length);
}

void EventLog::write(const PortLoss& loss) {
  const std::lock_guard<std::mutex> lock(lines_);
  if (!ready()) return;
  char line[1 + kMaxLine];
  line[0] = '\n';
  const size_t length = format_loss(loss, seconds_of(CLOCK_REALTIME), to_, line + 1, sizeof(line) - 1);
  if (length != 0) put(line, length);
}

void EventLog::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  due_ = false;
}

}  // namespace bfo::glue
