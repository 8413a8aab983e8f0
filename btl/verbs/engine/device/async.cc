// SPDX-License-Identifier: BSD-3-Clause
//
// async.cc: the event thread and its mailbox. See async.h.
#include "btl/verbs/engine/device/async.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace bfo::engine {
void EventBox::put(const EventNote& note) {
  const uint32_t at = written_.load(std::memory_order_relaxed);
  if (at - read_.load(std::memory_order_acquire) >= kSize) {
    overflow_.store(true, std::memory_order_release);
    return;
  }
  notes_[at % kSize] = note;
  written_.store(at + 1, std::memory_order_release);
}

bool EventBox::take(EventNote* note) {
  if (taken_ == written_.load(std::memory_order_acquire)) return false;
  *note = notes_[taken_ % kSize];
  ++taken_;
  read_.store(taken_, std::memory_order_release);
  return true;
}

bool read_event(const VerbsApi& api, ibv_context* context, uint64_t (*now_ns)(), EventBox* box) {
  ibv_async_event event{};
  if (api.get_async_event(context, &event) != 0) return false;
  EventNote note{event.event_type, 0, 0, now_ns()};
  const EventElement about = event_row(event.event_type).about;
  if (about == EventElement::kPort) note.port = static_cast<uint32_t>(event.element.port_num);
  // The object is certain to exist until the event is acknowledged: its destruction blocks until then.
  if (about == EventElement::kQueuePair) note.qpn = event.element.qp->qp_num;
  box->put(note);
  api.ack_async_event(&event);
  return true;
}

bool EventThread::add(ibv_context* context, EventBox* box) {
  const size_t at = count_.load();
  if (at == kMaxDevices) {
    errno = ENOSPC;
    return false;
  }
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) return false;
  devices_[at] = Watched{context, box};
  count_.store(at + 1);
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
  return true;
}

bool EventThread::start(const VerbsApi& api, uint64_t (*now_ns)(), void (*prepare)()) {
  api_ = &api;
  now_ns_ = now_ns;
  prepare_ = prepare;
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return false;
  stopping_ = false;
  sem_init(&prepared_, 0, 0);
  const int rc = start_thread(&thread_, run, this);
  while (rc == 0 && sem_wait(&prepared_) != 0) {  // EINTR
  }
  sem_destroy(&prepared_);
  if (rc != 0) {
    close(wake_fd_);
    wake_fd_ = -1;
    errno = rc;
    return false;
  }
  running_ = true;
  return true;
}

void* EventThread::run(void* self) {
  auto* const thread = static_cast<EventThread*>(self);
  thread->prepare_();
  sem_post(&thread->prepared_);
  thread->loop();
  return nullptr;
}

bool EventThread::serve(Served& served) {
  pthread_mutex_lock(&served_lock_);
  Served** const room = std::find(served_.begin(), served_.end(), nullptr);
  const bool taken = room != served_.end();
  if (taken) *room = &served;
  pthread_mutex_unlock(&served_lock_);
  if (taken && wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
  return taken;
}

void EventThread::forget(Served& served) {
  pthread_mutex_lock(&served_lock_);
  std::replace(served_.begin(), served_.end(), &served, static_cast<Served*>(nullptr));
  pthread_mutex_unlock(&served_lock_);
  // The thread may still wait for the descriptor: it must not see one that is reused for something else.
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

/// Reads the devices whose descriptors are ready. True when one reports nothing but an error.
bool EventThread::read_devices(const pollfd* fds, size_t count) {
  bool hung_up = false;
  for (size_t i = 0; i < count && !stopping_; ++i) {
    if (fds[i].revents == 0) continue;
    while (read_event(*api_, devices_[i].context, now_ns_, devices_[i].box)) {
    }
    if ((fds[i].revents & POLLIN) == 0) hung_up = true;
  }
  return hung_up;
}

/// All of them: one that has nothing to do costs a failed read.
void EventThread::serve_others() {
  more_ = false;
  pthread_mutex_lock(&served_lock_);
  for (Served* served : served_) {
    if (served != nullptr && !served->serve()) more_ = true;
  }
  pthread_mutex_unlock(&served_lock_);
}

void EventThread::loop() {
  constexpr int kPauseMs = 10;
  while (!stopping_) {
    std::array<pollfd, 1 + kMaxDevices + kMaxServed> fds;
    const size_t count = count_.load();
    size_t used = 0;
    fds[used++] = {wake_fd_, POLLIN, 0};
    for (size_t i = 0; i < count; ++i) fds[used++] = {devices_[i].context->async_fd, POLLIN, 0};
    pthread_mutex_lock(&served_lock_);
    for (const Served* served : served_) {
      if (served != nullptr) fds[used++] = {served->fd(), POLLIN, 0};
    }
    pthread_mutex_unlock(&served_lock_);
    if (poll(fds.data(), used, more_ ? kPauseMs : -1) < 0) continue;
    eventfd_t ignored;
    if ((fds[0].revents & POLLIN) != 0) eventfd_read(wake_fd_, &ignored);
    bool hung_up = read_devices(&fds[1], count);
    for (size_t i = 1 + count; i < used; ++i) {
      if (fds[i].revents != 0 && (fds[i].revents & POLLIN) == 0) hung_up = true;
    }
    if (stopping_) return;
    // Something that is ready all the time, or only reports an error, would make this loop spin.
    if (hung_up || more_) usleep(kPauseMs * 1000);
    serve_others();
  }
}

void EventThread::stop() {
  if (running_) {
    stopping_ = true;
    eventfd_write(wake_fd_, 1);
    pthread_join(thread_, nullptr);
    running_ = false;
  }
  if (wake_fd_ >= 0) close(wake_fd_);
  wake_fd_ = -1;
  count_ = 0;
  served_.fill(nullptr);
}

}  // namespace bfo::engine
