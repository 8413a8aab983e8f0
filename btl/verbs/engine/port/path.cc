// SPDX-License-Identifier: BSD-3-Clause
//
// path.cc: see path.h.
#include "btl/verbs/engine/port/path.h"

#include <bit>
#include <cerrno>
#include <cstdio>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {

constexpr uint32_t kGrhBytes = 40;

// The low bits of wr_id are the buffer's number.
constexpr uint64_t kSendBit = uint64_t{1} << 32;

}  // namespace

/// Between ports of one InfiniBand subnet.
bool PathRecords::applies(const PortAddress& to) const {
  const PortAddress& own = port_->address();
  return wanted_ && own.link_layer != IBV_LINK_LAYER_ETHERNET && own.lid != 0 && to.lid != 0 &&
         own.gid.global.subnet_prefix == to.gid.global.subnet_prefix;
}

uint16_t PathRecords::source_of(const Path& path) const {
  return static_cast<uint16_t>(port_->address().lid + path.number);
}

uint64_t PathRecords::key_of(uint16_t lid, uint8_t number) {
  return uint64_t{number} << 16 | lid;
}

Path* PathRecords::path_to(uint16_t lid, uint8_t number) {
  Path* path = paths_.find(key_of(lid, number));
  if (path != nullptr) return path;
  path = make<Path>();
  if (path == nullptr || !paths_.insert(key_of(lid, number), path)) {
    unmake(path);
    return nullptr;
  }
  path->lid = lid;
  path->number = number;
  path->older = newest_;
  newest_ = path;
  return path;
}

uint8_t PathRecords::known_level(const PortAddress& to, uint8_t path) const {
  const Path* const found = applies(to) ? paths_.find(key_of(over_path(to, path).lid, path)) : nullptr;
  return found != nullptr && found->state == Path::State::kKnown ? found->service_level
                                                                 : port_->settings().service_level;
}

bool PathRecords::service_level(const PortAddress& to, uint8_t number, uint64_t now, uint8_t* level) {
  *level = known_level(to, number);
  if (!applies(to)) return true;
  Path* const path = path_to(over_path(to, number).lid, number);
  if (path == nullptr || path->state == Path::State::kKnown) return true;
  if (path->state == Path::State::kWaiting || path->state == Path::State::kAsked) return false;
  if (now < quiet_until_ns_ || (path->state == Path::State::kFailed && now < path->due_ns)) return true;
  wait(*path);
  port_->need_service();
  return false;
}

void PathRecords::wait(Path& path) {
  path.state = Path::State::kWaiting;
  path.next = nullptr;
  (first_waiting_ == nullptr ? first_waiting_ : last_waiting_->next) = &path;
  last_waiting_ = &path;
}

Path* PathRecords::next_waiting() {
  Path* const path = first_waiting_;
  if (path != nullptr) first_waiting_ = path->next;
  return path;
}

bool PathRecords::asking() const {
  return (first_waiting_ != nullptr || asked_count_ != 0) && port_->state() == PortState::kActive;
}

void PathRecords::forget() {
  if (!wanted_) return;
  quiet_until_ns_ = 0;
  for (Path* path = newest_; path != nullptr; path = path->older) {
    if (path->state == Path::State::kKnown || path->state == Path::State::kFailed)
      path->state = Path::State::kUnknown;
  }
  for (Path*& path : asked_) {
    if (path != nullptr) wait(*path);
    path = nullptr;
  }
  asked_count_ = 0;
  end();
}

bool PathRecords::service(uint64_t now) {
  if (stage_ == Stage::kReady) take_answers(now);
  if (asking()) {
    if (stage_ == Stage::kNone) begin(now);
    if (stage_ == Stage::kMaking && now >= made_by_ns_) {
      PathTrouble trouble;
      trouble.why = PathTrouble::Why::kQueuePair;
      trouble.code = ETIMEDOUT;
      trouble.manager = manager_;
      give_up(trouble, now);
    }
    ask_again(now);
    if (stage_ == Stage::kReady) ask_more(now);
  }
  const bool answered = answered_;
  answered_ = false;
  return answered;
}

void PathRecords::ask_again(uint64_t now) {
  for (Path* path : asked_) {
    if (path == nullptr || now < path->due_ns) continue;
    if (path->tries < kTries) {
      send(*path, now);
      continue;
    }
    PathTrouble trouble;
    trouble.manager = manager_;
    return give_up(trouble, now);
  }
}

void PathRecords::ask_more(uint64_t now) {
  for (Path*& place : asked_) {
    if (place != nullptr) continue;
    place = next_waiting();
    if (place == nullptr) return;
    ++asked_count_;
    const Environment& env = port_->env();
    if (!env.secret(&place->transaction)) place->transaction = env.random();
    place->state = Path::State::kAsked;
    place->tries = 0;
    send(*place, now);
  }
}

/// A request that cannot be sent is one that is lost.
void PathRecords::send(Path& path, uint64_t now) {
  const uint64_t timeout = kFirstTimeoutNs << path.tries++;
  path.due_ns = now + timeout + port_->env().random() % (timeout / 4);
  if (stage_ != Stage::kReady || free_sends_ == 0) return;
  const auto index = static_cast<uint32_t>(std::countr_zero(free_sends_));
  char* const buffer = memory_.address + size_t{kReceives} * kBufferBytes + size_t{index} * kMadBytes;
  PathQuestion question;
  question.transaction = path.transaction;
  question.source = source_of(path);
  question.destination = path.lid;
  question.pkey = port_->config().pkey;
  uint8_t mad[kMadBytes];
  path_mad_ask(question, mad);
  memcpy(buffer, mad, sizeof mad);
  ibv_sge sge = {reinterpret_cast<uint64_t>(buffer), kMadBytes, memory_.lkey};
  ibv_send_wr wr{};
  wr.wr_id = kSendBit | index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = qp_.ah;
  wr.wr.ud.remote_qpn = kGsiQpn;
  wr.wr.ud.remote_qkey = kGsiQkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_.qp, &wr, &bad) == 0) free_sends_ &= ~(1u << index);
}

