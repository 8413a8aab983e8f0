// SPDX-License-Identifier: BSD-3-Clause
//
// host_page.cc: see host_page.h.
#include "pml/bfo/glue/host_page.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace bfo::glue {
namespace {

constexpr uint64_t kMagic = 0x3345474150464f42u;  // "BOFPAGE3"
constexpr unsigned kTries = 100;                  // to read a record that is being written

enum State : uint32_t { kUnused, kThere, kLeft };

size_t up(size_t n) {
  return (n + 63) & ~size_t{63};
}

}  // namespace

// All zero in a new page.
struct HostPage::Head {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> record_size;
};

// Its record follows. `version` is odd while the record is being written.
struct HostPage::Place {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> pid;
  std::atomic<uint32_t> version;
  void* record() { return this + 1; }
};

HostPage::Place& HostPage::at(unsigned place) const {
  auto* first = reinterpret_cast<char*>(head_) + up(sizeof(Head));
  return *reinterpret_cast<Place*>(first + place * up(sizeof(Place) + record_size_));
}

void HostPage::open(const char* folder, unsigned place, unsigned places, size_t record_size) {
  place_ = place;
  places_ = places;
  record_size_ = record_size;
  shared_ = place < places && map(folder);
  if (!shared_) {
    place_ = 0;
    places_ = 1;
    if (!file_.own(up(sizeof(Head)) + up(sizeof(Place) + record_size_))) file_.close();
    head_ = static_cast<Head*>(file_.memory());
  }
  if (head_ == nullptr) return;
  at(place_).pid = static_cast<uint32_t>(getpid());
  at(place_).state = kThere;
}

static bool free_or_mine(const std::atomic<uint32_t>& pid) {
  const uint32_t known = pid.load();
  return known == 0 || known == static_cast<uint32_t>(getpid());
}

bool HostPage::map(const char* folder) {
  if (!file_.map(folder, "bfo-page", up(sizeof(Head)) + places_ * up(sizeof(Place) + record_size_)))
    return false;
  head_ = static_cast<Head*>(file_.memory());
  // Another build of this component may have another layout. A page that another process has used at this
  // place is what a job left that ended badly.
  uint64_t magic = 0;
  uint64_t size = 0;
  return (head_->record_size.compare_exchange_strong(size, record_size_) || size == record_size_) &&
         (head_->magic.compare_exchange_strong(magic, kMagic) || magic == kMagic) &&
         free_or_mine(at(place_).pid);
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

}  // namespace bfo::glue
