// SPDX-License-Identifier: BSD-3-Clause
//
// heartbeat.cc: see heartbeat.h.
#include "btl/verbs/engine/datagram/heartbeat.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "btl/verbs/engine/device/cq.h"
#include "btl/verbs/engine/base/locked.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {
namespace {
constexpr int kBatch = 16;
constexpr int kRounds = 32;  // batches in one turn: a flood of datagrams must not keep the event thread
/// Neighbours that do not answer keep as many threads for about a second each.
constexpr uint32_t kWidth = 2;
/// At the end nobody waits for a handle; what is wanted is only that the thread is out of the device.
constexpr uint64_t kCloseTimeoutNs = 50'000'000;

bool same(const PortAddress& a, const PortAddress& b) {
  return a.lid == b.lid && a.link_layer == b.link_layer && a.gid_type == b.gid_type &&
         memcmp(a.gid.raw, b.gid.raw, sizeof a.gid) == 0;
}

}  // namespace

bool Heartbeat::open(const VerbsApi& api, ibv_context* context, ibv_pd* pd, Arena& arena,
                     const QpSettings& settings, const Identity& identity, ControlMode mode,
                     ControlThreads& threads) {
  api_ = &api;
  pd_ = pd;
  settings_ = settings;
  identity_ = identity;
  broken_ = dead_ = repairing_ = false;
  lane_.open(mode, kWidth, &results_, &threads);
  if (open_queue(context) && qp_.open(api, pd, cq_, arena, settings)) return true;
  const int saved = errno;
  close();
  errno = saved;
  return false;
}

bool Heartbeat::open_queue(ibv_context* context) {
  channel_ = api_->create_comp_channel(context);
  if (channel_ == nullptr) return false;
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) return false;
  // Room for every buffer, and again for what is flushed while a repair posts them anew.
  cq_ = api_->create_event_cq(context, 2 * (DatagramQp::kReceives + DatagramQp::kSends), channel_);
  return cq_ != nullptr && ibv_req_notify_cq(cq_, 0) == 0;
}

bool Heartbeat::end_commands() {
  return lane_.close(kCloseTimeoutNs);
}

bool Heartbeat::close() {
  bool clean = end_commands();
  clean = qp_.close() && clean;
  lost_sends();
  drop_routes(true);
  if (cq_ != nullptr) clean = api_->destroy_cq(cq_) == 0 && clean;
  cq_ = nullptr;
  if (channel_ != nullptr) clean = api_->destroy_comp_channel(channel_) == 0 && clean;
  channel_ = nullptr;
  return clean;
}

bool Heartbeat::add(KnownPeer& peer) {
  const Locked locked(mutex_);
  return peers_.insert(peer.peer.name, &peer);
}

void Heartbeat::set_address(const QpSettings& settings, const GidTable& gids) {
  const Locked locked(mutex_);
  if (settings.gid_index != settings_.gid_index || settings.always_global != settings_.always_global ||
      !(gids == gids_))
    ++addresses_;
  gids_ = gids;
  settings_.gid_index = settings.gid_index;
  settings_.always_global = settings.always_global;
  settings_.pkey_index = settings.pkey_index;
}

void Heartbeat::remove(uint64_t name) {
  const Locked locked(mutex_);
  KnownPeer* const peer = peers_.find(name);
  if (peer == nullptr) return;
  if (peer->talk != nullptr && peer->talk->route != nullptr) peer->talk->route->over = true;
  unmake(std::exchange(peer->talk, nullptr));
  peers_.erase(name);
}

uint64_t Heartbeat::dropped() const {
  uint64_t sum = 0;
  for (const auto& count : drops_) sum += count.load(std::memory_order_relaxed);
  return sum;
}

/// Destroys what is over, or `all`; not what a control thread still has.
void Heartbeat::drop_routes(bool all) {
  for (HeartbeatRoute** at = &routes_; *at != nullptr;) {
    HeartbeatRoute* const route = *at;
    if (route->asked || (!all && (!route->over || route->under_way != 0))) {
      at = &route->older;
      continue;
    }
    *at = route->older;
    if (route->handle != nullptr) api_->destroy_ah(route->handle);
    unmake(route);
  }
}

/// The queue pair was reset: no completion will come for what was being sent.
void Heartbeat::lost_sends() {
  for (HeartbeatRoute*& route : sending_) {
    if (route != nullptr) --route->under_way;
    route = nullptr;
  }
}

