// SPDX-License-Identifier: BSD-3-Clause
//
// board.h: what the ranks of a liar job say to each other. It is a file that all of them map: the liar's own
// connection to its victim cannot be trusted, and what it sent last must outlive a rank that died of it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/// What the victim has for the liar while it is lied to.
enum State : uint32_t { kNothing, kPosted, kAnySource, kProbed, kPersistent, kSending, kStates };
inline constexpr const char* kStateNames[kStates] = {"unexpected", "posted",     "any source",
                                                     "probed",     "persistent", "sending"};

/// Tags of the PML, the unused ones included.
inline constexpr unsigned kFirstTag = 0x40;
inline constexpr unsigned kTags = 32;
inline constexpr unsigned kFirstBytes = 256;
inline constexpr unsigned kLengths = 16;
inline constexpr unsigned kCells = kTags * kFirstBytes * kLengths;  // for each state

/// One message of the liar.
struct Lie {
  uint64_t number;  ///< from 1; 0: never written
  uint32_t step;
  uint32_t state;
  uint32_t length;
  uint8_t tag;
  uint8_t racing;  ///< its bytes were changed after it was handed over
  uint8_t reserved[2];
  char kind[16];
  uint8_t head[88];
};

/// What an honest rank has seen.
struct Word {
  std::atomic<uint64_t> beats;  ///< turns of its loop
  std::atomic<uint64_t> messages;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> wrong;   ///< messages
  std::atomic<uint64_t> errors;  ///< requests that ended with one
  std::atomic<uint32_t> finished;
};

inline constexpr unsigned kMostRanks = 16;
inline constexpr unsigned kRing = 256;

struct Board {
  uint8_t covered[kStates][kCells / 8];  ///< first: a further job may be given what the one before covered
  // Steps: the liar writes `step`, the victim `ready`, the liar `fired`, the victim `done`.
  std::atomic<uint32_t> turn;  ///< which liar it is; beyond the last one: it is over
  std::atomic<uint32_t> step, ready, fired, done;
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> given_up;  ///< the victim has declared this liar failed
  std::atomic<uint32_t> times_given_up;
  std::atomic<uint32_t> over;
  std::atomic<uint64_t> began_us;
  std::atomic<uint64_t> settled_kib, most_kib;  ///< resident memory of the victim
  std::atomic<uint64_t> guards;                 ///< bytes written behind a buffer of the victim
  std::atomic<uint64_t> received, stuck;        ///< requests of the victim with liars
  std::atomic<uint64_t> lies;
  Word words[kMostRanks];
  Lie ring[kRing];

  static Board* map(const char* path) {
    const int fd = ::open(path, O_RDWR | O_CREAT, 0600);
    void* at = MAP_FAILED;
    if (fd >= 0 && ::ftruncate(fd, sizeof(Board)) == 0)
      at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      std::perror(path);
      std::exit(3);
    }
    ::close(fd);
    return static_cast<Board*>(at);
  }

  void tell() const;  ///< prints all of it
};

inline void Board::tell() const {
  std::printf("liar: %llu lies in %u steps, given up %u times\n",
              static_cast<unsigned long long>(lies.load()), step.load(), times_given_up.load());
  std::printf("liar: covered: %zu bytes\n", sizeof covered);
  for (unsigned s = 0; s < kStates; ++s) {
    unsigned long long count = 0;
    for (const uint8_t byte : covered[s]) count += static_cast<unsigned>(__builtin_popcount(byte));
    std::printf("liar: covered %s: %llu of %u\n", kStateNames[s], count, kCells);
  }
  std::printf(
      "victim: memory %llu KiB, at most %llu KiB, %llu bytes behind buffers, %llu received, %llu without "
      "end\n",
      static_cast<unsigned long long>(settled_kib.load()), static_cast<unsigned long long>(most_kib.load()),
      static_cast<unsigned long long>(guards.load()), static_cast<unsigned long long>(received.load()),
      static_cast<unsigned long long>(stuck.load()));
  for (unsigned r = 0; r < kMostRanks; ++r)
    if (words[r].beats != 0)
      std::printf("honest %u: %llu messages, %llu bytes, %llu wrong, %llu errors, finished %u\n", r,
                  static_cast<unsigned long long>(words[r].messages.load()),
                  static_cast<unsigned long long>(words[r].bytes.load()),
                  static_cast<unsigned long long>(words[r].wrong.load()),
                  static_cast<unsigned long long>(words[r].errors.load()), words[r].finished.load());
}
