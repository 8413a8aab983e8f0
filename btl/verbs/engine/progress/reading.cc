// SPDX-License-Identifier: BSD-3-Clause
//
// reading.cc: a port's attributes are read (port_query.h), and what changes with them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// A reading of `port`.
struct PortRead : PortQuery {
  Port* port = nullptr;
};

}  // namespace

PortQuestion Port::question() const {
  return PortQuestion{&api(),
                      device_->context(),
                      number_,
                      qp_settings_.gid_index,
                      config_.read_gids,
                      config_.gid_fixed ? int{config_.qp.gid_index} : -1,
                      qp_settings_.pkey_index,
                      config_.pkey};
}

bool Port::refresh() {
  return take_reading(read_port(question()));
}

bool Port::take_reading(const PortReading& reading) {
  if (reading.error != 0) {
    errno = reading.error;
    if (state_ != PortState::kDead) state_ = PortState::kDown;
    return false;
  }
  const PortAddress before = address_;
  attr_ = reading.attr;
  if (reading.rate.mbit != 0) rate_ = reading.rate;
  address_.lid = attr_.lid;
  address_.link_layer = attr_.link_layer;
  address_.mtu = static_cast<uint8_t>(attr_.active_mtu) & 0xf;
  address_.lmc = std::min({attr_.lmc, config_.max_lmc, kMaxLmc});
  // Of a port that lists its addresses, and is down, the last ones stay.
  if (reading.listed || config_.read_gids == nullptr) address_.gid = reading.gid;
  if (reading.listed) gids_ = reading.gids;
  if (gids_.count != 0) address_.gid_type = static_cast<uint8_t>(gids_.entries[0].type) & 0xf;
  qp_settings_.always_global = config_.qp.always_global || (attr_.flags & IBV_QPF_GRH_REQUIRED) != 0;
  qp_settings_.gid_index = reading.gid_index;
  if (state_ != PortState::kDead)
    state_ = attr_.state == IBV_PORT_ACTIVE ? PortState::kActive : PortState::kDown;
  const bool other_partition = take_partition(reading);
  heartbeat_.set_address(qp_settings_, gids_);
  // Where addresses are listed each rail has its own: see close_unaddressed().
  const bool other_gid =
      config_.read_gids == nullptr && memcmp(before.gid.raw, address_.gid.raw, sizeof before.gid.raw) != 0;
  return other_partition || other_gid || before.lid != address_.lid || before.lmc != address_.lmc;
}

/// True when the port is in another partition now, or in its own by another index. Queue pairs keep the index
/// that they were made with.
bool Port::take_partition(const PortReading& reading) {
  partition_lost_ = reading.pkey_index < 0;
  if (partition_lost_) {
    if (state_ == PortState::kActive) state_ = PortState::kDown;
    return false;
  }
  const uint16_t before = pkey_;
  if (reading.pkey != 0) pkey_ = reading.pkey;
  const bool moved = reading.pkey_index != qp_settings_.pkey_index;
  qp_settings_.pkey_index = static_cast<uint16_t>(reading.pkey_index);
  if (moved) move_datagrams();
  return moved || (before != 0 && before != pkey_);
}

namespace {

/// Moves the heartbeat's queue pair to ERR: the event thread sees its receives flushed, and repairs it.
struct HeartbeatStop : Command {
  const VerbsApi* api = nullptr;
  ibv_qp* qp = nullptr;
};

void stop_heartbeat(Command& self) {
  auto& command = static_cast<HeartbeatStop&>(self);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  static_cast<void>(command.api->modify_qp(command.qp, &attr, IBV_QP_STATE));
}

}  // namespace

