// SPDX-License-Identifier: BSD-3-Clause
//
// output_file.h: opens a file the user named for output. Such names may lie in folders others can write to,
// so a link or a FIFO somebody put there must neither redirect what is written nor stop the program.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace bfo {

/// Opens `path` for appending, with mode 0600 when it is new, and empties it first when `truncate`. Only
/// regular files are opened, no links, and nothing blocks. A file that has other names is not emptied.
/// Returns the descriptor, or -1 with errno: ELOOP for a symbolic link, EMLINK for a file with other names,
/// ENXIO for what is no regular file. Any thread.
inline int open_output(const char* path, bool truncate) {
  const int fd =
      ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd < 0) return -1;
  struct stat info {};
  int why = 0;
  // The file is emptied only when it is known to be one.
  if (fstat(fd, &info) != 0) {
    why = errno;
  } else if (!S_ISREG(info.st_mode)) {
    why = ENXIO;
  } else if (info.st_nlink > 1) {
    why = EMLINK;
  } else if (truncate && ftruncate(fd, 0) != 0) {
    why = errno;
  }
  if (why == 0) return fd;
  ::close(fd);
  errno = why;
  return -1;
}

/// What the error of open_output means, as the end of a sentence.
inline const char* output_problem(int error) {
  if (error == ELOOP) return "it is a symbolic link; name the file itself";
  if (error == EMLINK) return "it is a hard link, and what it names has another name";
  if (error == ENXIO) return "it is not a regular file";
  return strerror(error);
}

}  // namespace bfo
