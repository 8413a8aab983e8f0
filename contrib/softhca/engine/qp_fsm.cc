// SPDX-License-Identifier: BSD-3-Clause
//
// The queue pair state machine: which transitions exist per service, and which attributes each needs or
// takes.
#include "contrib/softhca/engine/qp_fsm.h"

namespace bfo::softhca {
namespace {

constexpr ibv_qp_type RC = IBV_QPT_RC, UC = IBV_QPT_UC, UD = IBV_QPT_UD;
constexpr int kPkey = IBV_QP_PKEY_INDEX, kPort = IBV_QP_PORT, kQkey = IBV_QP_QKEY,
              kAccess = IBV_QP_ACCESS_FLAGS;
constexpr int kAv = IBV_QP_AV, kAlt = IBV_QP_ALT_PATH, kMig = IBV_QP_PATH_MIG_STATE, kCur = IBV_QP_CUR_STATE;
constexpr int kRnr = IBV_QP_MIN_RNR_TIMER, kDestRd = IBV_QP_MAX_DEST_RD_ATOMIC, kRd = IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kRetry = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
constexpr int kToRtr = kAv | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

constexpr Transition kTable[] = {
    {RC, IBV_QPS_RESET, IBV_QPS_INIT, kPkey | kPort | kAccess, 0},
    {UC, IBV_QPS_RESET, IBV_QPS_INIT, kPkey | kPort | kAccess, 0},
    {UD, IBV_QPS_RESET, IBV_QPS_INIT, kPkey | kPort | kQkey, 0},
    {RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kPkey | kPort | kAccess},
    {UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kPkey | kPort | kAccess},
    {UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, kPkey | kPort | kQkey},
    {RC, IBV_QPS_INIT, IBV_QPS_RTR, kToRtr | kDestRd | kRnr, kAlt | kAccess | kPkey},
    {UC, IBV_QPS_INIT, IBV_QPS_RTR, kToRtr, kAlt | kAccess | kPkey},
    {UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, kPkey | kQkey},
    {RC, IBV_QPS_RTR, IBV_QPS_RTS, kRetry | IBV_QP_SQ_PSN | kRd, kCur | kAlt | kAccess | kRnr | kMig},
    {UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kCur | kAlt | kAccess | kMig},
    {UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kCur | kQkey},
    {RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kCur | kAccess | kAlt | kMig | kRnr},
    {UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kCur | kAccess | kAlt | kMig},
    {UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, kCur | kQkey},
    {RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kCur | kAlt | kAccess | kRnr | kMig},
    {UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kCur | kAlt | kAccess | kMig},
    {UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, kCur | kQkey},
    {RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
     kPort | kAv | kRetry | kRd | kDestRd | kCur | kAlt | kAccess | kPkey | kRnr | kMig |
         IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {UC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
     kAv | kCur | kAlt | kAccess | kPkey | kMig | IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, kPkey | kQkey | kCur | IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, kCur | kAccess},
    {UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, kCur | kQkey},
};

}  // namespace

std::span<const Transition> qp_transitions() {
  return kTable;
}

bool transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~IBV_QP_STATE;
  // Any state may go to RESET and to ERR, with no other attribute.
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (mask & ~kCur) == 0;
  for (const Transition& row : kTable) {
    if (row.type != type || row.from != from || row.to != to) continue;
    if ((mask & row.required) != row.required) return false;
    return (mask & ~(row.required | row.optional)) == 0;
  }
  return false;
}

}  // namespace bfo::softhca
