// SPDX-License-Identifier: BSD-3-Clause
//
// datagram_qp.h: a datagram queue pair: one of each port carries the connection manager, another one the
// heartbeat (heartbeat.h). Datagrams may be lost, doubled or forged.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/mr.h"
#include "btl/verbs/engine/device/qp.h"

namespace bfo::engine {

/// Datagrams of up to kBytes. One thread at a time.
class DatagramQp {
 public:
  static constexpr uint32_t kBytes = 192;    ///< below the smallest MTU
  static constexpr uint32_t kGrhBytes = 40;  ///< every received datagram starts with room for a GRH
  static constexpr uint32_t kReceives = 128;
  static constexpr uint32_t kSends = 32;

  /// Makes the queue pair, brings it to RTS and posts its receives. Completions go to `cq`, which needs
  /// kReceives + kSends entries. The device drops every datagram that does not name `settings.qkey`. False
  /// with errno.
  bool open(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq, Arena& arena, const QpSettings& settings);
  bool close();

  /// Sends `length` bytes to `qpn`, whose Q_Key is `qkey`, by `ah`. False when all send buffers are in use or
  /// the device refuses: then it is simply lost. `used` gets the number of the buffer, which sent() will
  /// name.
  bool send(ibv_ah* ah, uint32_t qpn, uint32_t qkey, const void* data, uint32_t length,
            uint32_t* used = nullptr);
  /// Completion of a send or receive buffer.
  void sent(uint32_t index) {
    if (!suspended_) free_sends_ |= uint32_t{1} << index;
  }
  bool can_send() const { return !suspended_ && free_sends_ != 0; }
  bool sending() const { return qp_ != nullptr && !suspended_ && free_sends_ != ~uint32_t{0}; }
  const char* received(uint32_t index) const {
    return memory_ + size_t{index} * (kBytes + kGrhBytes) + kGrhBytes;
  }
  void release(uint32_t index);
  /// After a completion error: back to RTS through RESET, with the same number, all buffers posted again.
  bool revive();
  /// From the next revive() on.
  void set_pkey_index(uint16_t index) { settings_.pkey_index = index; }
  /// A copy is being revived elsewhere and takes this one's place afterwards: until then nothing is sent or
  /// posted.
  void suspend() {
    suspended_ = true;
    free_sends_ = 0;
  }
  void resume() { suspended_ = false; }

  ibv_qp* ib() const { return qp_; }
  uint32_t number() const { return qp_ == nullptr ? 0 : qp_->qp_num; }

 private:
  bool to_ready();

  const VerbsApi* api_ = nullptr;
  ibv_qp* qp_ = nullptr;
  QpSettings settings_;
  char* memory_ = nullptr;  ///< receives, then sends
  char* send_memory_ = nullptr;
  uint32_t lkey_ = 0;
  uint32_t free_sends_ = 0;  ///< one bit per buffer
  bool suspended_ = false;
};

/// revive() as a command.
struct DatagramQpRepair : Command {
  DatagramQp qp;  ///< a copy
  bool revived = false;
};

/// Whether a datagram queue pair is to be repaired.
struct DatagramQpState {
  bool broken = false;   ///< a completion failed, or its settings have changed
  bool running = false;  ///< a repair
  uint64_t next_ns = 0;  ///< not before

  bool due(uint64_t now) const { return broken && !running && now >= next_ns; }
};

}  // namespace bfo::engine
