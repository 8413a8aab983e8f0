// SPDX-License-Identifier: BSD-3-Clause
//
// address.cc: see address.h.
#include "btl/verbs/engine/port/address.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/port/own_address.h"
#include "btl/verbs/engine/port/path.h"

namespace bfo::engine {
namespace {

/// Destinations that do not answer keep as many threads for about a second each; the others go on.
constexpr uint32_t kWidth = ControlLane::kMaxWidth;
/// At the end nobody waits for a handle; what is wanted is only that the thread is out of the device.
constexpr uint64_t kCloseTimeoutNs = 50'000'000;

bool same(const PortAddress& a, const PortAddress& b) {
  return a.lid == b.lid && a.link_layer == b.link_layer && a.gid_type == b.gid_type &&
         memcmp(a.gid.raw, b.gid.raw, sizeof a.gid) == 0;
}

}  // namespace

void AddressCache::open(OwnPort& port, PathRecords& paths, ControlMode mode,
                        std::atomic<bool>* service_needed, ControlThreads& threads) {
  port_ = &port;
  paths_ = &paths;
  lane_.open(mode, kWidth, service_needed, &threads);
}

Address* AddressCache::find(const PortAddress& to, uint8_t path) {
  for (Address* address = newest_; address != nullptr; address = address->older) {
    if (address->path == path && same(address->to, to)) return address;
  }
  auto* address = make<Address>();
  if (address == nullptr) return nullptr;
  address->cache = this;
  address->to = to;
  address->path = path;
  address->older = newest_;
  newest_ = address;
  return address;
}

Address* AddressCache::way_to(const PortAddress& to, Address* before, uint64_t now) {
  if (before == nullptr) return find(to);
  const uint8_t paths = path_count(port_->address(), to);
  const bool exists = before->path < paths;
  const bool unmade = before->handle == nullptr && before->failures != 0;
  if (exists && (paths == 1 || (before->unheard < kPathUnheard && !unmade))) return before;
  Address* first = nullptr;
  for (uint8_t hop = 1; hop < paths || first == nullptr; ++hop) {
    Address* const next = find(to, static_cast<uint8_t>((before->path + hop) % paths));
    if (next == nullptr) return before;
    if (first == nullptr) first = next;
    if (next->handle != nullptr || handle(*next, now) != nullptr) return next;
    if (next->failures == 0) break;  // it is being made
  }
  // The old way serves until the new one is there.
  return exists && before->handle != nullptr ? before : first;
}

ibv_ah* AddressCache::handle(Address& address, uint64_t now) {
  if (address.handle != nullptr) {
    count_use(address, now);
    const bool at_once = address.moved && address.retired == nullptr;
    if (!address.stale || (!at_once && now - address.made_ns < kServesNs)) return address.handle;
  }
  if (address.asked || (address.failures != 0 && now < address.retry_ns)) return address.handle;
  QpSettings settings = port_->settings();
  address.awaits_path = !paths_->service_level(address.to, address.path, now, &settings.service_level);
  if (address.awaits_path) return address.handle;
  PortAddress own = port_->address();
  if (!set_own_address(*port_, address.to, &settings, &own)) {
    address.error = EADDRNOTAVAIL;
    failed(address);
    return address.handle;
  }
  address.asked = true;
  address.api = &port_->api();
  address.pd = port_->device().pd();
  address.attr = address_vector(settings, own, address.to, address.path);
  address.run = create;
  address.done = created;
  address.droppable = true;
  // What has never failed goes before what did: a dead node must not delay the first word to a living one.
  lane_.submit(address, address.failures == 0 ? Urgency::kNormal : Urgency::kLast);
  return address.handle;
}

void AddressCache::count_use(Address& address, uint64_t now) {
  ++address.unheard;
  ++address.unanswered;
  if (address.to.link_layer != IBV_LINK_LAYER_ETHERNET) return;
  if (address.unanswered >= kUnanswered && now - address.made_ns >= kRenewNs) address.stale = true;
}

void AddressCache::create(Command& command) {
  auto& address = static_cast<Address&>(command);
  // What was sent with it, at least kServesNs ago, has left.
  if (address.retired != nullptr) address.api->destroy_ah(address.retired);
  address.retired = nullptr;
  errno = 0;
  address.made = address.api->create_ah(address.pd, &address.attr);
  address.made_error = address.made != nullptr ? 0 : errno != 0 ? errno : EIO;
}

void AddressCache::created(Command& command) {
  auto& address = static_cast<Address&>(command);
  address.asked = false;
  if (address.dropped) return;
  address.error = address.made_error;
  if (address.made == nullptr) return address.cache->failed(address);
  address.retired = address.handle;
  address.handle = address.made;
  address.stale = address.moved = false;
  address.unheard = address.unanswered = 0;
  address.made_ns = address.cache->port_->env().now_ns();
  address.failures = 0;
  // Datagrams wait for it.
  address.cache->port_->need_service();
}

void AddressCache::failed(Address& address) {
  const Config& config = port_->config();
  const uint64_t base =
      std::min(config.address_retry_max_ns, config.address_retry_min_ns << std::min(address.failures, 16u));
  ++address.failures;
  address.retry_ns = port_->env().now_ns() + base / 2 + port_->env().random() % (base + 1);
}

void AddressCache::heard(Address& address, bool answers, uint64_t now) {
  address.unheard = 0;
  if (answers) address.unanswered = 0;
  if (address.failures != 0) address.retry_ns = std::min(address.retry_ns, now + kHeardNs);
}

void AddressCache::forgive() {
  for (Address* address = newest_; address != nullptr; address = address->older) address->failures = 0;
}

void AddressCache::renew() {
  for (Address* address = newest_; address != nullptr; address = address->older)
    address->stale = address->to.link_layer == IBV_LINK_LAYER_ETHERNET;
}

void AddressCache::renew_moved() {
  renew();
  for (Address* address = newest_; address != nullptr; address = address->older)
    address->moved = address->stale;
}

void AddressCache::renew_all() {
  for (Address* address = newest_; address != nullptr; address = address->older) address->stale = true;
}

void AddressCache::path_answered(uint64_t now) {
  for (Address* address = newest_; address != nullptr; address = address->older) {
    if (address->awaits_path) handle(*address, now);
  }
}

void AddressCache::destroy(Command& command) {
  auto& address = static_cast<Address&>(command);
  address.api->destroy_ah(address.made);
  if (address.retired != nullptr) address.api->destroy_ah(address.retired);
}

bool AddressCache::close() {
  for (Address* address = newest_; address != nullptr; address = address->older) {
    if (address->asked || address->handle == nullptr) continue;
    address->asked = true;
    address->run = destroy;
    address->done = [](Command& done) { static_cast<Address&>(done).asked = false; };
    address->made = address->handle;
    address->handle = nullptr;
    address->droppable = false;
    lane_.submit(*address, Urgency::kFirst);
  }
  const bool clean = lane_.close(kCloseTimeoutNs);
  while (newest_ != nullptr) {
    Address* const address = newest_;
    newest_ = address->older;
    // A handle that came while the lane closed.
    if (clean && address->handle != nullptr) {
      address->api->destroy_ah(address->handle);
      if (address->retired != nullptr) address->api->destroy_ah(address->retired);
    }
    if (clean || !address->asked) unmake(address);
  }
  return clean;
}

}  // namespace bfo::engine
