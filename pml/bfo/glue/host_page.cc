// SPDX-License-Identifier: BSD-3-Clause
//
// host_page.cc: see host_page.h.
#include "pml/bfo/glue/host_page.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace bfo::glue {
namespace {

constexpr uint64_t kMagic = 0x3245474150464f42u;  // "BOFPAGE2"
constexpr unsigned kClaims = 256;
constexpr unsigned kTries = 100;  // to read a record that is being written

enum State : uint32_t { kUnused, kThere, kLeft };

struct Claim {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> told_ns;
  std::atomic<uint32_t> counted;
  std::atomic<uint32_t> said;
};

size_t up(size_t n) {
  return (n + 63) & ~size_t{63};
}

uint64_t mix(uint64_t hash, const void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace

// All zero in a new page.
struct HostPage::Head {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> record_size;
  std::atomic<uint32_t> printed;
  Claim claims[kClaims];
};

// Its record follows. `version` is odd while the record is being written.
struct HostPage::Place {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> pid;
  std::atomic<uint32_t> version;
  void* record() { return this + 1; }
};

uint64_t claim_key(const char* what, const char* where, unsigned number, const char* why) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char* word : {what, where, why}) hash = mix(hash, word, strlen(word) + 1);
  return mix(hash, &number, sizeof(number)) | 1;
}

HostPage::~HostPage() {
  if (head_ != nullptr) munmap(head_, size_);
}

HostPage::Place& HostPage::at(unsigned place) const {
  auto* first = reinterpret_cast<char*>(head_) + up(sizeof(Head));
  return *reinterpret_cast<Place*>(first + place * up(sizeof(Place) + record_size_));
}

void HostPage::open(const char* folder, unsigned place, unsigned places, size_t record_size) {
  place_ = place;
  places_ = places;
  record_size_ = record_size;
  size_ = up(sizeof(Head)) + places * up(sizeof(Place) + record_size);
  shared_ = folder != nullptr && *folder != '\0' && place < places && map(folder);
  if (!shared_) own();
  if (head_ == nullptr) return;
  at(place_).pid = static_cast<uint32_t>(getpid());
  at(place_).state = kThere;
}

// `quiet_ns`, doubled each time after the first.
static uint64_t quiet_after(uint32_t said, uint64_t quiet_ns, uint64_t longest_ns) {
  for (; said > 1 && quiet_ns < longest_ns; --said) quiet_ns = std::min(2 * quiet_ns, longest_ns);
  return quiet_ns;
}

static bool free_or_mine(const std::atomic<uint32_t>& pid) {
  const uint32_t known = pid.load();
  return known == 0 || known == static_cast<uint32_t>(getpid());
}

// The room is taken before the memory is touched: a full file system is an error here and not a signal later.
bool HostPage::map(const char* folder) {
  char path[1024];
  const int n = snprintf(path, sizeof(path), "%s/bfo-page", folder);
  if (n < 0 || static_cast<size_t>(n) >= sizeof(path)) return false;
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd < 0) return false;
  struct stat info {};
  void* memory = MAP_FAILED;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
      fallocate(fd, 0, 0, static_cast<off_t>(size_)) == 0)
    memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return false;
  head_ = static_cast<Head*>(memory);
  // Another build of this component may have another layout. A page that another process has used at this
  // place is what a job left that ended badly.
  uint64_t magic = 0;
  uint64_t size = 0;
  if ((head_->record_size.compare_exchange_strong(size, record_size_) || size == record_size_) &&
      (head_->magic.compare_exchange_strong(magic, kMagic) || magic == kMagic) &&
      free_or_mine(at(place_).pid))
    return true;
  munmap(head_, size_);
  head_ = nullptr;
  return false;
}

void HostPage::own() {
  place_ = 0;
  places_ = 1;
  size_ = up(sizeof(Head)) + up(sizeof(Place) + record_size_);
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  head_ = memory == MAP_FAILED ? nullptr : static_cast<Head*>(memory);
}

HostPage::Turn HostPage::claim(uint64_t key, uint64_t now_ns, uint64_t quiet_ns, uint64_t longest_ns) {
  if (head_ == nullptr) return {true, 0};
  for (unsigned i = 0; i < kClaims; ++i) {
    Claim& claim = head_->claims[(key + i) % kClaims];
    uint64_t known = 0;
    if (!claim.key.compare_exchange_strong(known, key) && known != key) continue;
    uint64_t told = claim.told_ns.load();
    // The clocks of two processes that read it at the same moment may be a little apart.
    if ((told == 0 || (now_ns > told && now_ns - told >= quiet_after(claim.said, quiet_ns, longest_ns))) &&
        claim.told_ns.compare_exchange_strong(told, now_ns)) {
      claim.said.fetch_add(1);
      return {true, claim.counted.exchange(0)};
    }
    claim.counted.fetch_add(1);
    return {};
  }
  return {true, 0};  // too many different things were said: rather too often than not at all
}

void HostPage::leave(const void* record) {
  if (head_ == nullptr) return;
  Place& place = at(place_);
  place.version.fetch_add(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  memcpy(place.record(), record, record_size_);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  place.version.fetch_add(1);
}

void HostPage::leave_last() {
  if (head_ != nullptr) at(place_).state = kLeft;
}

bool HostPage::read(unsigned place, void* record) const {
  if (head_ == nullptr || place >= places_) return false;
  Place& from = at(place);
  for (unsigned i = 0; i < kTries; ++i) {
    const uint32_t version = from.version.load();
    if (version == 0) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    memcpy(record, from.record(), record_size_);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (version % 2 == 0 && from.version.load() == version) return true;
    usleep(10);
  }
  return true;  // its writer died: what is read is checked by the caller
}

bool HostPage::all_left() const {
  if (head_ == nullptr) return true;
  for (unsigned i = 0; i < places_; ++i) {
    const Place& place = at(i);
    if (place.state.load() != kThere) continue;
    const auto pid = static_cast<pid_t>(place.pid.load());
    if (pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH)) return false;
  }
  return true;
}

bool HostPage::first_to_print() {
  return head_ == nullptr || head_->printed.exchange(1) == 0;
}

}  // namespace bfo::glue
