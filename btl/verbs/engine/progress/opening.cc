// SPDX-License-Identifier: BSD-3-Clause
//
// opening.cc: opening and closing a port, and the endpoints that it has (port.h).
#include "btl/verbs/engine/rail/port.h"

#include <algorithm>
#include <cerrno>

#include "common/check.h"
#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/send/qp_command.h"
#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {
namespace {

constexpr uint64_t kByeTimeoutNs = 1'000'000;
constexpr uint64_t kVerbTimeoutNs = 3'000'000'000;  // for one control verb at the end

/// Draws the port's nonce, key and Q_Key. A stranger who could guess them could speak for a peer: no clock
/// stands in for them. The top bit of a Q_Key would ask for a privileged one.
bool draw_secrets(const Environment& env, uint64_t* nonce, SipKey* key, uint32_t* qkey) {
  uint64_t bits = 0;
  *nonce = 0;
  *qkey = 0;
  while (*nonce == 0) {
    if (!env.secret(nonce)) return false;
  }
  if (!env.secret(&key->low) || !env.secret(&key->high)) return false;
  while (*qkey == 0) {
    if (!env.secret(&bits)) return false;
    *qkey = static_cast<uint32_t>(bits) & 0x7fffffff;
  }
  return true;
}

}  // namespace

bool Port::open(Device& device, uint8_t number, const Config& config, const Host& host,
                const Environment& env, const char** what) {
  device_ = &device;
  number_ = number;
  config_ = config;
  moderation_.set_gap(config.poll_gap_ns);
  host_ = host;
  env_ = env;
  lock_.open(config.threads);
  qp_settings_ = config.qp;
  qp_settings_.port = number;
  qp_settings_.inline_bytes = config.inline_bytes;
  qp_settings_.send_depth = config.send_depth + 2;  // a drain marker and a probe besides the ring
  const int device_reads = std::min(device.attr().max_qp_rd_atom, device.attr().max_qp_init_rd_atom);
  qp_settings_.max_read = static_cast<uint8_t>(std::clamp(device_reads, 1, int{config.qp.max_read}));
  *what = "unpredictable numbers from getrandom()";
  if (!draw_secrets(env_, &nonce_, &key_, &qp_settings_.qkey)) return false;
  address_.qkey = qp_settings_.qkey;
  *what = "control threads";
  errno = ENOMEM;
  if (config.control != ControlMode::kInline && !control_threads_.open(config.control_threads)) return false;
  lanes_.open(config.control, &service_needed_, control_threads_);
  addresses_.open(*this, paths_, config.control, &service_needed_, control_threads_);
  stock_.open(device.arena(), lanes_.registrations, service_needed_);
  *what = "port attributes";
  errno = ENETDOWN;
  refresh();
  if (state_ != PortState::kActive && !config.may_be_down) return false;
  start_ = state_ == PortState::kActive ? Start::kActive : Start::kDown;
  outages_.open(state_ == PortState::kActive, env_.now_ns());
  run_time_.open(config.connect_timeout_ns);
  receives_.review_pause_ns = config.receive_quiet_ns;
  packet_loss_.open(config.loss_threshold);
  if (!open_queues(what)) {
    const int saved = errno;
    close();
    errno = saved;
    return false;
  }
  address_.cm_qpn = cm_qp_.number();
  // Without a heartbeat the port works; its peers then cannot tell this process busy from dead, and wait.
  const bool heartbeat = heartbeat_.open(
      device.api(), device.context(), device.pd(), device.arena(), qp_settings_,
      Heartbeat::Identity{config_.own_name, nonce_, key_, env_.now_ns}, config.control, control_threads_);
  heartbeat_error_ = heartbeat ? 0 : errno;
  address_.heartbeat_qpn = heartbeat_.number();
  return true;
}

