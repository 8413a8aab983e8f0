// SPDX-License-Identifier: BSD-3-Clause
//
// process_memory.cc: the buffers and requests of a simulated process. Both are reused last in, first out, as
// programs and MPI libraries do, and outlive the run.

#include <cstdlib>
#include <cstring>
#include <utility>

#include "test/sim/process.h"

namespace bfo::sim {
namespace {
unsigned buffer_class(uint32_t size) {
  unsigned c = 4;
  while ((1u << c) < size) ++c;
  return c;
}
}  // namespace

void Process::reset_memory() {
  take_back(all_sends_, next_send_);
  take_back(all_recvs_, next_recv_);
  size_t buffers = 0;
  for (const auto& list : free_buffers_) buffers += list.size();
  BFO_CHECK(buffers == all_buffers_.size());  // else one is not fresh, and a receive would be blamed for it
  free_sends_.clear();
  free_recvs_.clear();
  next_send_ = next_recv_ = next_frag_ = 0;
  free_frags_ = nullptr;
  frags_out_ = 0;
  allocated_ = 0;
}

/// A process that died leaves messages on its rails, whose bytes are the engine's. The kernel frees those of
/// a real one. One that lives has none at the end of its run: World checks that.
void Process::stop() {
  engine_.reset();
  for (size_t i = 0; i < next_frag_; ++i)
    if (frag(i).in_use) std::free(std::exchange(frag(i).xfer.buffer, nullptr));
}

/// The buffers of requests that the last run did not finish: it failed, or this process died.
template <class Request>
void Process::take_back(const std::vector<std::unique_ptr<Request>>& all, size_t used) {
  for (size_t i = 0; i < used; ++i) {
    const Buffer& b = all[i]->buf;
    if (b.active) put_buffer(b.base, b.length, b.length + kGuard);
  }
}

uint8_t* Process::get_buffer(uint32_t length) {
  const unsigned c = buffer_class(length + kGuard);
  if (free_buffers_[c].empty()) {
    const size_t size = size_t{1} << c;
    all_buffers_.push_back(std::make_unique_for_overwrite<uint8_t[]>(size));
    std::memset(all_buffers_.back().get(), kFresh, size);
    return all_buffers_.back().get();
  }
  uint8_t* const b = free_buffers_[c].back();
  free_buffers_[c].pop_back();
  return b;
}

/// Bytes from `dirty` on are known to be fresh.
void Process::put_buffer(uint8_t* buffer, uint32_t length, uint32_t dirty) {
  std::memset(buffer, kFresh, dirty);
  free_buffers_[buffer_class(length + kGuard)].push_back(buffer);
}

/// A request that is free, else one that this run has not used yet, as new.
template <class Request>
Request* Process::get_request(std::vector<Request*>& free, std::vector<std::unique_ptr<Request>>& all,
                              size_t& next) {
  if (!free.empty()) {
    Request* const r = free.back();
    free.pop_back();
    return r;
  }
  if (next == all.size()) {
    all.push_back(std::make_unique<Request>());
  } else {
    std::destroy_at(all[next].get());
    std::construct_at(all[next].get());
  }
  return all[next++].get();
}
SendRequest* Process::get_send() {
  return get_request(free_sends_, all_sends_, next_send_);
}
RecvRequest* Process::get_recv() {
  return get_request(free_recvs_, all_recvs_, next_recv_);
}

}  // namespace bfo::sim
