// SPDX-License-Identifier: BSD-3-Clause
//
// own_port.h: what a port of this process is: its device and number, its secrets and addresses, what it was
// told from outside and whom it tells. What it holds and does is in rail/port.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/base/environment.h"
#include "btl/verbs/engine/datagram/packet_text.h"
#include "btl/verbs/engine/datagram/trust.h"
#include "btl/verbs/engine/device/device.h"
#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/lanes.h"
#include "btl/verbs/engine/device/port_rate.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/port/config.h"
#include "btl/verbs/engine/port/damping.h"
#include "btl/verbs/engine/port/host.h"
#include "btl/verbs/engine/port/outages.h"
#include "common/failover_btl.h"

namespace bfo::engine {

enum class PortState : uint8_t { kActive, kDown, kDead };

class OwnPort {
 public:
  Device& device() const { return *device_; }
  const VerbsApi& api() const { return device_->api(); }
  uint8_t number() const { return number_; }
  uint64_t nonce() const { return nonce_; }
  /// Who sums a packet with it is believed (trust.h).
  const SipKey& key() const { return key_; }
  const Config& config() const { return config_; }
  const Host& host() const { return host_; }
  const Environment& env() const { return env_; }
  const PortAddress& address() const { return address_; }
  /// The addresses of a port that lists them; none: address() is the one it has.
  const GidTable& gids() const { return gids_; }
  const ibv_port_attr& attr() const { return attr_; }
  /// As it was when the port was active last; 0: it has never been.
  const PortRate& rate() const { return rate_; }
  PortState state() const { return state_; }
  const Outages& outages() const { return outages_; }
  QpSettings settings() const { return qp_settings_; }
  /// From then on no callback is made.
  bool finalizing() const { return finalizing_; }
  /// Work for the next poll() that is not a completion: an endpoint to close, a report to repeat.
  void need_service() { service_needed_.store(true, std::memory_order_release); }
  /// What the port itself needs while it is in use: its attributes are read, its datagram queue pair is
  /// repaired, and further completion queues are made.
  ControlLane& upkeep() { return lanes_.upkeep; }
  bfo_accounting_t& accounting() { return accounting_; }
  /// A datagram was dropped; `packet`: what can be read of it.
  void drop(Drop reason, const Packet* packet = nullptr) {
    ++accounting_.dropped;
    ++drops_[static_cast<size_t>(reason)];
    tell_dropped("a datagram", drop_text(reason), packet);
  }
  /// Tells whoever asks. Nothing is counted.
  void tell_dropped(const char* what, const char* why, const Packet* packet = nullptr) {
    if (host_.dropped != nullptr) host_.dropped(host_.ctx, DropNote{what, why, packet});
  }
  const DropCounts& drops() const { return drops_; }

 protected:
  OwnPort() = default;
  ~OwnPort() = default;

  /// hot
  std::atomic<bool> service_needed_{false};
  bool finalizing_ = false;
  PortState state_ = PortState::kDown;
  uint8_t number_ = 0;
  Device* device_ = nullptr;
  Host host_{};
  bfo_accounting_t accounting_{};
  Config config_;

  QpSettings qp_settings_;
  Environment env_{};
  uint64_t nonce_ = 0;
  SipKey key_;
  PortAddress address_;
  GidTable gids_;
  ibv_port_attr attr_{};
  PortRate rate_;
  Outages outages_;
  Damping damping_;
  PortLanes lanes_;
  DropCounts drops_{};
};

}  // namespace bfo::engine