/// Both datagram queue pairs go through RESET, to get the new index.
void Port::move_datagrams() {
  if (cm_qp_.number() == 0) return;  // the port is being opened
  cm_qp_.set_pkey_index(qp_settings_.pkey_index);
  cm_repair_.broken = true;
  need_service();
  if (heartbeat_.number() == 0) return;
  HeartbeatStop* const stop = make<HeartbeatStop>();
  if (stop == nullptr) return;  // PINGs are not answered; nothing else depends on it
  stop->api = &api();
  stop->qp = heartbeat_.queue_pair();
  stop->droppable = true;
  stop->run = stop_heartbeat;
  stop->done = [](Command& self) { unmake(static_cast<HeartbeatStop*>(&self)); };
  lanes_.upkeep.submit(*stop, Urgency::kNormal);
}

void Port::ask_device(int32_t type, uint64_t when_ns) {
  news_.any = true;
  news_.came_up = news_.came_up || type == IBV_EVENT_PORT_ACTIVE;
  news_.type = type;
  news_.when_ns = when_ns;
  if (reading_ == Reading::kNone) begin_reading();
}

/// At most one command is under way; events that come meanwhile ask once more when it has ended.
void Port::begin_reading() {
  PortRead spare;
  PortRead* query = make<PortRead>();
  const bool on_heap = query != nullptr;
  if (!on_heap) query = &spare;
  query->port = this;
  query->question = question();
  query->type = news_.type;
  query->when_ns = news_.when_ns;
  query->came_up = news_.came_up;
  query->droppable = true;
  query->run = [](Command& self) {
    auto& command = static_cast<PortQuery&>(self);
    command.reading = read_port(command.question);
  };
  query->done = [](Command& self) {
    auto* const command = static_cast<PortRead*>(&self);
    Port& port = *command->port;
    const PortQuery ended = *command;
    unmake(command);
    port.end_reading(ended);
  };
  news_ = PortNews{};
  reading_ = Reading::kUnderWay;
  if (on_heap) return lanes_.upkeep.submit(*query, Urgency::kNormal);
  query->run(*query);  // slow is better than never
  end_reading(*query);
}

void Port::end_reading(const PortQuery& query) {
  const Reading was = std::exchange(reading_, Reading::kNone);
  if (query.dropped || finalizing_) return;
  // A port that went down meanwhile says so again when it is back.
  if (was != Reading::kOutdated) act_on(query);
  if (news_.any && reading_ == Reading::kNone) begin_reading();
}

void Port::act_on(const PortQuery& query) {
  const PortState before = state_;
  const GidTable gids = gids_;
  const PortRate rate = rate_;
  const bool moved = take_reading(query.reading);
  const uint64_t now = env_.now_ns();
  outages_.note(state_ == PortState::kActive, now);
  damping_.note(state_ == PortState::kActive, now);
  // Before its rails come up or go on: their weights are right then.
  if (rate_.mbit != rate.mbit && state_ != PortState::kDead && host_.rate_changed != nullptr)
    host_.rate_changed(host_.ctx, rate, rate_, query.type);
  const bool other_gids = !(gids == gids_);
  // On Ethernet the neighbours may be others although the own address is the same: a bond has changed over.
  if (moved || query.type == IBV_EVENT_GID_CHANGE) addresses_.renew();
  if (other_gids) addresses_.renew_moved();
  if (paths_.wanted()) {
    // Another subnet manager routes anew, and may live elsewhere.
    paths_.forget();
    addresses_.renew_all();
  }
  if (before == PortState::kDown && state_ == PortState::kActive && left_alone(now)) {
    // As if it were down still: its rails are closed, and it is looked at again.
    state_ = PortState::kDown;
    next_port_query_ns_ = std::min(damping_.free_ns(now), now + kAloneLookNs);
  }
  const CloseOrder order{true, BFO_CAUSE_ASYNC_EVENT, query.type, 0, query.when_ns};
  if (state_ == PortState::kDown || moved)
    close_all(order, false);
  else if (other_gids)
    close_unaddressed(gids, order);
  if (state_ == PortState::kActive && (before == PortState::kDown || query.came_up)) port_up();
}

}  // namespace bfo::engine
