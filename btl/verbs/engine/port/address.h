// SPDX-License-Identifier: BSD-3-Clause
//
// address.h: the address handles of a port, one per destination. Making one may take a second and fail: on
// RoCE the kernel resolves the neighbour first, and a port in another VLAN never answers. So handles are made
// by control threads, all endpoints whose peers share a port share one, and a failure is kept: the same
// destination is asked for again only when its back-off is over.
//
// On Ethernet a handle holds the neighbour's MAC address as it was when the handle was made. That changes: a
// bond fails over, a gateway is replaced, a cable is put elsewhere. So a handle is made anew when the own
// port came up or moved, or when a destination has not answered for a while; the old one serves until then.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/port/own_port.h"

namespace bfo::engine {

class AddressCache;
class PathRecords;

/// One destination.
struct Address : Command {
  AddressCache* cache = nullptr;
  PortAddress to;            ///< LID, GID with its type and link layer count
  uint8_t path = 0;          ///< number of the path (qp.h)
  ibv_ah* handle = nullptr;  ///< once made, there is always one
  bool stale = false;        ///< to be made anew
  bool moved = false;        ///< to be made anew at once: the own address may not be there any more
  uint32_t unheard = 0;      ///< datagrams since the destination was heard
  uint32_t unanswered =
      0;                  ///< datagrams since it answered one: what it says by itself proves nothing of ours
  uint64_t made_ns = 0;   ///< when the handle was made
  int error = 0;          ///< errno of the last failure; 0: none
  uint32_t failures = 0;  ///< in a row
  uint64_t retry_ns = 0;  ///< not before, if it failed
  Address* older = nullptr;  ///< list of the cache
  bool awaits_path = false;  ///< the service level is being asked for
  bool asked = false;        ///< a command is under way, which owns what follows
  const VerbsApi* api = nullptr;
  ibv_pd* pd = nullptr;
  ibv_ah_attr attr{};
  ibv_ah* made = nullptr;
  ibv_ah* retired = nullptr;  ///< replaced by the handle: datagrams may be on their way with it
  int made_error = 0;
};

/// The destinations of a port. Progress function only.
class AddressCache {
 public:
  void open(OwnPort& port, PathRecords& paths, ControlMode mode, std::atomic<bool>* service_needed,
            ControlThreads& threads);
  /// The destination `to` over path number `path`, which stays until close(). nullptr when memory is short.
  Address* find(const PortAddress& to, uint8_t path = 0);
  /// The destination `to` over the path that `before` uses, while it is one and answers; else over the next
  /// that has its handle, or, while that is being made, as before. `before` may be nullptr.
  Address* way_to(const PortAddress& to, Address* before, uint64_t now);
  /// Its handle. nullptr while it is being made or has failed; asks for it when that is due, and the port
  /// is serviced when it is there. In inline mode it is there at once.
  ibv_ah* handle(Address& address, uint64_t now);
  /// All handles of Ethernet destinations are made anew, each when it is needed next.
  void renew();
  /// The same, without letting the old ones serve for a while: the own addresses are others.
  void renew_moved();
  /// The same for all destinations: the subnet has changed.
  void renew_all();
  /// Some path has its service level, or will not get one: what has waited for that goes on.
  void path_answered(uint64_t now);
  /// The destination shows life: asked again within kHeardNs if it has failed before. `answers`: to what was
  /// sent with the handle.
  void heard(Address& address, bool answers, uint64_t now);
  /// The own port came up: what failed before it is asked again.
  void forgive();
  ControlLane& lane() { return lane_; }
  /// Destroys all handles. False when a command does not end: its thread uses the device for ever.
  bool close();

  static constexpr uint64_t kHeardNs = 1'000'000'000;
  /// A handle is made anew after so many datagrams without any answer, but not more often than this.
  static constexpr uint32_t kUnanswered = 8;
  /// A destination that has several LIDs is sought at the next one after so many.
  static constexpr uint32_t kPathUnheard = 4;
  static constexpr uint64_t kRenewNs = 5'000'000'000;
  /// A handle serves at least so long before it is replaced, whatever happens.
  static constexpr uint64_t kServesNs = 1'000'000'000;

 private:
  static void create(Command& command);
  static void created(Command& command);
  static void destroy(Command& command);
  void failed(Address& address);
  void count_use(Address& address, uint64_t now);

  OwnPort* port_ = nullptr;
  PathRecords* paths_ = nullptr;  ///< of the same port
  ControlLane lane_;
  Address* newest_ = nullptr;
};

}  // namespace bfo::engine
