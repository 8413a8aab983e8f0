// SPDX-License-Identifier: BSD-3-Clause
//
// claims.cc: see claims.h.
#include "common/claims.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/shared_file.h"

namespace bfo {
namespace {

constexpr char kFile[] = "bfo-claims";
constexpr uint64_t kMagic = 0x33534d49414c4342u;  // "BCLAIMS3"
constexpr unsigned kClaims = 256;
constexpr unsigned kPlaces = 1024;

uint64_t mix(uint64_t hash, const void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001b3u;
  return hash;
}

/// `quiet_ns`, doubled each time after the first.
uint64_t quiet_after(uint32_t times, uint64_t quiet_ns, uint64_t longest_ns) {
  for (; times > 1 && quiet_ns < longest_ns; --times) quiet_ns = std::min(2 * quiet_ns, longest_ns);
  return quiet_ns;
}

/// Or is where this process cannot see it, in another namespace.
bool has_ended(uint32_t pid) {
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

}  // namespace

struct Claims::Claim {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> told_ns;
  std::atomic<uint32_t> counted;
  std::atomic<uint32_t> times;
  std::atomic<uint32_t> said;
  std::atomic<uint32_t> holder;  ///< its pid
  std::atomic<uint32_t> lasts;
};

/// All zero in a new file.
struct Claims::Table {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> pids[kPlaces];
  Claim claims[kClaims];

  /// Another build may have another layout. A table that another process has used at this place is what a job
  /// left that ended badly: its claims would silence this one.
  bool fits(unsigned place) {
    uint64_t known = 0;
    if (!magic.compare_exchange_strong(known, kMagic) && known != kMagic) return false;
    const auto own = static_cast<uint32_t>(getpid());
    uint32_t pid = 0;
    return place < kPlaces && (pids[place].compare_exchange_strong(pid, own) || pid == own);
  }
};

uint64_t claim_key(const char* what, const char* where, unsigned number, const char* why) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char* word : {what, where, why}) hash = mix(hash, word, strlen(word) + 1);
  return mix(hash, &number, sizeof number) | 1;
}

void Claims::open(const char* folder, unsigned place) {
  if (table_ != nullptr) return;
  SharedFile file;
  shared_ = file.map(folder, kFile, sizeof(Table)) && static_cast<Table*>(file.memory())->fits(place);
  if (!shared_ && !file.own(sizeof(Table))) file.close();
  table_ = static_cast<Table*>(file.release());
}

/// nullptr: there is no table, or no room in it.
Claims::Claim* Claims::find(uint64_t key) const {
  if (table_ == nullptr) return nullptr;
  for (unsigned i = 0; i < kClaims; ++i) {
    Claim& claim = table_->claims[(key + i) % kClaims];
    uint64_t known = 0;
    if (claim.key.compare_exchange_strong(known, key) || known == key) return &claim;
  }
  return nullptr;
}

Claims::Turn Claims::take(uint64_t key, uint64_t now_ns, uint64_t quiet_ns, uint64_t longest_ns) {
  Claim* const claim = find(key);
  if (claim == nullptr) return {true, 0};  // too many different things: rather too often than not at all
  uint64_t told = claim->told_ns.load();
  // The clocks of two processes that read it at the same moment may be a little apart.
  if ((told == 0 || (now_ns > told && now_ns - told >= quiet_after(claim->times, quiet_ns, longest_ns))) &&
      claim->told_ns.compare_exchange_strong(told, now_ns)) {
    claim->times.fetch_add(1);
    return {true, claim->counted.exchange(0)};
  }
  claim->counted.fetch_add(1);
  return {};
}

void Claims::renew(uint64_t key, uint64_t now_ns) {
  if (Claim* const claim = find(key); claim != nullptr) claim->told_ns = now_ns;
}

Claims::Hold Claims::hold(uint64_t key, uint64_t now_ns, uint64_t lapse_ns, uint64_t ended_ns) {
  Claim* const claim = find(key);
  if (claim == nullptr) return Hold::kKept;
  const auto own = static_cast<uint32_t>(getpid());
  uint32_t holder = claim->holder.load();
  if (holder == own) {
    claim->told_ns = now_ns;
    return Hold::kKept;
  }
  const uint64_t asked = claim->told_ns.load();
  if (holder != 0 && now_ns < asked + lapse_ns && (now_ns < asked + ended_ns || !has_ended(holder)))
    return Hold::kOthers;
  if (!claim->holder.compare_exchange_strong(holder, own)) return Hold::kOthers;
  claim->told_ns = now_ns;
  return Hold::kTaken;
}

void Claims::begin(uint64_t key) {
  if (Claim* const claim = find(key); claim != nullptr) claim->lasts = 1;
}

bool Claims::lasts(uint64_t key) const {
  const Claim* const claim = find(key);
  return claim != nullptr && claim->lasts.load() != 0;
}

bool Claims::end(uint64_t key) {
  Claim* const claim = find(key);
  return claim == nullptr || claim->lasts.exchange(0) != 0;
}

bool Claims::take_once(uint64_t key, bool otherwise) {
  return take(key, 1, UINT64_MAX).mine && (shared_ || otherwise);
}

void Claims::said(uint64_t key) {
  if (Claim* const claim = find(key); claim != nullptr) claim->said = 1;
}

void Claims::wait(uint64_t key, int most_ms) const {
  const Claim* const claim = shared_ ? find(key) : nullptr;
  for (int ms = 0; claim != nullptr && claim->said.load() == 0 && ms < most_ms; ++ms) usleep(1000);
}

}  // namespace bfo
