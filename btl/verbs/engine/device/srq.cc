// SPDX-License-Identifier: BSD-3-Clause
//
// srq.cc: see srq.h.
#include "btl/verbs/engine/device/srq.h"

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/device/cq.h"

namespace bfo::engine {

bool Srq::open(const VerbsApi& api, ibv_pd* pd, Arena& arena, uint32_t depth, uint32_t first,
               uint32_t bytes) {
  api_ = &api;
  arena_ = &arena;
  made_ = crowd_ = peak_ = chained_ = 0;
  holds_back_ = first < depth;
  steps_ = home_count_ = 0;
  retiring_ = false;
  broken_ = 0;
  chain_ = home_ = nullptr;
  ibv_srq_init_attr init{};
  init.attr.max_wr = depth;
  init.attr.max_sge = 1;
  srq_ = api.create_srq(pd, &init);
  if (srq_ == nullptr) return false;
  // An odd number of cache lines per buffer: with a power of two all first lines, the only ones small
  // messages touch, would share one cache set.
  stride_ = (size_t{bytes} + 63) / 64 * 64 + 192;
  if ((stride_ / 64) % 2 == 0) stride_ += 64;
  if (!wrs_.reset(depth) || !sges_.reset(depth)) {
    errno = ENOMEM;
    return false;
  }
  depth_ = depth;
  bytes_ = bytes;
  if (!add(std::min(first, depth))) return false;
  if (SrqArm first_arm; plan(first_arm)) first_arm.run(first_arm);
  errno = broken_;
  return broken_ == 0;
}

bool Srq::add(uint32_t count) {
  const Region region = arena_->take(stride_ * count);
  if (region.address == nullptr) return false;
  add(region, count, nullptr);
  return true;
}

void Srq::add(const Region& region, uint32_t count, Chunk* chunk) {
  const uint32_t end = made_ + count;
  step_[steps_++] = Step{made_, chunk};
  for (uint32_t i = made_; i < end; ++i) {
    sges_[i] =
        ibv_sge{reinterpret_cast<uint64_t>(region.address + (i - made_) * stride_), bytes_, region.lkey};
    wrs_[i].wr_id = work_id(WorkKind::kReceive, i);
    wrs_[i].sg_list = &sges_[i];
    wrs_[i].num_sge = 1;
  }
  const uint32_t begin = made_;
  made_ = end;
  set_batch();
  for (uint32_t i = begin; i < end; ++i) release(i);
  flush();
}

namespace {

/// Control thread.
void register_more(Command& self) {
  constexpr size_t kPageBytes = 4096;
  auto& growth = static_cast<SrqGrowth&>(self);
  for (; growth.count != 0; growth.count /= 2) {
    const size_t bytes = growth.stride * growth.count;
    growth.chunk = growth.maker.make((bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
    if (growth.chunk != nullptr) return;
  }
}

}  // namespace

bool Srq::plan(SrqGrowth& growth) {
  crowd_ = 0;
  growth.run = register_more;
  growth.droppable = true;
  growth.maker = arena_->maker();
  growth.stride = stride_;
  growth.count = steps_ < kSteps ? std::min(made_, depth_ - made_) : 0;
  return growth.count != 0;
}

void Srq::grown(const SrqGrowth& growth) {
  add(arena_->adopt(growth.chunk), growth.count, growth.chunk);
}

uint32_t Srq::take_peak() {
  const uint32_t peak = peak_;
  peak_ = crowd_;
  return peak;
}

void Srq::retire() {
  retiring_ = true;
  set_batch();
  flush();
}

void Srq::keep() {
  retiring_ = false;
  set_batch();
  while (home_ != nullptr) {
    ibv_recv_wr* const wr = home_;
    home_ = wr->next;
    release(static_cast<uint32_t>(wr - wrs_.data()));
  }
  home_count_ = 0;
  flush();
}

namespace {

/// Control thread.
void free_memory(Command& self) {
  auto& shrink = static_cast<SrqShrink&>(self);
  if (shrink.maker.unmake(shrink.chunk)) shrink.chunk = nullptr;
}

}  // namespace

void Srq::plan(SrqShrink& shrink) {
  shrink.run = free_memory;
  shrink.maker = arena_->maker();
  shrink.chunk = step_[steps_ - 1].chunk;
  arena_->disown(shrink.chunk);
  made_ = kept();
  --steps_;
  retiring_ = false;
  home_ = nullptr;
  home_count_ = 0;
}

/// The device says once when fewer than a quarter of the buffers are free. Without this it is noticed later.
bool Srq::plan(SrqArm& arm) const {
  if (made_ == depth_ || api_->modify_srq == nullptr) return false;
  arm.droppable = true;
  arm.api = api_;
  arm.srq = srq_;
  arm.limit = std::max(made_ / 4, 1u);
  arm.run = [](Command& self) {
    auto& command = static_cast<SrqArm&>(self);
    ibv_srq_attr attr{};
    attr.srq_limit = command.limit;
    static_cast<void>(command.api->modify_srq(command.srq, &attr, IBV_SRQ_LIMIT));
  };
  return true;
}

/// Keeps what retires out of the chain.
void Srq::sort_out() {
  const ibv_recv_wr* const first = &wrs_[kept()];
  for (ibv_recv_wr** at = &chain_; *at != nullptr;) {
    ibv_recv_wr* const wr = *at;
    if (wr < first) {
      at = &wr->next;
      continue;
    }
    *at = wr->next;
    wr->next = home_;
    home_ = wr;
    ++home_count_;
    --chained_;
  }
}

void Srq::post() {
  if (retiring_) [[unlikely]] {
    sort_out();
    if (chain_ == nullptr) return;
  }
  ibv_recv_wr* bad = nullptr;
  const int rc = ibv_post_srq_recv(srq_, chain_, &bad);
  if (rc == 0) {
    chain_ = nullptr;
    chained_ = 0;
    return;
  }
  // Keep what was refused; the next release or flush tries again. A queue that refuses for good shows up as
  // SRQ_ERR or as an idle rail.
  broken_ = rc;
  chain_ = bad;
  chained_ = 0;
  for (ibv_recv_wr* wr = bad; wr != nullptr; wr = wr->next) ++chained_;
}

bool Srq::close() {
  if (srq_ == nullptr) return true;
  const bool clean = api_->destroy_srq(srq_) == 0;
  srq_ = nullptr;
  return clean;
}

}  // namespace bfo::engine
