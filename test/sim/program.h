// SPDX-License-Identifier: BSD-3-Clause
//
// program.h: the MPI programs of a run as data: communicators, messages and receives.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <vector>

namespace bfo::sim {

/// One communicator: all processes, in an order rotated by `shift`. With `after`, it is made when every
/// process has freed that one, and has the same context id (H6).
struct CommPlan {
  uint32_t ctx = 0;
  uint32_t shift = 0;
  int32_t after = -1;
  uint32_t skew_ns = 0;  ///< processes make it this far apart at most
};

enum class SendStyle : uint8_t { kStandard, kSync, kReady, kBuffered, kInline, kCount };
enum class RecvStyle : uint8_t { kPlain, kProbe, kMprobe, kCancel, kCount };

/// One message and one receive of the same group: receives of a group accept any of its messages. `at` counts
/// from the communicator's start in this process.
struct PairPlan {
  uint32_t comm = 0;
  uint32_t src = 0;  ///< process of the message
  uint32_t dst = 0;  ///< process of both
  int32_t tag = 0;
  uint32_t length = 0;
  SendStyle send_style = SendStyle::kStandard;
  bool contiguous = true;
  uint64_t send_at = 0;
  RecvStyle recv_style = RecvStyle::kPlain;
  bool any_source = false;
  bool any_tag = false;
  bool recv_contiguous = true;
  uint32_t capacity = 0;
  uint64_t recv_at = 0;
};

struct Program {
  uint32_t procs = 0;
  std::vector<CommPlan> comms;
  std::vector<PairPlan> pairs;
};

}  // namespace bfo::sim