bool Heartbeat::serve() {
  if (dead_ || cq_ == nullptr) return true;
  if (results_.exchange(false, std::memory_order_acq_rel)) lane_.finish();
  unsigned events = 0;
  while (api_->get_cq_event(channel_)) ++events;
  if (events != 0) api_->ack_cq_events(cq_, events);
  // Armed before the queue is read: what comes later raises the next event.
  if (ibv_req_notify_cq(cq_, 0) != 0) dead_ = true;
  ibv_wc wcs[kBatch];
  int rounds = 0;
  int n = 0;
  while (!dead_ && rounds++ < kRounds && (n = ibv_poll_cq(cq_, kBatch, wcs)) > 0) {
    for (int i = 0; i < n; ++i) finish(wcs[i]);
  }
  if (n < 0) dead_ = true;
  if (dead_) return true;
  send_waiting();
  drop_routes(false);
  if (n > 0) return false;
  if (broken_ && !repairing_) {
    repair();
    return false;
  }
  return lane_.pending() == 0;
}

/// Through RESET, which takes its time. What comes meanwhile is lost, as any datagram may be.
void Heartbeat::repair() {
  auto* const repair = make<HeartbeatRepair>();
  if (repair == nullptr) return;  // the next turn tries again
  {
    const Locked locked(mutex_);
    qp_.set_pkey_index(settings_.pkey_index);
  }
  repair->heartbeat = this;
  repair->qp = qp_;
  repair->droppable = true;
  repair->run = [](Command& self) {
    auto& command = static_cast<HeartbeatRepair&>(self);
    command.revived = command.qp.revive();
  };
  repair->done = [](Command& self) {
    auto& ended = static_cast<HeartbeatRepair&>(self);
    ended.heartbeat->repaired(ended);
    unmake(&ended);
  };
  broken_ = false;
  repairing_ = true;
  qp_.suspend();
  lane_.submit(*repair, Urgency::kFirst);
}

void Heartbeat::repaired(const HeartbeatRepair& repair) {
  repairing_ = false;
  qp_ = repair.qp;
  if (!repair.revived) dead_ = true;
  lost_sends();
}

void Heartbeat::finish(const ibv_wc& wc) {
  const uint32_t index = static_cast<uint32_t>(work_low(wc.wr_id));
  if (wc.status != IBV_WC_SUCCESS) {
    broken_ = true;  // buffers are taken back by the repair
    return;
  }
  if (work_kind(wc.wr_id) == WorkKind::kDatagramSend) {
    if (sending_[index] != nullptr) --sending_[index]->under_way;
    sending_[index] = nullptr;
    qp_.sent(index);
    return;
  }
  const bool global = (wc.wc_flags & IBV_WC_GRH) != 0;
  if (wc.byte_len > DatagramQp::kGrhBytes)
    answer(qp_.received(index), wc.byte_len - DatagramQp::kGrhBytes, global);
  qp_.release(index);
}

void Heartbeat::answer(const char* data, uint32_t length, bool global) {
  Packet ping;
  const Drop at_sight = judge(data, length, identity_.own_name, identity_.nonce, identity_.key, &ping);
  if (at_sight != Drop::kNone) return count(at_sight);
  if (ping.type != static_cast<uint8_t>(PacketType::kPing)) return count(Drop::kType);
  Packet pong{};
  HeartbeatRoute* route = nullptr;
  uint32_t qkey = 0;
  if (const Drop why = prepare(ping, global, &pong, &route, &qkey); why != Drop::kNone) return count(why);
  if (route == nullptr) return;  // the next PING asks again
  route->pong = pong;
  route->qkey = qkey;
  route->waits = true;
  if (route->handle == nullptr) return ask_handle(*route);
  send_pong(*route);
}

void Heartbeat::send_pong(HeartbeatRoute& route) {
  if (!qp_.can_send()) {
    unsent_ = true;
    return;
  }
  if (!std::exchange(route.waits, false)) return;
  uint32_t index = 0;
  if (!qp_.send(route.handle, route.pong.cm_qpn, route.qkey, &route.pong, sizeof route.pong, &index)) return;
  sending_[index] = &route;
  ++route.under_way;
}

/// Hundreds of peers may have asked at the same time: answers that found no send buffer leave when others
/// have left.
void Heartbeat::send_waiting() {
  if (!unsent_) return;
  unsent_ = false;
  for (HeartbeatRoute* route = routes_; route != nullptr; route = route->older) {
    if (route->waits && !route->over && route->handle != nullptr) send_pong(*route);
  }
}

