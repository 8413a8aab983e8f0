// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events as programs fetch and acknowledge them.
#include "contrib/softhca/engine/async.h"

#include <unistd.h>

#include <cerrno>

#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca {
namespace {

enum class Scope { kQp, kCq, kSrq, kPort, kDevice };

Scope scope_of(uint32_t type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Scope::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Scope::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Scope::kSrq;
    case IBV_EVENT_DEVICE_FATAL:
    case kDeviceSpeedChange:
      return Scope::kDevice;
    default:
      return Scope::kPort;
  }
}

/// Fills `event`; false when the object it is about is gone.
bool deliver(const AsyncRecord& record, ibv_async_event& event) {
  Process& process = Process::instance();
  std::lock_guard<std::mutex> guard(process.objects_mutex());
  event.event_type = static_cast<ibv_event_type>(record.type);
  switch (scope_of(record.type)) {
    case Scope::kQp: {
      Qp* qp = process.qp(record.object);
      if (qp == nullptr || qp->basic()->qp_num != record.name) return false;
      event.element.qp = qp->basic();
      pthread_mutex_lock(&qp->basic()->mutex);
      ++qp->async_delivered;
      pthread_mutex_unlock(&qp->basic()->mutex);
      return true;
    }
    case Scope::kCq: {
      Cq* cq = process.cq(record.object);
      if (cq == nullptr) return false;
      event.element.cq = cq->basic();
      pthread_mutex_lock(&cq->basic()->mutex);
      ++cq->async_delivered;
      pthread_mutex_unlock(&cq->basic()->mutex);
      return true;
    }
    case Scope::kSrq: {
      Srq* srq = process.srq(record.object);
      if (srq == nullptr) return false;
      event.element.srq = &srq->base;
      pthread_mutex_lock(&srq->base.mutex);
      ++srq->async_delivered;
      pthread_mutex_unlock(&srq->base.mutex);
      return true;
    }
    case Scope::kPort:
      event.element.port_num = static_cast<int>(record.object);
      return true;
    case Scope::kDevice:
      event.element.port_num = 0;
      return true;
  }
  return false;
}

}  // namespace
}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT int ibv_get_async_event(ibv_context* base, ibv_async_event* event) {
  Context* context = of(base);
  for (;;) {
    char token;
    ssize_t bytes = read(base->async_fd, &token, 1);
    if (bytes < 0) return -1;
    if (bytes == 0) {
      errno = EIO;
      return -1;
    }
    AsyncRecord record;
    if (take_event(fabric(), *context->entry, record) && deliver(record, *event)) return 0;
  }
}

SOFTHCA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  auto acknowledge = [](pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed) {
    pthread_mutex_lock(&mutex);
    ++completed;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
  };
  switch (scope_of(event->event_type)) {
    case Scope::kQp: {
      ibv_qp* qp = event->element.qp;
      acknowledge(qp->mutex, qp->cond, qp->events_completed);
      break;
    }
    case Scope::kCq: {
      ibv_cq* cq = event->element.cq;
      acknowledge(cq->mutex, cq->cond, cq->async_events_completed);
      break;
    }
    case Scope::kSrq: {
      ibv_srq* srq = event->element.srq;
      acknowledge(srq->mutex, srq->cond, srq->events_completed);
      break;
    }
    default:
      break;
  }
}
