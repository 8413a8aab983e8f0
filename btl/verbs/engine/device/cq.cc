// SPDX-License-Identifier: BSD-3-Clause
//
// cq.cc: see cq.h.
#include "btl/verbs/engine/device/cq.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {

void make_queue(CqGrowth& growth) {
  errno = 0;
  growth.cq = growth.api->create_cq(growth.context, static_cast<int>(growth.size));
  while (growth.cq == nullptr && growth.size > growth.at_least) {
    growth.size = std::max(growth.at_least, growth.size / 2);
    growth.cq = growth.api->create_cq(growth.context, static_cast<int>(growth.size));
  }
  if (growth.cq == nullptr) growth.error = errno != 0 ? errno : EIO;
}

}  // namespace

bool CqSet::open(const VerbsApi& api, ibv_context* context, int max_cqe, uint32_t fixed, uint32_t target,
                 ControlLane* lane) {
  api_ = &api;
  context_ = context;
  max_ = max_cqe > 0 ? static_cast<uint32_t>(max_cqe) : 0;
  target_ = target;
  depth_ = 0;
  entries_ = 0;
  lane_ = lane;
  growing_ = false;
  error_ = 0;
  CqGrowth growth;
  if (!plan(&growth, fixed, target)) return false;
  make_queue(growth);
  errno = growth.error;
  if (growth.cq == nullptr) return false;
  add(&first_, growth, fixed);
  chain_ = &first_;
  return true;
}

/// False with errno: no queue of the device has so many entries.
bool CqSet::plan(CqGrowth* growth, uint32_t at_least, uint64_t wished) const {
  if (at_least > max_) {
    errno = ENOSPC;
    return false;
  }
  growth->api = api_;
  growth->context = context_;
  growth->at_least = at_least;
  growth->size = static_cast<uint32_t>(std::clamp<uint64_t>(wished, at_least, max_));
  return true;
}

void CqSet::add(Queue* queue, const CqGrowth& growth, uint32_t reserved) {
  *queue = Queue{growth.cq, nullptr, growth.size, reserved};
  depth_ = std::max(depth_, growth.size);
  entries_ += growth.size;
}

size_t CqSet::count() const {
  size_t count = 0;
  for (const Queue* queue = chain_; queue != nullptr; queue = queue->next) ++count;
  return count;
}

CqSet::Queue* CqSet::with_room(uint32_t entries) {
  for (Queue* queue = chain_; queue != nullptr; queue = queue->next) {
    if (queue->size - queue->reserved >= entries) return queue;
  }
  return nullptr;
}

bool CqSet::ready(uint32_t entries) {
  if (error_ == 0 && !growing_ && with_room(entries) == nullptr) grow(entries);
  return !growing_ || with_room(entries) != nullptr;
}

void CqSet::grow(uint32_t entries) {
  auto* const growth = make<CqGrowth>();
  if (growth == nullptr || !plan(growth, entries, std::max<uint64_t>(target_, entries_))) {
    error_ = growth == nullptr ? ENOMEM : errno;
    return unmake(growth);
  }
  growth->set = this;
  growth->droppable = true;
  growth->run = [](Command& self) { make_queue(static_cast<CqGrowth&>(self)); };
  growth->done = [](Command& self) {
    auto& ended = static_cast<CqGrowth&>(self);
    ended.set->grown(ended);
    unmake(&ended);
  };
  growing_ = true;
  lane_->submit(*growth, Urgency::kNormal);
}

void CqSet::grown(const CqGrowth& growth) {
  growing_ = false;
  if (growth.dropped) return;
  error_ = growth.error;
  if (growth.cq == nullptr) return;
  Queue* const more = make<Queue>();
  if (more == nullptr) {
    error_ = ENOMEM;
    static_cast<void>(api_->destroy_cq(growth.cq));
    return;
  }
  add(more, growth, 0);
  Queue* last = chain_;
  while (last->next != nullptr) last = last->next;
  last->next = more;
}

ibv_cq* CqSet::reserve(uint32_t entries) {
  Queue* const queue = with_room(entries);
  if (queue == nullptr) {
    errno = std::exchange(error_, 0);
    return nullptr;
  }
  queue->reserved += entries;
  return queue->cq;
}

void CqSet::release(ibv_cq* cq, uint32_t entries) {
  for (Queue* queue = chain_; queue != nullptr; queue = queue->next) {
    if (queue->cq == cq) queue->reserved -= entries;
  }
}

bool CqSet::close() {
  bool clean = true;
  while (chain_ != nullptr) {
    Queue* queue = chain_;
    chain_ = queue->next;
    clean = api_->destroy_cq(queue->cq) == 0 && clean;
    if (queue != &first_) unmake(queue);
  }
  first_ = Queue{};
  return clean;
}

}  // namespace bfo::engine
