// SPDX-License-Identifier: BSD-3-Clause
//
// environment.cc: time and randomness as the system has them.
#include "btl/verbs/engine/base/environment.h"

#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace bfo::engine {
namespace {

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

bool secret_bits(uint64_t* bits) {
  ssize_t got;
  do {
    got = getrandom(bits, sizeof *bits, 0);
  } while (got < 0 && errno == EINTR);
  if (got >= 0 && got != sizeof *bits) errno = EIO;
  return got == sizeof *bits;
}

uint64_t random_bits() {
  uint64_t bits = 0;
  if (!secret_bits(&bits)) bits = monotonic_ns() * 0x9e3779b97f4a7c15ull;
  return bits;
}

/// The second number of this file: time on a run queue (Linux, Documentation/scheduler/sched-stats.rst).
uint64_t starved_ns() {
  const int fd = ::open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return UINT64_MAX;
  char text[96];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return UINT64_MAX;
  text[got] = '\0';
  char* second = nullptr;
  strtoull(text, &second, 10);
  return *second == ' ' ? strtoull(second, nullptr, 10) : UINT64_MAX;
}

constexpr Environment kSystemEnvironment = {monotonic_ns, random_bits, secret_bits, starved_ns};

}  // namespace

const Environment& system_environment() {
  return kSystemEnvironment;
}

}  // namespace bfo::engine
