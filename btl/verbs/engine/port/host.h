// SPDX-License-Identifier: BSD-3-Clause
//
// host.h: what the engine asks of the component around it, and tells it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/base/frag.h"
#include "btl/verbs/engine/datagram/packet_text.h"
#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/port_rate.h"
#include "btl/verbs/engine/device/stock.h"
#include "common/failover_btl.h"

namespace bfo::engine {

struct Endpoint;
struct PathTrouble;

/// Which process of a host reads what a port has counted of lost packets.
enum class LossTurn : uint8_t {
  kOthers,
  kTaken,  ///< this one from now on
  kKept,   ///< this one, as it did last
};

enum class LossStage : uint8_t { kBegins, kGoesOn, kIsOver };

/// A port loses packets, and its rails go on. Numbers: of the last seconds in which it did so; kIsOver: in
/// which it did not. kGoesOn: of those that have just ended, or 0.
struct PortLoss {
  LossStage stage;
  bool in;           ///< packets to the port; else those that it has sent, or their acknowledgments
  uint64_t signs;    ///< lost packets, as the device sees them
  uint64_t packets;  ///< of so many
  uint64_t ns;       ///< in so long
  uint64_t now;
};

/// Calls from the engine to the glue, all from Port::poll(), never under the port's lock, never from inside a
/// call into the engine.
struct Host {
  void* ctx;
  /// An active message: `length` bytes at `data`, valid during the call.
  void (*deliver)(void* ctx, Endpoint& endpoint, uint8_t tag, char* data, uint32_t length);
  /// The one end of a fragment: BFO_RC_*. The host owns it again.
  void (*frag_done)(void* ctx, Endpoint& endpoint, Frag* frag, int status);
  /// The end in failure of a payload that was sent from a slot.
  void (*payload_failed)(void* ctx, Endpoint& endpoint, uint8_t tag, const void* data, uint32_t length,
                         int status);
  void (*rail_up)(void* ctx, Endpoint& endpoint, const bfo_rail_event_t& event);
  void (*rail_suspect)(void* ctx, Endpoint& endpoint, const bfo_rail_event_t& event);
  void (*rail_down)(void* ctx, Endpoint& endpoint, const bfo_rail_event_t& event);
  void (*rail_closed)(void* ctx, Endpoint& endpoint, const bfo_rail_event_t& event, bfo_fence_result_t result,
                      uint64_t delivered);
  /// After a rail_down whose cause was WR_FLUSH_ERR, before any fragment comes back: what is behind it, or
  /// that nobody can tell. rail_closed has what became known later. May be nullptr.
  void (*cause_known)(void* ctx, Endpoint& endpoint, const bfo_rail_event_t& event);
  void (*gap_lost)(void* ctx, Endpoint& endpoint, const bfo_rail_name_t& name, uint64_t lost);
  /// The port is active with another rate than it had when it was active last. `event`: enum ibv_event_type
  /// after which it was read. May be nullptr.
  void (*rate_changed)(void* ctx, const PortRate& before, const PortRate& now, int32_t event);
  /// May this process read, for its host, what the port has counted of lost packets? Asked once a second.
  /// nullptr: it is alone.
  LossTurn (*loss_turn)(void* ctx, uint64_t now);
  /// After kTaken: has the process that read before told of a loss, of packets to the port if `in`, and not
  /// of its end? This one does, then. May be nullptr: no.
  bool (*loss_goes_on)(void* ctx, bool in);
  /// The port loses packets, or does not any more. kGoesOn: about once a second. May be nullptr.
  void (*packet_loss)(void* ctx, const PortLoss& loss);
  /// The endpoint of a process that sent a valid handshake but is not known to this port yet, or nullptr to
  /// drop the packet.
  Endpoint* (*find_peer)(void* ctx, uint64_t peer_name);
  /// The rails to the process `peer_name` in any phase, at most `room` of them, into `out`; their number. The
  /// engine has room for kMostRails.
  int (*rails)(void* ctx, uint64_t peer_name, Endpoint** out, int room);
  /// True when another rail to the same process is up.
  bool (*other_rail_up)(void* ctx, Endpoint& endpoint);
  /// Begin to connect the other rails of the endpoint's peer: this one does not answer.
  void (*connect_other_rails)(void* ctx, Endpoint& endpoint);
  /// A rail that is not up: the process behind it shows life (and is busy outside MPI), or does not any more.
  /// Called on changes only; nothing is known at first.
  void (*peer_answers)(void* ctx, Endpoint& endpoint, bool answers);
  /// Makes what the port's messages need besides the connection, if it is not there. False with errno. May be
  /// nullptr.
  bool (*prepare)(void* ctx);
  /// What of the port's Stock prepare() would take. May be nullptr.
  StockNeed (*prepare_needs)(void* ctx);
  /// The endpoint's rail cannot be made for now: see Endpoint::shortage(). Once per series of failures. May
  /// be nullptr.
  void (*rail_missing)(void* ctx, Endpoint& endpoint);
  /// A handshake has moved, and the process comes by seldom: if it stays in progress for `ns` (Stay in
  /// run_time.h), and polls on while connecting(), the next steps need not wait for its next calls. May be
  /// nullptr.
  void (*comes_seldom)(void* ctx, uint64_t ns);
  /// The addresses that the endpoint's peer has published for its port, into `out`, which has room for
  /// kMaxGids; their number. May be nullptr.
  size_t (*peer_gids)(void* ctx, Endpoint& endpoint, PublishedGid* out);
  /// The subnet administrator's word on a path is not to be had: the configured service level is used. Once
  /// per port. May be nullptr.
  void (*path_unknown)(void* ctx, const PathTrouble& trouble);
  /// A datagram of the connection manager goes to the endpoint's peer (`out`), or came from there and is
  /// believed. nullptr: nobody asks.
  void (*packet)(void* ctx, Endpoint& endpoint, const Packet& packet, bool out);
  /// A control thread could not be started, with this errno. May be nullptr.
  void (*thread_missing)(void* ctx, int error);
  /// Something was dropped, or put off until it comes again. nullptr: nobody asks.
  void (*dropped)(void* ctx, const DropNote& note);
};

/// More rails to one process are not looked at.
inline constexpr int kMostRails = 16;

}  // namespace bfo::engine
