// SPDX-License-Identifier: BSD-3-Clause
//
// async.h: asynchronous events. One thread reads every device's event descriptor, copies what matters,
// acknowledges, and raises a flag; the progress function takes the notes and acts. Besides that it serves
// what answers for a process that is not inside MPI (the heartbeats of the ports). It sleeps in poll(2)
// otherwise, touches no other queue pair, calls nobody back, and holds no lock the data path uses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

#include "btl/verbs/engine/base/thread.h"
#include "btl/verbs/engine/device/port_rate.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// What the event thread serves besides events. Not by virtual functions: the components have no run-time
/// type information, and their tests have.
class Served {
 public:
  /// Readable when serve() has something to do; -1: never.
  int fd() const { return fd_(*this); }
  /// False: there is more to do; it is called again after a pause.
  bool serve() { return serve_(*this); }

 protected:
  using Fd = int (*)(const Served& self);
  using Serve = bool (*)(Served& self);
  Served(Fd fd, Serve serve) : fd_(fd), serve_(serve) {}
  ~Served() = default;

 private:
  Fd fd_;
  Serve serve_;
};

/// What the progress function does about an event.
enum class EventReaction : uint8_t {
  kIgnore,       ///< information only
  kCloseRail,    ///< this queue pair is unusable: close its epoch
  kSuspectRail,  ///< the path of this queue pair may be dead: another rail is preferred, and it is tested
  kLastReceive,  ///< this queue pair's last receive is on the completion queue: the drain may go on
  kQueueDead,    ///< a completion or receive queue is gone: every rail of every port using it closes, and the
                 ///< port is unusable
  kPortDown,     ///< every rail of *this* port closes at once; reconnection waits for kPortUp
  kPortUp,       ///< read the port again, start reconnecting
  kPortRefresh,  ///< read the port again; close its rails if its address changed
  kMoreReceives,  ///< receive buffers run short: make more
  kDeviceDead,    ///< every rail of every port of the device closes for good
};

/// What an event is about, and so which member of its `element` is set (ibv_get_async_event(3)).
enum class EventElement : uint8_t { kQueuePair, kPort, kOther };  // kOther: a queue, or the device

struct EventRow {
  int type;  ///< enum ibv_event_type
  const char* name;
  EventElement about;
  EventReaction reaction;
};

/// Row N is that of value N; the tests walk them.
inline constexpr std::array kEventRows = {
    EventRow{IBV_EVENT_CQ_ERR, "IBV_EVENT_CQ_ERR", EventElement::kOther, EventReaction::kQueueDead},
    EventRow{IBV_EVENT_QP_FATAL, "IBV_EVENT_QP_FATAL", EventElement::kQueuePair, EventReaction::kCloseRail},
    EventRow{IBV_EVENT_QP_REQ_ERR, "IBV_EVENT_QP_REQ_ERR", EventElement::kQueuePair,
             EventReaction::kCloseRail},
    EventRow{IBV_EVENT_QP_ACCESS_ERR, "IBV_EVENT_QP_ACCESS_ERR", EventElement::kQueuePair,
             EventReaction::kCloseRail},
    EventRow{IBV_EVENT_COMM_EST, "IBV_EVENT_COMM_EST", EventElement::kQueuePair,
             EventReaction::kIgnore},  // the first receive itself says so
    EventRow{IBV_EVENT_SQ_DRAINED, "IBV_EVENT_SQ_DRAINED", EventElement::kQueuePair,
             EventReaction::kIgnore},  // SQD is not used
    EventRow{IBV_EVENT_PATH_MIG, "IBV_EVENT_PATH_MIG", EventElement::kQueuePair,
             EventReaction::kIgnore},  // automatic path migration is not used
    EventRow{IBV_EVENT_PATH_MIG_ERR, "IBV_EVENT_PATH_MIG_ERR", EventElement::kQueuePair,
             EventReaction::kSuspectRail},  // the peer's adapter asked to leave a path that failed for it
    EventRow{IBV_EVENT_DEVICE_FATAL, "IBV_EVENT_DEVICE_FATAL", EventElement::kOther,
             EventReaction::kDeviceDead},
    EventRow{IBV_EVENT_PORT_ACTIVE, "IBV_EVENT_PORT_ACTIVE", EventElement::kPort, EventReaction::kPortUp},
    EventRow{IBV_EVENT_PORT_ERR, "IBV_EVENT_PORT_ERR", EventElement::kPort, EventReaction::kPortDown},
    EventRow{IBV_EVENT_LID_CHANGE, "IBV_EVENT_LID_CHANGE", EventElement::kPort, EventReaction::kPortRefresh},
    EventRow{IBV_EVENT_PKEY_CHANGE, "IBV_EVENT_PKEY_CHANGE", EventElement::kPort,
             EventReaction::kPortRefresh},
    EventRow{IBV_EVENT_SM_CHANGE, "IBV_EVENT_SM_CHANGE", EventElement::kPort, EventReaction::kPortRefresh},
    EventRow{IBV_EVENT_SRQ_ERR, "IBV_EVENT_SRQ_ERR", EventElement::kOther, EventReaction::kQueueDead},
    EventRow{IBV_EVENT_SRQ_LIMIT_REACHED, "IBV_EVENT_SRQ_LIMIT_REACHED", EventElement::kOther,
             EventReaction::kMoreReceives},
    EventRow{IBV_EVENT_QP_LAST_WQE_REACHED, "IBV_EVENT_QP_LAST_WQE_REACHED", EventElement::kQueuePair,
             EventReaction::kLastReceive},
    EventRow{IBV_EVENT_CLIENT_REREGISTER, "IBV_EVENT_CLIENT_REREGISTER", EventElement::kPort,
             EventReaction::kPortRefresh},
    EventRow{IBV_EVENT_GID_CHANGE, "IBV_EVENT_GID_CHANGE", EventElement::kPort, EventReaction::kPortRefresh},
    EventRow{IBV_EVENT_WQ_FATAL, "IBV_EVENT_WQ_FATAL", EventElement::kOther,
             EventReaction::kIgnore},  // work queues are not used
    EventRow{kDeviceSpeedChange, "IBV_EVENT_DEVICE_SPEED_CHANGE", EventElement::kOther,
             EventReaction::kPortRefresh},
};
static_assert(
    [] {
      for (size_t i = 0; i < kEventRows.size(); ++i)
        if (kEventRows[i].type != static_cast<int>(i)) return false;
      return true;
    }(),
    "event_row() takes row N for value N");

