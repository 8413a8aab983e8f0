// SPDX-License-Identifier: BSD-3-Clause
//
// poll.cc: the progress function of a port (port.h).
#include "btl/verbs/engine/rail/port.h"

#include <cerrno>
#include <utility>

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

}  // namespace

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
