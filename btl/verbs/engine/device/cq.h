// SPDX-License-Identifier: BSD-3-Clause
//
// cq.h: completion queues that cannot overrun, the work request ids, and the reaction to every completion
// status.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// What a completion status means for the rail whose queue pair produced it (InfiniBand Architecture
/// Specification vol. 1, 10.10 and 11.6.2).
enum class StatusReaction : uint8_t {
  kSuccess,  ///< not an error
  kClose,  ///< the rail broke: close the epoch, fate of its work unknown, reconnect while the port is active
  kCloseProgramError,  ///< a program error (bad key, bad length): same closing, counted apart, because the
                       ///< link is healthy
  kFlushed,            ///< a consequence of an error that is reported elsewhere: close if nobody has yet
  kDropReceive,        ///< one receive was spoiled, the queue pair goes on
};

struct StatusRow {
  int status;  ///< enum ibv_wc_status
  const char* name;
  StatusReaction reaction;
};

/// Row N is that of value N; the tests walk them.
inline constexpr std::array kStatusRows = {
    StatusRow{IBV_WC_SUCCESS, "SUCCESS", StatusReaction::kSuccess},
    StatusRow{IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR",
              StatusReaction::kCloseProgramError},  // SEND longer than the receive buffer
    StatusRow{IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", StatusReaction::kCloseProgramError},
    StatusRow{IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR", StatusReaction::kClose},  // reliable datagram only
    StatusRow{IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", StatusReaction::kCloseProgramError},
    StatusRow{IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", StatusReaction::kFlushed},
    StatusRow{IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", StatusReaction::kCloseProgramError},
    StatusRow{IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", StatusReaction::kClose},  // a transport fault
    StatusRow{IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", StatusReaction::kCloseProgramError},
    StatusRow{IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", StatusReaction::kCloseProgramError},
    StatusRow{IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR",
              StatusReaction::kCloseProgramError},  // a key that was evicted or deregistered
    StatusRow{IBV_WC_REM_OP_ERR, "REM_OP_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", StatusReaction::kClose},  // reliable datagram only
    StatusRow{IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR",
              StatusReaction::kClose},  // reliable datagram only
    StatusRow{IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR",
              StatusReaction::kDropReceive},                                 // unreliable connection only
    StatusRow{IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", StatusReaction::kClose},  // reliable datagram only
    StatusRow{IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR",
              StatusReaction::kClose},  // reliable datagram only
    StatusRow{IBV_WC_FATAL_ERR, "FATAL_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_GENERAL_ERR, "GENERAL_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_TM_ERR, "TM_ERR", StatusReaction::kClose},
    StatusRow{IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE", StatusReaction::kClose},
};
static_assert(
    [] {
      for (size_t i = 0; i < kStatusRows.size(); ++i)
        if (kStatusRows[i].status != static_cast<int>(i)) return false;
      return true;
    }(),
    "status_row() takes row N for value N");

/// Of a newer libibverbs: handled like GENERAL_ERR.
inline constexpr StatusRow kUnknownStatus{-1, "unknown status", StatusReaction::kClose};

constexpr const StatusRow& status_row(int status) {
  return status >= 0 && static_cast<size_t>(status) < kStatusRows.size()
             ? kStatusRows[static_cast<size_t>(status)]
             : kUnknownStatus;
}
constexpr StatusReaction status_reaction(int status) {
  return status_row(status).reaction;
}
/// "RETRY_EXC_ERR". Static string.
constexpr const char* status_name(int status) {
  return status_row(status).name;
}

/// What a work request was: kept in the top byte of wr_id, because nothing else but wr_id, status and qp_num
/// is valid in a failed completion.
enum class WorkKind : uint8_t {
  kReceive = 1,  ///< low bits: index of the shared receive buffer
  kSend = 2,     ///< low bits: sequence of the work request in its ring
  kMarker = 3,   ///< end of a drain; low bits: epoch
  kProbe = 4,    ///< zero-byte write on the probe queue pair or before traffic; low bits: epoch
  kDatagramReceive = 5,
  kDatagramSend = 6,
};
constexpr uint64_t work_id(WorkKind kind, uint64_t low) {
  return static_cast<uint64_t>(kind) << 56 | (low & 0x00ffffffffffffffull);
}
constexpr WorkKind work_kind(uint64_t wr_id) {
  return static_cast<WorkKind>(wr_id >> 56);
}
constexpr uint64_t work_low(uint64_t wr_id) {
  return wr_id & 0x00ffffffffffffffull;
}

class CqSet;

/// Makes a completion queue of `size` entries, or fewer where the device has no room, but `at_least`.
struct CqGrowth : Command {
  CqSet* set = nullptr;
  const VerbsApi* api = nullptr;
  ibv_context* context = nullptr;
  uint32_t at_least = 0;
  uint32_t size = 0;
  ibv_cq* cq = nullptr;
  int error = 0;  ///< errno, when there is no queue
};

/// The completion queues of one port, a chain without a limit of its own. A queue pair reserves room for
/// every work request it may ever have outstanding, so no queue can overrun (CQ_ERR would lose acknowledged
/// receives). The first queue also takes all receives: normally it is the only one, and one poll sees
/// everything. Further ones double what there is, so that few queues are polled however many peers there are;
/// when the device has no room for that, they are smaller.
class CqSet {
 public:
  struct Queue {
    ibv_cq* cq;
    Queue* next;
    uint32_t size;
    uint32_t reserved;
  };

  /// Creates the first queue with at least `fixed` entries reserved for receives and datagrams and room for
  /// some senders. False with errno. Control threads of `lane` make further ones.
  bool open(const VerbsApi& api, ibv_context* context, int max_cqe, uint32_t fixed, uint32_t target,
            ControlLane* lane);
  /// True when reserve() has an answer. False: a queue is being made; its end makes the port need service.
  bool ready(uint32_t entries);
  /// Reserves `entries` in some queue. nullptr with errno when there is no room and the device refused to
  /// make another one. Only after ready().
  ibv_cq* reserve(uint32_t entries);
  void release(ibv_cq* cq, uint32_t entries);

  /// The chain; nullptr when closed. Queues stay where they are until close().
  const Queue* chain() const { return chain_; }
  ibv_cq* first() const { return first_.cq; }
  size_t count() const;
  /// Entries of the largest queue.
  uint32_t depth() const { return depth_; }
  /// False when a queue could not be destroyed.
  bool close();

 private:
  Queue* with_room(uint32_t entries);
  bool plan(CqGrowth* growth, uint32_t at_least, uint64_t wished) const;
  void grow(uint32_t entries);
  void grown(const CqGrowth& growth);
  void add(Queue* queue, const CqGrowth& growth, uint32_t reserved);

  const VerbsApi* api_ = nullptr;
  ibv_context* context_ = nullptr;
  uint32_t max_ = 0;
  uint32_t target_ = 0;
  uint32_t depth_ = 0;
  uint64_t entries_ = 0;  ///< of all queues
  Queue* chain_ = nullptr;
  Queue first_{};
  ControlLane* lane_ = nullptr;
  bool growing_ = false;  ///< a queue is being made
  int error_ = 0;         ///< errno of the last one that could not be made, until somebody was told
};

}  // namespace bfo::engine