bool PathRecords::post_receive(uint32_t index) {
  ibv_sge sge = {reinterpret_cast<uint64_t>(memory_.address + size_t{index} * kBufferBytes), kBufferBytes,
                 memory_.lkey};
  ibv_recv_wr wr{};
  wr.wr_id = index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_.qp, &wr, &bad) == 0;
}

void PathRecords::take_answers(uint64_t now) {
  constexpr int kBatch = 8;
  ibv_wc wcs[kBatch];
  int count = 0;
  bool broken = false;
  while ((count = ibv_poll_cq(qp_.cq, kBatch, wcs)) > 0) {
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<uint32_t>(wcs[i].wr_id);
      broken = broken || wcs[i].status != IBV_WC_SUCCESS;
      if ((wcs[i].wr_id & kSendBit) != 0) {
        free_sends_ |= 1u << index;
      } else if (wcs[i].status == IBV_WC_SUCCESS) {
        take_answer(wcs[i], now);
        broken = !post_receive(index) || broken;
      }
    }
  }
  // Another one is made when the next request is due.
  if (broken || count < 0) end();
}

void PathRecords::take_answer(const ibv_wc& wc, uint64_t now) {
  if (wc.byte_len < kGrhBytes || wc.byte_len > kBufferBytes) return port_->drop(Drop::kShape);
  // The buffer is the device's: what is checked is a copy.
  uint8_t mad[kMadBytes];
  const auto index = static_cast<uint32_t>(wc.wr_id);
  const size_t length = wc.byte_len - kGrhBytes;
  memcpy(mad, memory_.address + size_t{index} * kBufferBytes + kGrhBytes, length);
  PathAnswer answer;
  if (const Drop why = path_mad_read(mad, length, &answer); why != Drop::kNone) return port_->drop(why);
  if (wc.src_qp != kGsiQpn) return port_->drop(Drop::kForeign);
  for (Path*& place : asked_) {
    if (place == nullptr || place->transaction != answer.transaction) continue;
    if (mad_busy(answer.status)) return;  // as if it were lost
    Path& path = *place;
    if (answer.status == 0 && (answer.destination != path.lid || answer.source != source_of(path)))
      return port_->drop(Drop::kShape);
    place = nullptr;
    --asked_count_;
    answered_ = true;
    path.service_level = answer.service_level;
    path.state = answer.status == 0 ? Path::State::kKnown : Path::State::kFailed;
    path.due_ns = now + kQuietNs;
    if (answer.status == 0) return;
    PathTrouble trouble;
    trouble.why = PathTrouble::Why::kRefused;
    trouble.code = answer.status;
    trouble.manager = manager_;
    trouble.destination = path.lid;
    return report(trouble);
  }
  port_->drop(Drop::kForeign);  // of another time, or of a path that has its answer
}

/// Nobody waits any longer. Connections are made with the configured service level.
void PathRecords::give_up(const PathTrouble& trouble, uint64_t now) {
  quiet_until_ns_ = now + kQuietNs;
  for (Path*& path : asked_) {
    if (path != nullptr) path->state = Path::State::kUnknown;
    path = nullptr;
  }
  asked_count_ = 0;
  while (Path* const path = next_waiting()) path->state = Path::State::kUnknown;
  answered_ = true;
  report(trouble);
}

void PathRecords::report(const PathTrouble& trouble) {
  const Host& host = port_->host();
  if (reported_ || host.path_unknown == nullptr) return;
  reported_ = true;
  host.path_unknown(host.ctx, trouble);
}

// ---- texts

void path_trouble_text(const PathTrouble& trouble, char* out, size_t size) {
  switch (trouble.why) {
    case PathTrouble::Why::kNoManager:
      snprintf(out, size, "the port knows no subnet manager");
      return;
    case PathTrouble::Why::kQueuePair:
      snprintf(out, size, "the queue pair that asks the subnet administrator cannot be made (%s)",
               strerror(trouble.code));
      return;
    case PathTrouble::Why::kNoAnswer:
      snprintf(out, size, "the subnet administrator (lid %u) does not answer", trouble.manager);
      return;
    case PathTrouble::Why::kRefused:
      snprintf(out, size, "the subnet administrator (lid %u) refuses the path to lid %u with status 0x%04x",
               trouble.manager, trouble.destination, static_cast<unsigned>(trouble.code));
      return;
  }
}

void path_trouble_remedy(const PathTrouble& trouble, char* out, size_t size) {
  const bool privilege = trouble.code == EPERM || trouble.code == EACCES;
  switch (trouble.why) {
    case PathTrouble::Why::kNoManager:
      snprintf(out, size, "Start a subnet manager (\"sminfo\" shows it)");
      return;
    case PathTrouble::Why::kQueuePair:
      snprintf(out, size, "%s",
               privilege
                   ? "The kernel keeps its Q_Key for privileged users until root says \"rdma system set "
                     "privileged-qkey on\""
                   : "The device may be short of queue pairs or memory");
      return;
    case PathTrouble::Why::kNoAnswer:
    case PathTrouble::Why::kRefused:
      snprintf(out, size, "\"saquery -p\" shows what it tells others");
      return;
  }
}

}  // namespace bfo::engine
