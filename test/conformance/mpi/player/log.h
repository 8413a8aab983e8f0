// SPDX-License-Identifier: BSD-3-Clause
// What a thread of a process saw: one line per end of a message, the same over every transport if all is
// right.
#pragma once

#include <cstdio>
#include <string>

namespace player {

class Log {
 public:
  /// Writes `path`; ends the job when it cannot.
  explicit Log(const std::string& path);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void line(const std::string& text) { text_ += text + "\n"; }
  /// A line that says what must not be: counted, and printed on stderr as well.
  void wrong(const std::string& text);
  /// What was logged so far is in the file from now on.
  void flush();
  int wrongs() const { return wrongs_; }

 private:
  std::FILE* file_;
  std::string text_;
  int wrongs_ = 0;
};

}  // namespace player
