// SPDX-License-Identifier: BSD-3-Clause
//
// cq.cc: see cq.h.
#include "btl/verbs/engine/cq.h"

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/memory.h"

namespace bfo::engine {
namespace {
constexpr std::array<const char*, kStatusReactions.size()> kStatusNames = {
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
    "TM_ERR",
    "TM_RNDV_INCOMPLETE",
};
}  // namespace

const char* status_name(int status) {
  return status >= 0 && static_cast<size_t>(status) < kStatusNames.size()
             ? kStatusNames[static_cast<size_t>(status)]
             : "unknown status";
}

bool CqSet::open(const VerbsApi& api, ibv_context* context, int max_cqe, uint32_t fixed, uint32_t target) {
  api_ = &api;
  context_ = context;
  max_ = max_cqe > 0 ? static_cast<uint32_t>(max_cqe) : 0;
  target_ = target;
  depth_ = 0;
  entries_ = 0;
  if (!create(&first_, fixed, target)) return false;
  first_.reserved = fixed;
  chain_ = &first_;
  return true;
}

bool CqSet::create(Queue* queue, uint32_t at_least, uint64_t wished) {
  if (at_least > max_) {
    errno = ENOSPC;
    return false;
  }
  uint32_t size = static_cast<uint32_t>(std::clamp<uint64_t>(wished, at_least, max_));
  ibv_cq* cq = api_->create_cq(context_, static_cast<int>(size));
  while (cq == nullptr && size > at_least) {
    size = std::max(at_least, size / 2);
    cq = api_->create_cq(context_, static_cast<int>(size));
  }
  if (cq == nullptr) return false;
  *queue = Queue{cq, nullptr, size, 0};
  depth_ = std::max(depth_, size);
  entries_ += size;
  return true;
}

size_t CqSet::count() const {
  size_t count = 0;
  for (const Queue* queue = chain_; queue != nullptr; queue = queue->next) ++count;
  return count;
}

ibv_cq* CqSet::reserve(uint32_t entries) {
  Queue* last = chain_;
  for (Queue* queue = chain_; queue != nullptr; queue = queue->next) {
    last = queue;
    if (queue->size - queue->reserved < entries) continue;
    queue->reserved += entries;
    return queue->cq;
  }
  Queue* more = make<Queue>();
  if (more == nullptr || !create(more, entries, std::max<uint64_t>(target_, entries_))) {
    const int saved = more == nullptr ? ENOMEM : errno;
    unmake(more);
    errno = saved;
    return nullptr;
  }
  more->reserved = entries;
  last->next = more;
  return more->cq;
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
