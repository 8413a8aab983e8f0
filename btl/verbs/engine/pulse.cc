// SPDX-License-Identifier: BSD-3-Clause
//
// pulse.cc: see pulse.h.
#include "btl/verbs/engine/pulse.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "btl/verbs/engine/cq.h"
#include "btl/verbs/engine/packet.h"

namespace bfo::engine {
namespace {
constexpr int kBatch = 16;
constexpr int kRounds = 32;  // batches in one turn: a flood of datagrams must not keep the event thread
}  // namespace

bool Pulse::open(const VerbsApi& api, ibv_context* context, ibv_pd* pd, Arena& arena,
                 const QpSettings& settings, uint64_t own_name, uint64_t nonce) {
  api_ = &api;
  pd_ = pd;
  settings_ = settings;
  own_name_ = own_name;
  nonce_ = nonce;
  broken_ = dead_ = false;
  if (open_queue(context) && ud_.open(api, pd, cq_, arena, settings)) return true;
  const int saved = errno;
  close();
  errno = saved;
  return false;
}

bool Pulse::open_queue(ibv_context* context) {
  channel_ = api_->create_comp_channel(context);
  if (channel_ == nullptr) return false;
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) return false;
  // Room for every buffer, and again for what is flushed while a repair posts them anew.
  cq_ = api_->create_event_cq(context, 2 * (Ud::kReceives + Ud::kSends), channel_);
  return cq_ != nullptr && ibv_req_notify_cq(cq_, 0) == 0;
}

bool Pulse::close() {
  bool clean = ud_.close();
  drop_handles();
  if (cq_ != nullptr) clean = api_->destroy_cq(cq_) == 0 && clean;
  cq_ = nullptr;
  if (channel_ != nullptr) clean = api_->destroy_comp_channel(channel_) == 0 && clean;
  channel_ = nullptr;
  return clean;
}

void Pulse::drop_handles() {
  for (ibv_ah*& handle : handles_) {
    if (handle != nullptr) api_->destroy_ah(handle);
    handle = nullptr;
  }
}

bool Pulse::serve() {
  if (dead_ || cq_ == nullptr) return true;
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
  if (n > 0) return false;
  if (!broken_) return true;
  broken_ = false;
  dead_ = !ud_.revive();
  drop_handles();
  return false;
}

void Pulse::finish(const ibv_wc& wc) {
  const uint32_t index = static_cast<uint32_t>(work_low(wc.wr_id));
  if (wc.status != IBV_WC_SUCCESS) {
    broken_ = true;  // buffers and handles are taken back by the repair
    return;
  }
  if (work_kind(wc.wr_id) == WorkKind::kUdSend) {
    if (handles_[index] != nullptr) api_->destroy_ah(handles_[index]);
    handles_[index] = nullptr;
    ud_.sent(index);
    return;
  }
  if (wc.byte_len > Ud::kGrhBytes)
    answer(ud_.received(index), wc.byte_len - Ud::kGrhBytes, (wc.wc_flags & IBV_WC_GRH) != 0);
  ud_.release(index);
}

void Pulse::answer(const char* data, uint32_t length, bool global) {
  Packet packet;
  const bool ping = packet_parse(data, length, &packet) &&
                    packet.type == static_cast<uint8_t>(PacketType::kPing) && packet.target == own_name_ &&
                    packet.target_nonce == nonce_;
  if (!ping) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  PortAddress to;
  to.lid = packet.lid;
  to.link_layer = packet.link_layer;
  memcpy(to.gid.raw, packet.gid, sizeof packet.gid);
  QpSettings settings = settings_;
  settings.always_global = settings.always_global || global;  // back the way it came
  ibv_ah_attr attr = address_vector(settings, to, to);
  ibv_ah* handle = api_->create_ah(pd_, &attr);
  if (handle == nullptr) return;  // the next PING asks again
  const uint32_t reply_to = packet.ud_qpn;
  const uint32_t reply_key = packet.landing_rkey;
  Packet pong{};
  pong.type = static_cast<uint8_t>(PacketType::kPong);
  pong.source = own_name_;
  pong.target = packet.source;
  pong.source_nonce = nonce_;
  pong.target_nonce = packet.source_nonce;
  pong.epoch = packet.epoch;
  packet_seal(&pong);
  uint32_t index = 0;
  if (ud_.send(handle, reply_to, reply_key, &pong, sizeof pong, &index)) {
    handles_[index] = handle;
  } else {
    api_->destroy_ah(handle);
  }
}

}  // namespace bfo::engine
