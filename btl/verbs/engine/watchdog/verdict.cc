// SPDX-License-Identifier: BSD-3-Clause
//
// verdict.cc: see verdict.h.
#include "btl/verbs/engine/watchdog/verdict.h"

#include <algorithm>

#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/send/cm_send.h"

namespace bfo::engine {
namespace {

constexpr uint64_t kAskAgainMostNs = 64'000'000;
constexpr uint64_t kInquiryPauseNs = 32'000'000;  // a path that has just answered is not asked again before

/// The rails to the peer of `endpoint`, itself included.
struct Rails {
  Endpoint* at[kMostRails];
  int count;
  explicit Rails(const Endpoint& endpoint) {
    const Host& host = endpoint.port->host();
    count = host.rails(host.ctx, endpoint.peer.name, at, kMostRails);
  }
};

bool carries(const Endpoint& endpoint) {
  return endpoint.phase == Phase::kUp && !endpoint.ending().asked &&
         endpoint.port->state() == PortState::kActive;
}

uint64_t rail_name(const Endpoint& endpoint) {
  return connection_id(endpoint.port->nonce(), endpoint.peer.nonce);
}

/// What has moved over the current epoch: messages received, and own work completed.
uint64_t moved_so_far(const Endpoint& endpoint) {
  return endpoint.delivered + endpoint.ring().tail;
}

/// Something has completed since the last tick, or nothing is under way any more.
bool moves(const Endpoint& endpoint) {
  return endpoint.ring().head == endpoint.ring().tail || endpoint.ring().tail != endpoint.watch().seen_tail;
}

/// The oldest work of the rail; nullptr: there is none.
const SendSlot* oldest_work(const Endpoint& about) {
  const SendRing& ring = about.ring();
  return ring.head == ring.tail ? nullptr : &ring.slots[ring.tail & ring.mask];
}

bool proven(const Endpoint& about) {
  const Watch& watch = about.watch();
  return proven(watch.inquiry, watch.probe_failed(), about.phase == Phase::kSuspect,
                about.port->counts_arrivals());
}

void ask(Endpoint& about, uint64_t now) {
  Inquiry& inquiry = about.watch().inquiry;
  const Rails rails(about);
  bool anybody = false;
  for (int i = 0; i < rails.count; ++i) anybody = anybody || (rails.at[i] != &about && carries(*rails.at[i]));
  if (!anybody) {
    // What was heard over a rail that is not there any more proves nothing about the ones that are left.
    inquiry.on = inquiry.open = false;
    return;
  }
  if (!inquiry.on) {
    inquiry =
        Inquiry{.on = true, .first = inquiry.round + 1, .round = inquiry.round, .here = {}, .there = {}};
    about.watch().ask_again_ns = 0;
    const SendSlot* const oldest = oldest_work(about);
    const uint64_t bytes = oldest == nullptr ? 0 : oldest->length;
    const uint64_t queued = about.port->queued_bytes(now);
    inquiry.here.begin(bytes, queued, now);
    inquiry.there.begin(bytes, queued, now);
  }
  const uint64_t tick = about.port->config().tick_ns;
  if (!inquiry.open) {
    inquiry.open = true;
    ++inquiry.round;
    about.watch().ask_pause_ns = tick;
  } else {
    about.watch().ask_pause_ns = std::min(2 * about.watch().ask_pause_ns, kAskAgainMostNs);
  }
  about.watch().ask_again_ns = now + about.watch().ask_pause_ns;
  const bool request_end = !about.initiator && proven(about);
  const InquiryDatagram mail{rail_name(about), about.epoch, inquiry.round,
                             static_cast<uint8_t>(request_end ? kInquiryRequestEnd : 0), inquiry.count};
  for (int i = 0; i < rails.count; ++i) {
    Endpoint& over = *rails.at[i];
    if (&over == &about || carries(over)) cm_send_inquiry(over, PacketType::kQuestion, mail);
  }
}

void end_inquiry(Endpoint& about) {
  if (about.epochs() == nullptr) return;  // it never was up
  Inquiry& inquiry = about.watch().inquiry;
  inquiry.on = inquiry.open = false;
}

/// Ends a rail on the watchdog's word. What was heard about the others was heard over this one, too: they are
/// tried anew.
void end_rail(Endpoint& about, int32_t code, uint64_t evidence_ns) {
  {
    const Guard guard(about.port->lock());
    close_order_locked(about, about.epoch, BFO_CAUSE_PROBE_FAILED, code, 0, evidence_ns);
  }
  const Rails rails(about);
  for (int i = 0; i < rails.count; ++i) end_inquiry(*rails.at[i]);
}

bool another_carries(const Endpoint& about) {
  const Rails rails(about);
  for (int i = 0; i < rails.count; ++i) {
    if (rails.at[i] != &about && carries(*rails.at[i])) return true;
  }
  return false;
}

Endpoint* find_rail(const Endpoint& carrier, uint64_t name) {
  const Rails rails(carrier);
  for (int i = 0; i < rails.count; ++i) {
    if (rail_name(*rails.at[i]) == name) return rails.at[i];
  }
  return nullptr;
}

void on_question(Endpoint& carrier, Endpoint& about, const Packet& packet, uint64_t now) {
  if (packet.epoch > about.epoch) return;  // not heard of yet
  const bool current = packet.epoch == about.epoch;
  if ((packet.flags & kInquiryRequestEnd) != 0 &&
      granted(EndRequest{.decider = about.initiator,
                         .rail_up = current && is_up(about.phase),
                         .same_rail = &carrier == &about,
                         .carrier_up = carries(carrier) && packet.carrier == carrier.epoch,
                         .unmoved = packet.count == moved_so_far(about)})) {
    end_rail(about, kCodeAskedByPeer, about.port->env().now_ns());
  }
  const bool lives = current && has_epoch(about.phase) && !about.ending().asked;
  unsigned flags = lives ? unsigned{kInquiryAlive} : unsigned{kInquiryOver};
  if (carries(carrier)) flags |= kInquiryCarrier;
  cm_send_inquiry(carrier, PacketType::kAnswer,
                  InquiryDatagram{packet.rail, packet.epoch, packet.number, static_cast<uint8_t>(flags),
                                  moved_so_far(about), about.port->count_arrivals(now)});
}

void on_answer(Endpoint& carrier, Endpoint& about, const Packet& packet, uint64_t now) {
  if (packet.epoch != about.epoch || !is_up(about.phase)) return;
  // Between ports with several LIDs only the path that the rail takes proves that it works.
  const bool elsewhere = &carrier == &about && packet.path != path_number(about, about.epoch);
  if (elsewhere && (packet.flags & kInquiryOver) == 0) return;
  Inquiry& inquiry = about.watch().inquiry;
  const InquiryAnswer answer{packet.number, packet.flags, packet.count, &carrier == &about,
                             carries(carrier) && packet.carrier == carrier.epoch};
  switch (hear(inquiry, answer)) {
    case Hearing::kIgnore:
      return;
    case Hearing::kOver:
      close_order(about, about.epoch, BFO_CAUSE_PEER_DOWN, 0, 0);
      return;
    case Hearing::kAlive:
      // Whatever made the probe fail, the path works: its own work decides from now on.
      about.watch().forgive_probe();
      about.watch().ask_again_ns = now + kInquiryPauseNs;
      inquiry.on = inquiry.open = false;
      return;
    case Hearing::kRound:
      inquiry.open = false;
      inquiry.counted = true;
      inquiry.count = packet.count;
      const bool known = proven(about);
      ++inquiry.answered;
      if (inquiry.there.goes_on(packet.probe_target_address, now)) inquiry.answered = 0;
      if (!known && proven(about)) about.port->tick_soon();
      return;
  }
}

}  // namespace

void verdict_step(Endpoint& about, uint64_t now) {
  if (!is_up(about.phase) || about.ending().asked || about.watch().probe_done()) return;
  Inquiry& inquiry = about.watch().inquiry;
  if (inquiry.on && inquiry.here.goes_on(about.port->arrived(), now)) inquiry.answered = 0;
  const bool enough = proven(about);
  if (enough && about.initiator && !moves(about) && another_carries(about)) {
    end_rail(about, about.watch().probe_failed() ? about.watch().probe_status : 0,
             about.watch().suspected_ns);
    return;
  }
  const bool waits = inquiry.open || !inquiry.on;
  if (!waits || now >= about.watch().ask_again_ns) ask(about, now);
  about.port->count_arrivals(now);
}

void verdict_probe_failed(Endpoint& about, uint64_t now) {
  // One more answer at least shall come after the probe has failed.
  about.watch().inquiry.answered = std::min(about.watch().inquiry.answered, kRoundsWithProbe - 1);
  if (about.watch().inquiry.on && !about.watch().inquiry.open) ask(about, now);
}

void verdict_packet(Endpoint& carrier, const Packet& packet, uint64_t now) {
  Endpoint* const about = find_rail(carrier, packet.rail);
  if (about == nullptr) {
    carrier.port->drop(Drop::kStale, &packet);
  } else if (packet.type == static_cast<uint8_t>(PacketType::kQuestion)) {
    on_question(carrier, *about, packet, now);
  } else {
    on_answer(carrier, *about, packet, now);
  }
}

void verdict_clear(Endpoint& about) {
  if (about.epochs() == nullptr) return;
  end_inquiry(about);
  about.watch().ask_again_ns = about.watch().suspected_ns = 0;
}

}  // namespace bfo::engine
