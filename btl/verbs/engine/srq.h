// SPDX-License-Identifier: BSD-3-Clause
//
// srq.h: the shared receive queue of a port and its buffers. Every queue pair of the port receives into it.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/memory.h"
#include "btl/verbs/engine/mr.h"
#include "btl/verbs/engine/verbs_api.h"

namespace bfo::engine {

/// Shared receives. Used by the progress function only.
class Srq {
 public:
  /// Makes `depth` buffers of `bytes` from `arena` and posts them. False with errno.
  bool open(const VerbsApi& api, ibv_pd* pd, Arena& arena, uint32_t depth, uint32_t bytes);
  bool close();

  char* buffer(uint32_t index) { return memory_ + size_t{index} * stride_; }
  /// Gives a consumed buffer back; buffers are posted again in batches.
  void release(uint32_t index) {
    ibv_recv_wr& wr = wrs_[index];
    wr.next = chain_;
    chain_ = &wr;
    if (++chained_ >= kBatch) post();
  }
  /// Posts what was released. Called when the port has nothing else to do.
  void flush() {
    if (chained_ != 0) post();
  }
  uint32_t depth() const { return depth_; }
  uint32_t bytes() const { return bytes_; }
  uint32_t waiting() const { return chained_; }
  ibv_srq* ib() const { return srq_; }
  /// errno of the last failed post, 0 when the queue is sound.
  int broken() const { return broken_; }

 private:
  static constexpr uint32_t kBatch = 32;
  void post();

  const VerbsApi* api_ = nullptr;
  ibv_srq* srq_ = nullptr;
  char* memory_ = nullptr;
  size_t stride_ = 0;
  uint32_t depth_ = 0;
  uint32_t bytes_ = 0;
  uint32_t chained_ = 0;
  int broken_ = 0;
  ibv_recv_wr* chain_ = nullptr;
  Array<ibv_recv_wr> wrs_;
  Array<ibv_sge> sges_;
};

}  // namespace bfo::engine