/// Of a libibverbs that is newer than this table. Which member of `element` it sets is not known. What it
/// says of a port is seen when that is read, and what it says of a queue pair by the errors of its work.
inline constexpr EventRow kUnknownEvent{-1, "unknown event", EventElement::kOther,
                                        EventReaction::kPortRefresh};

constexpr const EventRow& event_row(int type) {
  return type >= 0 && static_cast<size_t>(type) < kEventRows.size() ? kEventRows[static_cast<size_t>(type)]
                                                                    : kUnknownEvent;
}
constexpr EventReaction event_reaction(int type) {
  return event_row(type).reaction;
}
/// "IBV_EVENT_PORT_ERR". Static string.
constexpr const char* event_name(int type) {
  return event_row(type).name;
}

/// An event as the progress function sees it: plain values, no pointer into an object that may be gone.
struct EventNote {
  int32_t type;      ///< enum ibv_event_type
  uint32_t port;     ///< port events: port number, counted from 1; 0 otherwise
  uint64_t qpn;      ///< queue pair events: its number; 0 otherwise
  uint64_t when_ns;  ///< CLOCK_MONOTONIC when it was read
};

/// A bounded mailbox from the event thread to the progress function: one writer, any number of readers under
/// the readers' own lock.
class EventBox {
 public:
  /// True without a lock when there is nothing to take: one relaxed load, for the data path.
  bool empty() const { return taken_ == written_.load(std::memory_order_acquire); }
  /// Takes the oldest note. Readers serialise among themselves.
  bool take(EventNote* note);
  /// Event thread. A full box drops nothing that matters: the note is merged into `overflow`, which makes the
  /// reader re-examine everything.
  void put(const EventNote& note);
  /// True once after notes were lost: the reader must query every port and every queue pair itself.
  bool take_overflow() { return overflow_.exchange(false, std::memory_order_acq_rel); }
  bool overflowed() const { return overflow_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kSize = 1024;
  std::array<EventNote, kSize> notes_;
  std::atomic<uint32_t> written_{0};
  uint32_t taken_ = 0;
  std::atomic<uint32_t> read_{0};
  std::atomic<bool> overflow_{false};
};

/// Reads one waiting event of `context` into `box` and acknowledges it. False when none is waiting. The
/// descriptor must be non-blocking.
bool read_event(const VerbsApi& api, ibv_context* context, uint64_t (*now_ns)(), EventBox* box);

/// The event thread: poll(2) over the descriptors of all open devices and of what it serves. All signals are
/// blocked in it.
class EventThread {
 public:
  /// Starts the thread. False with errno when that is impossible. `prepare` is what the thread does first; it
  /// has ended when start() returns. By default the thread takes its heap, which calls munmap: Open MPI
  /// writes its hooks into the code of munmap when the first registration cache is made, and a thread that is
  /// inside munmap then crashes.
  bool start(const VerbsApi& api, uint64_t (*now_ns)(), void (*prepare)() = make_thread_heap);
  /// Adds a device before or after start(). Its descriptor becomes non-blocking. At most kMaxDevices.
  bool add(ibv_context* context, EventBox* box);
  /// Serves `served` from now on. At most kMaxServed; false beyond that.
  bool serve(Served& served);
  /// When it returns, the thread does not touch `served` any more. No-op for what is not served.
  void forget(Served& served);
  /// Stops and joins; afterwards no event is read, no box is written and nothing is served. Idempotent.
  void stop();

 private:
  static constexpr size_t kMaxDevices = 64;
  static constexpr size_t kMaxServed = 64;
  struct Watched {
    ibv_context* context;
    EventBox* box;
  };
  static void* run(void* self);
  void loop();
  bool read_devices(const pollfd* fds, size_t count);
  void serve_others();

  const VerbsApi* api_ = nullptr;
  uint64_t (*now_ns_)() = nullptr;
  void (*prepare_)() = nullptr;
  sem_t prepared_{};
  std::array<Watched, kMaxDevices> devices_{};
  std::atomic<size_t> count_{0};
  /// The thread holds the lock while it serves, forget() while it removes: never on the data path.
  pthread_mutex_t served_lock_ = PTHREAD_MUTEX_INITIALIZER;
  std::array<Served*, kMaxServed> served_{};
  bool more_ = false;  ///< something wants to be served again after a pause; the thread's own
  int wake_fd_ = -1;
  pthread_t thread_{};
  bool running_ = false;
  std::atomic<bool> stopping_{false};
};

}  // namespace bfo::engine
