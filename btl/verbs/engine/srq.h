// SPDX-License-Identifier: BSD-3-Clause
//
// srq.h: the shared receive queue of a port and its buffers. Every queue pair of the port receives into it.
// It starts with few buffers, because most of what a large job registers would never be used, and doubles
// them whenever they run short: the device says so by SRQ_LIMIT_REACHED, or the completion queue stays full.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/control.h"
#include "btl/verbs/engine/memory.h"
#include "btl/verbs/engine/mr.h"
#include "btl/verbs/engine/verbs_api.h"

namespace bfo::engine {

class Port;

/// Registers memory for more buffers: megabytes, which the kernel fills with zeros and pins page by page. The
/// progress function does not wait for that.
struct SrqGrowth : Command {
  Port* port = nullptr;
  ChunkMaker maker;
  size_t stride = 0;
  uint32_t count = 0;      // buffers: wished, then those that memory was found for
  Chunk* chunk = nullptr;  // what was found
};

/// Shared receives. Used by the progress function only.
class Srq {
 public:
  /// Makes `first` of `depth` buffers of `bytes` from `arena` and posts them. False with errno.
  bool open(const VerbsApi& api, ibv_pd* pd, Arena& arena, uint32_t depth, uint32_t first, uint32_t bytes);
  bool close();

  char* buffer(uint32_t index) { return reinterpret_cast<char*>(sges_[index].addr); }
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
  /// Prepares what doubles the buffers, or adds as many as memory allows. False when all are made.
  bool plan(SrqGrowth& growth);
  /// Posts what was prepared.
  void grown(const SrqGrowth& growth);
  /// A round of progress left completions in the queue: many of them without a pause between say that
  /// buffers run short. Completions come in batches of `batch`.
  bool crowded(uint32_t batch) {
    crowd_ += batch;
    return made_ < depth_ && crowd_ >= made_ / 2;
  }
  void calm() { crowd_ = 0; }
  /// How many may be made, and how many there are.
  uint32_t depth() const { return depth_; }
  uint32_t made() const { return made_; }
  uint32_t bytes() const { return bytes_; }
  uint32_t waiting() const { return chained_; }
  ibv_srq* ib() const { return srq_; }
  /// errno of the last failed post, 0 when the queue is sound.
  int broken() const { return broken_; }

 private:
  static constexpr uint32_t kBatch = 32;
  void post();
  bool add(uint32_t count);
  void add(const Region& region, uint32_t count);
  void arm();

  const VerbsApi* api_ = nullptr;
  ibv_srq* srq_ = nullptr;
  Arena* arena_ = nullptr;
  size_t stride_ = 0;
  uint32_t depth_ = 0;
  uint32_t made_ = 0;
  uint32_t crowd_ = 0;
  uint32_t bytes_ = 0;
  uint32_t chained_ = 0;
  int broken_ = 0;
  ibv_recv_wr* chain_ = nullptr;
  Array<ibv_recv_wr> wrs_;
  Array<ibv_sge> sges_;
};

}  // namespace bfo::engine
