// SPDX-License-Identifier: BSD-3-Clause
//
// stock.cc: see stock.h.
#include "btl/verbs/engine/device/stock.h"

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {

void Stock::open(Arena& arena, ControlLane& lane, std::atomic<bool>& service_needed) {
  arena_ = &arena;
  lane_ = &lane;
  service_needed_ = &service_needed;
}

bool Stock::ready(const StockNeed& need) {
  if (need.wish == 0 || arena_->has(need.wish)) return true;
  if (!growing_ && error_.load(std::memory_order_relaxed) == 0) grow(need);
  return !growing_;
}

Region Stock::take(size_t bytes, size_t least) {
  const Region region = arena_->take_made(bytes);
  if (region.address != nullptr) return region;
  errno = error_.exchange(0, std::memory_order_relaxed);
  if (errno != 0) return Region{};
  least_.store(least, std::memory_order_relaxed);
  size_t none = 0;
  missed_.compare_exchange_strong(none, bytes, std::memory_order_relaxed);
  service_needed_->store(true, std::memory_order_release);
  errno = EAGAIN;
  return Region{};
}

void Stock::service() {
  if (growing_) return;
  const size_t bytes = missed_.exchange(0, std::memory_order_relaxed);
  const size_t least = least_.load(std::memory_order_relaxed);
  if (bytes != 0 && !arena_->has(bytes)) grow(StockNeed{bytes, std::min(least, bytes)});
}

void Stock::grow(const StockNeed& need) {
  auto* const step = make<StockStep>();
  if (step == nullptr) {
    error_.store(ENOMEM, std::memory_order_relaxed);
    return;
  }
  step->stock = this;
  step->maker = arena_->maker();
  step->wish = need.wish;
  step->least = need.least;
  step->droppable = true;
  step->run = [](Command& self) {
    auto& command = static_cast<StockStep&>(self);
    command.chunk = command.maker.make_some(command.wish, command.least, &command.error);
  };
  step->done = [](Command& self) {
    auto& ended = static_cast<StockStep&>(self);
    ended.stock->grown(ended);
    unmake(&ended);
  };
  growing_ = true;
  lane_->submit(*step, Urgency::kFirst);
}

void Stock::grown(const StockStep& step) {
  growing_ = false;
  if (step.chunk != nullptr) arena_->add(step.chunk);
  // With less than was wished for somebody may go without: then this is why.
  const bool short_of = step.chunk == nullptr || !arena_->has(step.wish);
  error_.store(!step.dropped && short_of ? step.error : 0, std::memory_order_relaxed);
}

}  // namespace bfo::engine