bool Port::open_queues(const char** what) {
  const VerbsApi& api = device_->api();
  Config& config = config_;
  config.receive_depth =
      std::min(config.receive_depth, static_cast<uint32_t>(std::max(device_->attr().max_srq_wr, 1)));
  const uint32_t fixed = config.receive_depth + DatagramQp::kReceives + DatagramQp::kSends;
  *what = "completion queue";
  if (!cqs_.open(api, device_->context(), device_->attr().max_cqe, fixed, config.cq_entries, &lanes_.upkeep))
    return false;
  cq_ = cqs_.first();
  *what = "shared receive queue";
  // With a bound on retries a receiver without buffers ends connections: then none may be missing.
  constexpr uint32_t kFew = 16;
  const bool patient = config.qp.rnr_retry == 7;
  const uint32_t first =
      patient ? std::max(kFew, config.receive_first_bytes / config.receive_bytes) : config.receive_depth;
  if (!srq_.open(api, device_->pd(), device_->arena(), config.receive_depth, first, config.receive_bytes))
    return false;
  *what = "datagram queue pair";
  if (!cm_qp_.open(api, device_->pd(), cq_, device_->arena(), qp_settings_)) return false;
  *what = "memory for path records";
  if (!paths_.open(*this, config.path_service_level)) return false;
  *what = "memory for probes";
  const Region region = device_->arena().take(64);
  probe_target_ = region.address;
  if (probe_target_ == nullptr) return false;
  probe_target_mr_ =
      api.reg_mr(device_->pd(), probe_target_, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  return probe_target_mr_ != nullptr;
}

bool Port::close() {
  finalizing_ = true;
  BFO_DCHECK(endpoints_ == nullptr);
  // A last BYE may still be on its way to the wire.
  const uint64_t until = env_.now_ns != nullptr ? env_.now_ns() + kByeTimeoutNs : 0;
  ibv_wc wc;
  while (cq_ != nullptr && cm_qp_.sending() && state_ == PortState::kActive && env_.now_ns() < until) {
    if (ibv_poll_cq(cq_, 1, &wc) == 1 && work_kind(wc.wr_id) == WorkKind::kDatagramSend)
      cm_qp_.sent(static_cast<uint32_t>(work_low(wc.wr_id)));
  }
  bool clean = end_commands();
  clean = heartbeat_.close() && clean;
  clean = paths_.close() && clean;
  clean = cm_qp_.close() && clean;
  if (probe_target_mr_ != nullptr) clean = device_->api().dereg_mr(probe_target_mr_) == 0 && clean;
  probe_target_mr_ = nullptr;
  clean = srq_.close() && clean;
  clean = cqs_.close() && clean;
  cq_ = nullptr;
  return clean;
}

/// A thread that does not come back from its verb keeps the device.
bool Port::end_commands() {
  bool ended = lanes_.close(kVerbTimeoutNs);
  ended = addresses_.close() && ended;
  ended = heartbeat_.end_commands() && ended;
  control_threads_.close();
  if (!ended) device_->leave_open();
  return ended;
}

bool Port::add(Endpoint& endpoint) {
  const Guard guard(lock_);
  endpoint.port = this;
  endpoint.initiator = config_.own_name < endpoint.peer.name;
  if (!heartbeat_.add(endpoint)) return false;
  endpoint.next = endpoints_;
  endpoints_ = &endpoint;
  return true;
}

void Port::remove(Endpoint& endpoint) {
  if (!endpoint.peer.left) cm_bye(endpoint);
  if (endpoint.has_resources()) endpoint.outbox().address = nullptr;  // it may outlive the port's cache
  {
    const Guard guard(lock_);
    if (endpoint.usable) note_rail_end();
    endpoint.phase = Phase::kGone;
    endpoint.usable = false;
    // Nobody is called back, but the accounting balances.
    SendRing& ring = endpoint.ring();
    for (; ring.tail != ring.head; ++ring.tail)
      ++accounting_.unknown[static_cast<size_t>(ring.slots[ring.tail & ring.mask].kind)];
    while (!endpoint.queued.empty())
      ++accounting_.never_sent[static_cast<size_t>(endpoint.queued.pop()->kind)];
  }
  if (awaited_ == &endpoint) awaited_ = nullptr;
  qp_forget(endpoint);
  heartbeat_.remove(endpoint.peer.name);
  const Guard guard(lock_);
  for (Endpoint** at = &endpoints_; *at != nullptr; at = &(*at)->next) {
    if (*at != &endpoint) continue;
    *at = endpoint.next;
    break;
  }
}

}  // namespace bfo::engine
