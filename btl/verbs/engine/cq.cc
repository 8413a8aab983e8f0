// SPDX-License-Identifier: BSD-3-Clause
//
// cq.cc: see cq.h.
#include "btl/verbs/engine/cq.h"

#include <algorithm>
#include <cerrno>

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
  if (!add(fixed)) return false;
  cqs_[0].reserved = fixed;
  return true;
}

bool CqSet::add(uint32_t at_least) {
  if (count_ == kMax || at_least > max_) {
    errno = ENOSPC;
    return false;
  }
  const uint32_t size = std::min(std::max(at_least, target_), max_);
  ibv_cq* cq = api_->create_cq(context_, static_cast<int>(size));
  if (cq == nullptr) return false;
  cqs_[count_++] = Queue{cq, size, 0};
  return true;
}

uint32_t CqSet::depth() const {
  uint32_t most = 0;
  for (size_t i = 0; i < count_; ++i) most = std::max(most, cqs_[i].size);
  return most;
}

ibv_cq* CqSet::reserve(uint32_t entries) {
  for (size_t i = 0; i < count_; ++i) {
    if (cqs_[i].size - cqs_[i].reserved < entries) continue;
    cqs_[i].reserved += entries;
    return cqs_[i].cq;
  }
  if (!add(entries)) return nullptr;
  cqs_[count_ - 1].reserved = entries;
  return cqs_[count_ - 1].cq;
}

void CqSet::release(ibv_cq* cq, uint32_t entries) {
  for (size_t i = 0; i < count_; ++i) {
    if (cqs_[i].cq == cq) cqs_[i].reserved -= entries;
  }
}

bool CqSet::close() {
  bool clean = true;
  for (size_t i = 0; i < count_; ++i) clean = api_->destroy_cq(cqs_[i].cq) == 0 && clean;
  count_ = 0;
  cqs_[0].cq = nullptr;
  return clean;
}

}  // namespace bfo::engine
