// SPDX-License-Identifier: BSD-3-Clause
//
// poll.cc: opening and closing a port, and its progress function (port.h).
#include "btl/verbs/engine/rail/port.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/send/qp_command.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/engine/watchdog/verdict.h"

namespace bfo::engine {
namespace {

constexpr uint32_t kClockEvery = 32;       // polls between two looks at the clock
constexpr uint32_t kPollsUntilIdle = 512;  // polls without a completion until a port is idle
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

// ---- open and close

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

// ---- progress

bool Port::accounting_balances() const {
  uint64_t open = 0;
  for (const Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    open += outstanding(*endpoint);
  }
  uint64_t accepted = 0;
  uint64_t ended = 0;
  for (int kind = 0; kind < BFO_KIND_COUNT; ++kind) {
    accepted += accounting_.accepted[kind];
    ended += accounting_.delivered[kind] + accounting_.unknown[kind] + accounting_.never_sent[kind];
  }
  return accepted == ended + open;
}

int Port::poll() {
  // A callback that runs progress must not find a half-handled batch.
  if (polling_ || finalizing_) [[unlikely]]
    return 0;
  const bool posted = posted_.load(std::memory_order_relaxed);
  if (posted) {
    posted_.store(false, std::memory_order_relaxed);
    polls_until_idle_ = kPollsUntilIdle;
  }
  const bool stream = moderation_.streaming();
  if (stream && !service_needed_.load(std::memory_order_relaxed) && moderation_.holds(env_.now_ns(), posted))
    return 0;
  polling_ = true;
  ibv_wc wcs[kPollBatch];
  int handled = 0;
  bool emptied = true;
  bool receives_only = true;
  for (const CqSet::Queue* queue = cqs_.chain(); queue != nullptr; queue = queue->next) {
    const int n = ibv_poll_cq(queue->cq, kPollBatch, wcs);
    if (n < 0) [[unlikely]] {
      if (state_ == PortState::kDead) continue;
      close_all(CloseOrder{true, BFO_CAUSE_ASYNC_EVENT, IBV_EVENT_CQ_ERR, 0, env_.now_ns()}, true);
      continue;
    }
    for (int i = 0; i < n; ++i) {
      receives_only = receives_only && work_kind(wcs[i].wr_id) == WorkKind::kReceive;
      handle(wcs[i]);
    }
    handled += n;
    emptied = emptied && n < kPollBatch;
  }
  if (!emptied) [[unlikely]] {
    seen_.full_poll();
    if (srq_.crowded(kPollBatch)) grow_receives();
  }
  if (handled == 0) {
    srq_.calm();
    srq_.idle();
    if (polls_until_idle_ != 0) --polls_until_idle_;
    moderation_.nothing();
  } else {
    polls_until_idle_ = kPollsUntilIdle;
    if (stream && emptied) srq_.calm();  // in a stream few polls are idle, and only those would do it
    if (stream)
      moderation_.found({handled, receives_only, emptied}, env_.now_ns());
    else
      moderation_.found(receives_only);
  }
  const bool service_needed = service_needed_.load(std::memory_order_acquire);
  if (service_needed || --until_clock_ == 0) [[unlikely]] {
    const uint32_t polls = kClockEvery - until_clock_ + (service_needed ? 1 : 0);
    until_clock_ = kClockEvery;
    const uint64_t now = env_.now_ns();
    run_time_.note(now, polls, timers_, env_);
    if (emptied) datagrams_ = 0;
    if (service_needed || timers_) {
      // Reads what a control thread stored: its result is seen by what follows.
      service_needed_.exchange(false, std::memory_order_acq_rel);
      service(now, emptied);
      if (service_needed && connecting() && run_time_.may_stay_ns() != 0 && host_.comes_seldom != nullptr)
        host_.comes_seldom(host_.ctx, run_time_.may_stay_ns());
    }
    if (now >= next_tick_ns_) tick(now, emptied);
  }
  polling_ = false;
  return handled;
}

bool Port::skip_poll() {
  static_assert(kClockEvery % kSkipTurns == 0, "the poll that looks at the clock is one that is made");
  if (!idle() || until_clock_ % kSkipTurns == 1) return false;
  --until_clock_;
  return true;
}

int poll_ports(Port* const* ports, int count) {
  bool traffic = false;
  for (int i = 0; i < count; ++i) traffic = traffic || !ports[i]->idle();
  int handled = 0;
  for (int i = 0; i < count; ++i) {
    if (!(traffic && ports[i]->skip_poll())) handled += ports[i]->poll();
  }
  return handled;
}

void Port::handle(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
    return handle_error(wc);
  switch (work_kind(wc.wr_id)) {
    case WorkKind::kReceive:
      return handle_receive(wc);
    case WorkKind::kSend: {
      Endpoint* endpoint = qps_.find(wc.qp_num);
      if (endpoint != nullptr) ring_retire(*endpoint, work_low(wc.wr_id));
      return;
    }
    case WorkKind::kMarker: {
      // A marker can only be flushed; a device that executes it in ERR has at least passed everything before
      // it.
      Endpoint* endpoint = qps_.find(wc.qp_num);
      if (endpoint != nullptr) endpoint->drain().marker = Drain::Marker::kBack;
      return;
    }
    case WorkKind::kProbe:
      return handle_probe(wc);
    case WorkKind::kDatagramReceive: {
      const uint32_t index = static_cast<uint32_t>(work_low(wc.wr_id));
      if (++datagrams_ % DatagramQp::kReceives == 0) ++datagram_overruns_;
      if (wc.byte_len > DatagramQp::kGrhBytes)
        cm_receive(*this, cm_qp_.received(index), wc.byte_len - DatagramQp::kGrhBytes);
      cm_qp_.release(index);
      return;
    }
    case WorkKind::kDatagramSend:
      return cm_qp_.sent(static_cast<uint32_t>(work_low(wc.wr_id)));
  }
}

void Port::handle_receive(const ibv_wc& wc) {
  const uint32_t index = static_cast<uint32_t>(work_low(wc.wr_id));
  Endpoint* endpoint = qps_.find(wc.qp_num);
  const uint32_t imm = ntohl(wc.imm_data);
  const bool sound = endpoint != nullptr && (wc.wc_flags & IBV_WC_WITH_IMM) != 0 && imm < 256;
  if (!sound) [[unlikely]]
    return drop_receive(wc, endpoint);
  if (!endpoint->announced) [[unlikely]]
    first_message(*endpoint);
  ++endpoint->delivered;
  accounting_.bytes_received += wc.byte_len;
  receiving_ = endpoint;
  host_.deliver(host_.ctx, *endpoint, static_cast<uint8_t>(imm), srq_.buffer(index), wc.byte_len);
  receiving_ = nullptr;
  srq_.release(index);
}

[[gnu::noinline]] void Port::drop_receive(const ibv_wc& wc, const Endpoint* endpoint) {
  ++accounting_.dropped;
  srq_.release(static_cast<uint32_t>(work_low(wc.wr_id)));
  tell_dropped("a message",
               endpoint == nullptr ? "stranger: its queue pair is of no connection" : "shape: it has no tag");
}

/// The event thread counts; who asks is told here.
void Port::tell_heartbeat_drops() {
  for (size_t i = 0; i < kDrops; ++i) {
    const uint64_t dropped = heartbeat_.dropped(static_cast<Drop>(i));
    const uint64_t times = dropped - std::exchange(told_drops_[i], dropped);
    if (times == 0) continue;
    host_.dropped(host_.ctx,
                  DropNote{"a datagram to the heartbeat", drop_text(static_cast<Drop>(i)), nullptr, times});
  }
}

void Port::first_message(Endpoint& endpoint) {
  if (endpoint.phase == Phase::kReplied && !endpoint.ending().asked) return cm_established(endpoint);
  // The initiator used an epoch that is already being closed here: it is reported up and down so that the
  // message has a known source.
  endpoint.announced = true;
  const uint64_t now = env_.now_ns();
  bfo_rail_event_t event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
  host_.rail_up(host_.ctx, endpoint, event);
  if (endpoint.phase == Phase::kDraining) host_.rail_down(host_.ctx, endpoint, endpoint.down_event());
}

void Port::handle_probe(const ibv_wc& wc) {
  Endpoint* endpoint = qps_.find(wc.qp_num);
  if (endpoint == nullptr) return;
  if ((work_low(wc.wr_id) & 1) == 0) return cm_probe_done(*endpoint, wc.status);
  if (endpoint->phase != Phase::kUp && endpoint->phase != Phase::kSuspect) return;
  if (wc.status == IBV_WC_SUCCESS) {
    endpoint->watch().probe = PathProbe::kDone;
    verdict_clear(*endpoint);
    return;
  }
  endpoint->watch().probe = PathProbe::kFailed;
  endpoint->watch().probe_status = wc.status;
  verdict_probe_failed(*endpoint, env_.now_ns());
}

void Port::handle_error(const ibv_wc& wc) {
  // Only wr_id, status, qp_num and vendor_err are valid here.
  const WorkKind kind = work_kind(wc.wr_id);
  const uint32_t low = static_cast<uint32_t>(work_low(wc.wr_id));
  if (kind == WorkKind::kDatagramSend) {
    cm_qp_.sent(low);
    cm_repair_.broken = true;
    return need_service();
  }
  if (kind == WorkKind::kDatagramReceive) {
    cm_repair_.broken = true;
    return need_service();
  }
  if (kind == WorkKind::kReceive) srq_.release(low);
  if (kind == WorkKind::kProbe) return handle_probe(wc);
  Endpoint* endpoint = qps_.find(wc.qp_num);
  if (endpoint == nullptr) return;
  if (kind == WorkKind::kMarker) {
    endpoint->drain().marker = Drain::Marker::kBack;
    return need_service();
  }
  switch (status_reaction(wc.status)) {
    case StatusReaction::kSuccess:
    case StatusReaction::kDropReceive:
      ++accounting_.dropped;
      return tell_dropped("a message", "aborted: its sender took it back");
    case StatusReaction::kCloseProgramError:
      if (close_order(*endpoint, endpoint->epoch, BFO_CAUSE_WC_ERROR, wc.status, wc.vendor_err))
        ++program_errors;
      return;
    case StatusReaction::kClose:
    case StatusReaction::kFlushed:
      close_order(*endpoint, endpoint->epoch, BFO_CAUSE_WC_ERROR, wc.status, wc.vendor_err);
      return;
  }
}

}  // namespace bfo::engine
