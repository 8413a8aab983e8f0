// SPDX-License-Identifier: BSD-3-Clause
//
// srq.cc: see srq.h.
#include "btl/verbs/engine/srq.h"

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/cq.h"

namespace bfo::engine {

bool Srq::open(const VerbsApi& api, ibv_pd* pd, Arena& arena, uint32_t depth, uint32_t first,
               uint32_t bytes) {
  api_ = &api;
  arena_ = &arena;
  made_ = crowd_ = chained_ = 0;
  broken_ = 0;
  chain_ = nullptr;
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
  arm();
  errno = broken_;
  return broken_ == 0;
}

bool Srq::add(uint32_t count) {
  const Region region = arena_->take(stride_ * count);
  if (region.address == nullptr) return false;
  add(region, count);
  return true;
}

void Srq::add(const Region& region, uint32_t count) {
  const uint32_t end = made_ + count;
  for (uint32_t i = made_; i < end; ++i) {
    sges_[i] =
        ibv_sge{reinterpret_cast<uint64_t>(region.address + (i - made_) * stride_), bytes_, region.lkey};
    wrs_[i].wr_id = work_id(WorkKind::kReceive, i);
    wrs_[i].sg_list = &sges_[i];
    wrs_[i].num_sge = 1;
  }
  for (uint32_t i = made_; i < end; ++i) release(i);
  made_ = end;
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
  growth.count = std::min(made_, depth_ - made_);
  return growth.count != 0;
}

void Srq::grown(const SrqGrowth& growth) {
  add(arena_->adopt(growth.chunk), growth.count);
  arm();
}

/// The device says once when fewer than a quarter of the buffers are free. Without this it is noticed later.
void Srq::arm() {
  if (made_ == depth_ || api_->modify_srq == nullptr) return;
  ibv_srq_attr attr{};
  attr.srq_limit = std::max(made_ / 4, 1u);
  static_cast<void>(api_->modify_srq(srq_, &attr, IBV_SRQ_LIMIT));
}

void Srq::post() {
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