/// Makes the answer to a PING of a peer, and says where it goes.
Drop Heartbeat::prepare(const Packet& ping, bool global, Packet* pong, HeartbeatRoute** route,
                        uint32_t* qkey) {
  PortAddress from;
  from.lid = static_cast<uint16_t>(ping.lid + ping.path);  // back the way it came
  from.link_layer = ping.link_layer;
  from.gid_type = ping.gid_type & 0xf;
  memcpy(from.gid.raw, ping.gid, sizeof ping.gid);
  const Locked locked(mutex_);
  KnownPeer* const peer = peers_.find(ping.source);
  if (peer == nullptr || peer->peer.nonce != ping.source_nonce) return Drop::kStranger;
  HeartbeatTalk* const talk = talk_to(*peer);
  if (talk == nullptr) return Drop::kNone;  // no memory: the next PING asks again
  if (!talk->pings_taken.take(ping.sequence)) return Drop::kReplayed;
  *route = route_to(*talk, from, global, ping.epoch > 1);
  *qkey = peer->peer.address.qkey;
  pong->type = static_cast<uint8_t>(PacketType::kPong);
  pong->source = identity_.own_name;
  pong->target = ping.source;
  pong->source_nonce = identity_.nonce;
  pong->target_nonce = ping.source_nonce;
  pong->epoch = ping.epoch;
  pong->path = ping.path;
  pong->cm_qpn = peer->peer.address.cm_qpn;
  pong->sequence = ++talk->pongs_sent;
  packet_seal(pong, peer->peer.key);
  return Drop::kNone;
}

/// Numbers begin where none of an earlier talk with the same peer can have been. Under the lock.
HeartbeatTalk* Heartbeat::talk_to(KnownPeer& peer) {
  if (peer.talk == nullptr) peer.talk = make<HeartbeatTalk>();
  if (peer.talk != nullptr && peer.talk->pongs_sent == 0) peer.talk->pongs_sent = identity_.now_ns();
  return peer.talk;
}

/// The peer's route, a new one when it speaks from another address, or when it has not heard the last answers
/// and its neighbour may have changed. nullptr without memory. Under the lock.
HeartbeatRoute* Heartbeat::route_to(HeartbeatTalk& talk, const PortAddress& to, bool global, bool unheard) {
  HeartbeatRoute* const old = talk.route;
  if (old != nullptr && old->address == addresses_ && same(old->to, to) && old->global == global) {
    const bool renew = unheard && to.link_layer == IBV_LINK_LAYER_ETHERNET && old->handle != nullptr &&
                       identity_.now_ns() - old->asked_ns >= kRenewNs;
    if (!renew) return old;
  }
  auto* route = make<HeartbeatRoute>();
  if (route == nullptr) return old;
  if (old != nullptr) old->over = true;
  route->to = to;
  route->global = global;
  route->address = addresses_;
  route->heartbeat = this;
  route->older = routes_;
  routes_ = route;
  talk.route = route;
  return route;
}

/// What cannot be reached is asked for again after a while only: on RoCE the answer may take a second.
void Heartbeat::ask_handle(HeartbeatRoute& route) {
  if (route.asked) return;
  const uint64_t pause = kRetryNs << std::min(std::max(route.failures, 1u) - 1, kDoublings);
  if (route.failures != 0 && identity_.now_ns() - route.asked_ns < pause) return;
  QpSettings settings;
  {
    const Locked locked(mutex_);
    settings = settings_;
    const GidEntry* const own = own_gid_for(gids_, route.to.gid, static_cast<GidType>(route.to.gid_type));
    if (own != nullptr) settings.gid_index = static_cast<uint8_t>(own->index);
  }
  settings.always_global = settings.always_global || route.global;  // back the way it came
  route.asked = true;
  route.api = api_;
  route.pd = pd_;
  route.attr = address_vector(settings, route.to, route.to);
  route.run = create;
  route.done = created;
  route.droppable = true;
  lane_.submit(route, route.failures == 0 ? Urgency::kNormal : Urgency::kLast);
}

void Heartbeat::create(Command& command) {
  auto& route = static_cast<HeartbeatRoute&>(command);
  route.made = route.api->create_ah(route.pd, &route.attr);
}

void Heartbeat::created(Command& command) {
  auto& route = static_cast<HeartbeatRoute&>(command);
  route.asked = false;
  if (route.dropped) return;
  route.asked_ns = route.heartbeat->identity_.now_ns();
  route.handle = route.made;
  route.failures = route.handle != nullptr ? 0 : route.failures + 1;
  if (route.handle == nullptr || route.over) return;
  route.heartbeat->send_pong(route);
}

}  // namespace bfo::engine
