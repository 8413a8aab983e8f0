// SPDX-License-Identifier: BSD-3-Clause
//
// srq.h: the shared receive queue of a port and its buffers. Every queue pair of the port receives into it.
// It starts with few buffers, because most of what a large job registers would never be used, and doubles
// them whenever they run short: the device says so by SRQ_LIMIT_REACHED, or the completion queue stays full.
// What was added last is given back when it has not been needed for a while. No verb takes a posted receive
// back from a shared queue. So the buffers of a step retire: each is posted no more after the next message
// into it, and when all have come home their memory is deregistered.
#pragma once

#include <algorithm>
#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/device/mr.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// Registers memory for more buffers: megabytes, which the kernel fills with zeros and pins page by page. The
/// progress function does not wait for that.
struct SrqGrowth : Command {
  ChunkMaker maker;
  size_t stride = 0;
  uint32_t count = 0;      ///< buffers: wished, then those that memory was found for
  Chunk* chunk = nullptr;  ///< what was found
};

/// Asks the device to say when buffers run short.
struct SrqArm : Command {
  const VerbsApi* api = nullptr;
  ibv_srq* srq = nullptr;
  uint32_t limit = 0;
};

/// Deregisters the memory of buffers that are not needed any more.
struct SrqShrink : Command {
  ChunkMaker maker;
  Chunk* chunk = nullptr;  ///< nullptr when it is gone
};

/// Shared receives. Used by the progress function only.
class Srq {
 public:
  /// Makes `first` of `depth` buffers of `bytes` from `arena` and posts them. False with errno.
  bool open(const VerbsApi& api, ibv_pd* pd, Arena& arena, uint32_t depth, uint32_t first, uint32_t bytes);
  bool close();

  char* buffer(uint32_t index) { return reinterpret_cast<char*>(sges_[index].addr); }
  /// Gives a consumed buffer back. Buffers are posted again in batches: the sender's device reads the head of
  /// the queue for each message, so each post takes a cache line, or a bus, from a message that arrives.
  void release(uint32_t index) {
    ibv_recv_wr& wr = wrs_[index];
    wr.next = chain_;
    chain_ = &wr;
    if (++chained_ >= batch_) post();
  }
  /// A poll has brought nothing: the time to post a smaller batch, which no message waits for.
  void idle() {
    if (chained_ >= idle_batch_) post();
  }
  /// Posts what was released. Called at each tick of the watchdog.
  void flush() {
    if (chained_ != 0) post();
  }
  /// Prepares what doubles the buffers, or adds as many as memory allows. False when all are made.
  bool plan(SrqGrowth& growth);
  /// Prepares the request that fits the present number of buffers: to be run after each change of it. False
  /// when the device need not, or cannot, say.
  bool plan(SrqArm& arm) const;
  /// Posts what was prepared.
  void grown(const SrqGrowth& growth);
  /// A round of progress left completions in the queue: many of them without a pause between say that
  /// buffers run short. Completions come in batches of `batch`.
  bool crowded(uint32_t batch) {
    crowd_ += batch;
    if (crowd_ > peak_) peak_ = crowd_;
    return crowd_ >= kept() / 2 && (made_ < depth_ || retiring_);
  }
  void calm() { crowd_ = 0; }
  /// The most messages that were found waiting in a row since the last call. The device's word that buffers
  /// run short counts as all.
  uint32_t take_peak();
  void note_shortage() { peak_ = made_; }

  /// True when there are more buffers than at first.
  bool grown() const { return steps_ > 1; }
  /// Begins to withdraw the buffers that were added last. Only when grown().
  void retire();
  bool retiring() const { return retiring_; }
  /// All that retire are needed again.
  void keep();
  bool all_home() const { return retiring_ && home_count_ == made_ - kept(); }
  /// When all that retire are home: takes them out of the accounting and prepares what frees their memory.
  void plan(SrqShrink& shrink);
  /// The device would not deregister the memory: it stays the arena's.
  void refused(const SrqShrink& shrink) { arena_->adopt(shrink.chunk); }
  /// How many may be made, and how many there are.
  uint32_t depth() const { return depth_; }
  uint32_t made() const { return made_; }
  /// Those that do not retire.
  uint32_t kept() const { return retiring_ ? step_[steps_ - 1].begin : made_; }
  uint32_t bytes() const { return bytes_; }
  uint32_t waiting() const { return chained_; }
  ibv_srq* ib() const { return srq_; }
  /// errno of the last failed post, 0 when the queue is sound.
  int broken() const { return broken_; }

 private:
  static constexpr uint32_t kLargestBatch = 32;
  static constexpr uint32_t kIdleBatch = 8;
  static constexpr uint32_t kSteps = 24;
  /// Buffers that were added together.
  struct Step {
    uint32_t begin;
    Chunk* chunk;  ///< nullptr: they last as long as the queue
  };
  void post();
  void set_batch() {
    batch_ = std::clamp(kept() / 4, 1u, kLargestBatch);
    idle_batch_ = holds_back_ ? std::min(batch_, kIdleBatch) : 1;
  }
  void sort_out();
  bool add(uint32_t count);
  void add(const Region& region, uint32_t count, Chunk* chunk);

  const VerbsApi* api_ = nullptr;
  ibv_srq* srq_ = nullptr;
  Arena* arena_ = nullptr;
  size_t stride_ = 0;
  uint32_t depth_ = 0;
  uint32_t made_ = 0;
  uint32_t crowd_ = 0;
  uint32_t peak_ = 0;
  uint32_t bytes_ = 0;
  uint32_t chained_ = 0;
  bool holds_back_ =
      false;  ///< an idle poll may leave a few unposted: not where all are to be there at all times
  uint32_t idle_batch_ = 1;
  uint32_t batch_ = 1;  ///< at most a quarter of the buffers: the others are posted
  int broken_ = 0;
  bool retiring_ = false;  ///< the last step
  uint32_t home_count_ = 0;
  uint32_t steps_ = 0;
  Step step_[kSteps] = {};
  ibv_recv_wr* chain_ = nullptr;
  ibv_recv_wr* home_ = nullptr;  ///< of those that retire, the ones that came home
  Array<ibv_recv_wr> wrs_;
  Array<ibv_sge> sges_;
};

}  // namespace bfo::engine
