// SPDX-License-Identifier: BSD-3-Clause
//
// port_query.cc: reading a port's attributes, and what changes with them. See port_query.h.
#include "btl/verbs/engine/port_query.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "btl/verbs/engine/memory.h"
#include "btl/verbs/engine/port.h"

namespace bfo::engine {

PortReading read_port(const PortQuestion& question) {
  PortReading reading;
  ibv_context* const context = question.context;
  reading.error = question.api->query_port(context, question.number, &reading.attr);
  if (reading.error != 0) return reading;
  reading.gid_index = question.gid_index;
  if (question.choose_gid != nullptr && reading.attr.state == IBV_PORT_ACTIVE) {
    const int index = question.choose_gid(context, question.number, reading.attr);
    if (index >= 0) reading.gid_index = static_cast<uint8_t>(index);
  }
  if (question.api->query_gid(context, question.number, reading.gid_index, &reading.gid) != 0)
    reading.gid = ibv_gid{};
  return reading;
}

PortQuestion Port::question() const {
  return PortQuestion{&api(), device_->context(), number_, qp_settings_.gid_index, config_.choose_gid};
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
  address_.lid = attr_.lid;
  address_.link_layer = attr_.link_layer;
  address_.mtu = static_cast<uint8_t>(attr_.active_mtu);
  address_.gid = reading.gid;
  qp_settings_.always_global = config_.qp.always_global || (attr_.flags & IBV_QPF_GRH_REQUIRED) != 0;
  qp_settings_.gid_index = reading.gid_index;
  if (state_ != PortState::kDead)
    state_ = attr_.state == IBV_PORT_ACTIVE ? PortState::kActive : PortState::kDown;
  return before.lid != address_.lid || memcmp(before.gid.raw, address_.gid.raw, sizeof before.gid.raw) != 0;
}

void Port::ask_device(int32_t type, uint64_t when_ns) {
  news_.any = true;
  news_.came_up = news_.came_up || type == IBV_EVENT_PORT_ACTIVE;
  news_.type = type;
  news_.when_ns = when_ns;
  if (!reading_) begin_reading();
}

/// At most one command is under way; events that come meanwhile ask once more when it has ended.
void Port::begin_reading() {
  PortQuery spare;
  PortQuery* query = make<PortQuery>();
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
    auto* const command = static_cast<PortQuery*>(&self);
    Port& port = *command->port;
    const PortQuery ended = *command;
    unmake(command);
    port.end_reading(ended);
  };
  news_ = PortNews{};
  reading_ = true;
  outdated_ = false;
  if (on_heap) return upkeep_.submit(*query, Urgency::kNormal);
  query->run(*query);  // slow is better than never
  end_reading(*query);
}

void Port::end_reading(const PortQuery& query) {
  reading_ = false;
  if (query.dropped || finalizing_) return;
  // A port that went down meanwhile says so again when it is back.
  if (!outdated_) act_on(query);
  if (news_.any && !reading_) begin_reading();
}

void Port::act_on(const PortQuery& query) {
  const PortState before = state_;
  const bool moved = take_reading(query.reading);
  if (moved) addresses_.renew();
  if (state_ == PortState::kDown || moved)
    close_all(CloseOrder{true, BFO_CAUSE_ASYNC_EVENT, query.type, 0, query.when_ns}, false);
  if (state_ == PortState::kActive && (before == PortState::kDown || query.came_up)) port_up();
}

}  // namespace bfo::engine
