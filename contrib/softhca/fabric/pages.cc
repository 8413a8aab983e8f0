// SPDX-License-Identifier: BSD-3-Clause
//
// pages.cc: see pages.h.
#include "contrib/softhca/fabric/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace bfo::softhca {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kFrame = (uint64_t{1} << 55) - 1;
constexpr size_t kBatch = 512;

/// One file that is read by page number.
class PageFile {
 public:
  explicit PageFile(int fd) : fd_(fd) {}
  ~PageFile() {
    if (fd_ >= 0) close(fd_);
  }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  bool is_open() const { return fd_ >= 0; }
  /// `count` entries from number `first` on.
  bool read(uint64_t first, uint64_t* entries, size_t count) const {
    const size_t bytes = count * sizeof *entries;
    return pread(fd_, entries, bytes, static_cast<off_t>(first * sizeof *entries)) ==
           static_cast<ssize_t>(bytes);
  }

 private:
  int fd_;
};

int open_of(int pid, const char* what) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/// What is compared of a page: its frame where that is shown, and whether it is there at all.
uint64_t essence(uint64_t entry) {
  if ((entry & kPresent) != 0) return kPresent | (entry & kFrame);
  return (entry & kSwapped) != 0 ? kPresent : 0;
}

bool same(uint64_t before, uint64_t now) {
  const uint64_t old_frame = before & kFrame;
  const uint64_t frame = now & kFrame;
  if ((before & kPresent) != (now & kPresent)) return false;
  return old_frame == 0 || frame == 0 || old_frame == frame;  // 0: not shown, or swapped
}

bool populate(uint64_t begin, uint64_t end, bool writable) {
  void* const at = reinterpret_cast<void*>(begin);
  madvise(at, end - begin,
          MADV_NOHUGEPAGE);  // refused for some kinds of memory: then pages may be taken for moved
  if (madvise(at, end - begin, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return true;
  return errno == EINVAL;  // a kernel before 5.14: pages that nobody touched count as gone
}

bool copy_entries(const PageFile& map, int to, uint64_t first, uint64_t count) {
  uint64_t entries[kBatch];
  for (uint64_t done = 0; done < count;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(kBatch, count - done));
    if (!map.read(first + done, entries, part)) return false;
    std::transform(entries, entries + part, entries, essence);
    const ssize_t bytes = static_cast<ssize_t>(part * sizeof *entries);
    if (write(to, entries, static_cast<size_t>(bytes)) != bytes) return false;
    done += part;
  }
  return true;
}

void say_first(int pid, uint64_t page, uint64_t before, uint64_t now) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  fprintf(stderr,
          "softhca: process %d uses registered memory at %#llx whose pages are gone (%s): it was unmapped "
          "without "
          "being deregistered. A real HCA would move other bytes than the program sees; the request fails "
          "(SOFTHCA_STRICT_PAGES)\n",
          pid, static_cast<unsigned long long>(page * kPage),
          (now & kPresent) == 0      ? "nothing is there"
          : (before & kPresent) == 0 ? "a page came"
                                     : "other pages");
}

}  // namespace

PageRecord record_pages(uint64_t address, uint64_t length, bool writable) {
  const uint64_t begin = address & ~(kPage - 1);
  const uint64_t end = (address + length + kPage - 1) & ~(kPage - 1);
  if (!populate(begin, end, writable)) return 0;
  const PageFile map(open_of(getpid(), "pagemap"));
  const int record = memfd_create("softhca-pages", MFD_CLOEXEC);
  if (record < 0) return 0;
  if (map.is_open() && copy_entries(map, record, begin / kPage, (end - begin) / kPage))
    return static_cast<PageRecord>(record) + 1;
  close(record);
  if (errno == 0) errno = EIO;
  return 0;
}

void forget_pages(PageRecord record) {
  if (record != 0) close(static_cast<int>(record) - 1);
}

bool same_pages(int pid, PageRecord record, uint64_t start, uint64_t address, uint64_t length) {
  char name[32];
  snprintf(name, sizeof name, "fd/%u", record - 1);
  const PageFile then(open_of(pid, name));
  const PageFile map(open_of(pid, "pagemap"));
  if (!then.is_open() || !map.is_open()) return true;
  const uint64_t first = start / kPage;
  const uint64_t last = (address + length - 1) / kPage;
  for (uint64_t page = address / kPage; page <= last;) {
    uint64_t before[kBatch];
    uint64_t now[kBatch];
    const size_t part = static_cast<size_t>(std::min<uint64_t>(kBatch, last - page + 1));
    if (!then.read(page - first, before, part) || !map.read(page, now, part)) return true;
    for (size_t i = 0; i < part; ++i) {
      if (same(before[i], essence(now[i]))) continue;
      say_first(pid, page + i, before[i], now[i]);
      return false;
    }
    page += part;
  }
  return true;
}

}  // namespace bfo::softhca
