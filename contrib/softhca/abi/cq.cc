// SPDX-License-Identifier: BSD-3-Clause
//
// Completion queues and completion channels.
#include "contrib/softhca/engine/cq.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "contrib/softhca/abi/cq_ex.h"
#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {

Cq* new_cq(ibv_context* context, uint32_t entries, void* user, ibv_comp_channel* channel, int vector) {
  if (verb_fails(ControlVerb::kCreateCq, context, of_size(entries))) return nullptr;
  if (entries == 0 || entries > kMaxCqe || vector < 0 || vector >= context->num_comp_vectors) {
    errno = EINVAL;
    return nullptr;
  }
  if (is_dead(*of(context))) {
    errno = EIO;
    return nullptr;
  }
  Reservation reserved(context, ObjectKind::kCq);
  if (!reserved.taken()) return nullptr;
  CqEntry* entry = allocate_cq(fabric(), entries);
  if (entry == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* cq = new (std::nothrow) Cq();
  if (cq == nullptr) {
    free_cq(fabric(), *entry);
    errno = ENOMEM;
    return nullptr;
  }
  cq->entry = entry;
  cq->context = of(context);
  cq->base.context = context;
  cq->base.channel = channel;
  cq->base.cq_context = user;
  cq->base.handle = index_of(fabric(), *entry);
  cq->base.cqe = static_cast<int>(entry->capacity);
  pthread_mutex_init(&cq->base.mutex, nullptr);
  pthread_cond_init(&cq->base.cond, nullptr);
  entry->context = index_of(fabric(), *cq->context->entry);
  if (channel != nullptr) {
    cq->channel = of(channel);
    entry->wake = of(channel)->wake;
    std::lock_guard<std::mutex> guard(cq->channel->mutex);
    cq->channel->cqs.push_back(cq);
    ++channel->refcnt;
  }
  Process::instance().add(*cq);
  reserved.keep();
  return cq;
}

int op_poll_cq(ibv_cq* base, int count, ibv_wc* wc) {
  Cq* cq = of(base);
  Process& process = Process::instance();
  if (process.waiting()) [[unlikely]]
    process.progress_now();
  int got = poll_cq(process.fabric(), *cq->entry, count, wc);
  if (got == 0 && ++cq->empties >= process.spin()) [[unlikely]] {
    cq->empties = 0;
    process.idle();
  }
  return got;
}

int op_req_notify_cq(ibv_cq* cq, int solicited_only) {
  arm_cq(Process::instance().fabric(), *of(cq)->entry, solicited_only != 0);
  return 0;
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (verb_fails(ControlVerb::kCreateCompChannel, context)) return nullptr;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  auto* channel = new (std::nothrow) Channel();
  if (channel == nullptr) {
    close(ends[0]);
    close(ends[1]);
    errno = ENOMEM;
    return nullptr;
  }
  channel->base.context = context;
  channel->base.fd = ends[0];
  channel->wake_fd = ends[1];
  channel->wake = fabric().wake_name(ends[0]);
  return &channel->base;
}

SOFTHCA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  if (int why = verb_fault(ControlVerb::kDestroyCompChannel, base->context)) return why;
  Channel* channel = of(base);
  {
    std::lock_guard<std::mutex> guard(channel->mutex);
    if (!channel->cqs.empty()) return EBUSY;
  }
  close(base->fd);
  close(channel->wake_fd);
  fabric().forget_wake(channel->wake);
  delete channel;
  return 0;
}

SOFTHCA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                                     int vector) {
  if (entries <= 0) {
    errno = EINVAL;
    return nullptr;
  }
  Cq* cq = new_cq(context, static_cast<uint32_t>(entries), user, channel, vector);
  return cq == nullptr ? nullptr : cq->basic();
}

SOFTHCA_EXPORT int ibv_resize_cq(ibv_cq* cq, int entries) {
  if (entries <= 0 || static_cast<uint32_t>(entries) > kMaxCqe) return EINVAL;
  if (int why = verb_fault(ControlVerb::kResizeCq, cq->context, of_size(static_cast<uint64_t>(entries))))
    return why;
  int result = resize_cq(fabric(), *of(cq)->entry, static_cast<uint32_t>(entries));
  if (result == 0) cq->cqe = entries;
  return result;
}

SOFTHCA_EXPORT int ibv_destroy_cq(ibv_cq* base) {
  if (int why = verb_fault(ControlVerb::kDestroyCq, base->context)) return why;
  Cq* cq = of(base);
  if (cq->refs.load() != 0) return EBUSY;
  Process::instance().remove(*cq);
  if (cq->channel != nullptr) {
    std::lock_guard<std::mutex> guard(cq->channel->mutex);
    std::erase(cq->channel->cqs, cq);
    --cq->channel->base.refcnt;
  }
  // Events that were fetched must be acknowledged first.
  pthread_mutex_lock(&base->mutex);
  while (base->comp_events_completed != cq->comp_delivered ||
         base->async_events_completed != cq->async_delivered)
    pthread_cond_wait(&base->cond, &base->mutex);
  pthread_mutex_unlock(&base->mutex);
  if (cq->parent != nullptr) cq->parent->refs.fetch_sub(1);
  free_cq(fabric(), *cq->entry);
  object_destroyed(base->context, ObjectKind::kCq);
  delete cq;
  return 0;
}

SOFTHCA_EXPORT int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** out, void** user) {
  Channel* channel = of(base);
  for (;;) {
    char token;
    ssize_t bytes = read(base->fd, &token, 1);
    if (bytes < 0) return -1;
    if (bytes == 0) {
      errno = EIO;
      return -1;
    }
    std::lock_guard<std::mutex> guard(channel->mutex);
    for (size_t i = 0; i < channel->cqs.size(); ++i) {
      Cq* cq = channel->cqs[(channel->turn + i) % channel->cqs.size()];
      uint32_t raised = cq->entry->events_raised.load();
      while (raised != 0 && !cq->entry->events_raised.compare_exchange_weak(raised, raised - 1)) {
      }
      if (raised == 0) continue;
      channel->turn = (channel->turn + i + 1) % channel->cqs.size();
      pthread_mutex_lock(&cq->basic()->mutex);
      ++cq->comp_delivered;
      pthread_mutex_unlock(&cq->basic()->mutex);
      *out = cq->basic();
      *user = cq->base.cq_context;
      return 0;
    }
    // The CQ of this token is gone: wait for the next one.
  }
}

SOFTHCA_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
