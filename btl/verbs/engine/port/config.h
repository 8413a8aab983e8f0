// SPDX-License-Identifier: BSD-3-Clause
//
// config.h: what the engine is told from outside about a port.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/port_query.h"
#include "btl/verbs/engine/device/qp.h"

namespace bfo::engine {

/// What the engine needs to know from outside, fixed for the life of a port.
struct Config {
  uint64_t own_name = 0;         ///< job and rank of this process, unique among all that can connect
  uint32_t send_depth = 256;     ///< ring slots per endpoint, a power of two
  uint32_t slot_bytes = 512;     ///< payload kept in a slot
  uint32_t receive_depth = 512;  ///< shared receive buffers
  uint32_t receive_bytes = 65536;
  uint32_t receive_first_bytes = 2u << 20;    ///< registered at first, for the first of the receive buffers
  uint64_t receive_quiet_ns = 2'000'000'000;  ///< more than those are given back when unused for so long
  uint32_t signal_interval = 64;
  uint32_t inline_bytes = 128;
  uint32_t cq_entries = 8192;  ///< wished size of a completion queue
  uint8_t probe_timeout = 8;   ///< as QpSettings::timeout and retry_count, for the probe queue pair
  uint8_t probe_retry = 4;
  uint64_t poll_gap_ns = 0;                     ///< see Moderation
  uint64_t tick_ns = 2'000'000;                 ///< watchdog resolution
  uint64_t suspect_ns = 10'000'000;             ///< silence before a rail is suspected; 0 = no watchdog
  uint64_t connect_timeout_ns = 1'000'000'000;  ///< fragments queued on a rail that never came up move then
  uint64_t peer_timeout_ns = 10'000'000'000;    ///< no sign of life for so long during a handshake; 0 = never
  uint64_t retry_min_ns = 1'000'000;            ///< handshake retransmission and reconnection back-off
  uint64_t retry_max_ns = 256'000'000;
  uint64_t address_retry_min_ns = 250'000'000;  ///< back-off of a destination that has no address handle
  uint64_t address_retry_max_ns = 8'000'000'000;
  uint64_t marker_bound_ns = 50'000'000;  ///< a drain waits this long for its marker
  uint64_t last_receive_bound_ns =
      3'000'000;                  ///< and this long for QP_LAST_WQE_REACHED, which some drivers never raise
  const bool* threads = nullptr;  ///< may several threads call in? Read at each use; nullptr: never
  bool may_be_down = false;       ///< open() takes a port that is not active; it joins when it is
  ControlMode control = ControlMode::kInline;
  uint32_t control_threads = 12;  ///< of a port at most; 7 give each of its lanes one
  QpSettings qp;
  GidReader read_gids = nullptr;    ///< nullptr: the entry qp.gid_index alone, of whatever type
  bool gid_fixed = false;           ///< with it: the same, with its type
  uint16_t pkey = 0;                ///< partition key, wherever it stands; 0: always the entry qp.pkey_index
  uint8_t max_lmc = kMaxLmc;        ///< 2^max_lmc LIDs of a port are used at most
  uint32_t loss_threshold = 0;      ///< signs of loss for a million packets that are told; 0: none
  bool path_service_level = false;  ///< the subnet administrator is asked for the service level of each path
};

}  // namespace bfo::engine
