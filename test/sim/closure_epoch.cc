// SPDX-License-Identifier: BSD-3-Clause
//
// closure_epoch.cc: model M2: the handshake, and what must hold in every state and at rest. Side 0 initiates.
// The functions do what those of the same name in cm.cc and attempt.cc do.
//
// H1..H23: contrib/doc/hazards.md
#include "test/sim/closure_epoch.h"

#include <algorithm>

namespace bfo::closure::epoch {

namespace {
constexpr uint8_t bit(int n) {
  return static_cast<uint8_t>(1u << n);
}
}  // namespace

State Epochs::initial() const {
  State s;
  std::memset(&s, 0, sizeof s);
  for (int x = 0; x < 2; ++x) {
    s.half[x].connect_wanted = 1;
    if (!bounds_.message[x]) s.half[x].message = kNothing;
  }
  if (!bounds_.write) s.half[0].write = kNothing;
  s.half[1].write = kNothing;
  if (off(Without::kNonce)) s.packets[0][static_cast<int>(PacketType::kReply)] = bit(1);
  return s;
}

std::string Epochs::describe(const State& s) const {
  static constexpr const char* kPhases[] = {"idle",    "soliciting", "making",  "requesting", "binding",
                                            "probing", "replied",    "up",      "suspect",    "draining",
                                            "closed",  "gone",       "unusable"};
  std::string t;
  for (int x = 0; x < 2; ++x) {
    const Half& h = s.half[x];
    t += std::string(x ? "; B " : "A ") + (h.dead ? "DEAD " : "") + kPhases[static_cast<int>(h.phase)] +
         " epoch " + std::to_string(h.epoch) + " qp " + std::to_string(h.qp) + (h.asked ? " asked" : "") +
         " view " + std::to_string(h.view) + " of " + std::to_string(h.name) + " peer closed " +
         std::to_string(h.peer_closed) + " message " + std::to_string(h.message) + " got " +
         std::to_string(h.got) + " write " + std::to_string(h.write) + (h.lost ? " lost" : "");
    for (const Work& w : s.work[x])
      if (w.used)
        t += std::string(w.write ? " w" : " m") + std::to_string(w.epoch) + std::to_string(w.where) +
             std::to_string(w.polled) + std::to_string(w.ended);
  }
  return t + (s.other ? "; other rail up" : "");
}

void Epochs::go(const State& from, std::vector<Next>& out, const char* what, int side, bool fault) {
  settle();
  judge_state(c_);
  if (std::memcmp(&c_, &from, sizeof c_) != 0) out.push_back(Next{c_, what, side, fault});
}

void Epochs::successors(const State& from, std::vector<Next>& out) {
  for (int x = 0; x < 2; ++x) {
    traffic(from, out, x);
    if (from.half[x].dead) continue;
    commands(from, out, x);
    handshake(from, out, x);
    drain(from, out, x);
    notices(from, out, x);
    faults(from, out, x);
  }
  if (bounds_.other_rail && !from.other)
    step(from, out, "the other rail comes up", 0, [this](Half&) { c_.other = 1; });
  for (const Next& n : out)
    if (!n.fault) return;
  judge_rest(from);
}

// ---- what must hold

void Epochs::judge_state(const State& s) {
  for (int x = 0; x < 2; ++x) {
    const Half& h = s.half[x];
    const Half& peer = s.half[1 - x];
    // The peer is believed closed: it takes nothing of that epoch any more (I3; M1's closed sides).
    if (!h.dead && !peer.dead && peer.epoch <= h.peer_closed && (peer.qp == kReady || peer.qp == kError))
      broken("the peer's half was believed closed and is not");
    if (!h.dead && !peer.dead && engine::is_up(h.phase) && engine::is_up(peer.phase) && h.view == kUp &&
        peer.view == kUp && h.epoch != peer.epoch && !h.asked && !peer.asked &&
        (h.qp != kReady || peer.qp != kReady))
      broken("both sides are up without a connection");
  }
}

/// Nothing but a fault can happen: is everything where it belongs?
void Epochs::judge_rest(const State& s) {
  bool whole = true;
  for (const Half& h : s.half) whole = whole && !h.dead && !h.device_dead;
  for (int x = 0; x < 2; ++x) {
    const Half& h = s.half[x];
    const Half& peer = s.half[1 - x];
    if (h.dead) continue;
    if (h.phase == Phase::kDraining) broken("a drain without end");
    if (h.message < kDone) broken("a message has no end");
    if (h.message == kFailed && whole && !h.lost) broken("a message failed although nothing was lost");
    if (h.message == kDone && !peer.dead && !peer.got && !peer.lost && (s.other || !peer.device_dead))
      broken("a message was lost in silence");
    if (h.write == kAccepted || h.write == kPosted) broken("a write has no end");
    if (peer.dead) continue;
    if (engine::is_up(h.phase) && s.other && !engine::is_up(peer.phase)) broken("half a rail stays up");
    if (whole && !h.lost && !engine::is_up(h.phase)) broken("a healthy rail does not come back");
    // What is dead here and closed there is known to be closed there (H5, I16).
    const int waits = off(Without::kNeverUp) ? h.dead_epoch : h.up_epoch;
    const bool over = peer.epoch > waits || peer.qp == kNoQp;
    if (s.other && !engine::is_up(h.phase) && h.dead_epoch == h.name && over && h.peer_closed < waits)
      broken("the peer has closed the epoch, and this side never learns it");
  }
}

// ---- handshake

void Epochs::send(int x, PacketType type, int epoch) {
  const Half& h = c_.half[x];
  if (h.port_down || h.device_dead) return;
  uint8_t& set = c_.packets[1 - x][static_cast<int>(type)];
  set = static_cast<uint8_t>(set | bit(epoch));
}

void Epochs::attempt_begin(Half& h, int epoch) {
  h.epoch = static_cast<uint8_t>(epoch);
  h.asked = h.announced = h.acked = h.delivered = 0;
  h.marker_posted = h.handed_back = h.last_receive = h.overdue = h.wait_over = h.seen_empty = h.foreign = 0;
}

void Epochs::start(int x) {
  Half& h = c_.half[x];
  if (x == 1) {
    h.phase = Phase::kSoliciting;
    return send(x, PacketType::kSolicit, h.epoch);
  }
  if (h.epoch + 1 == kEpochs) return broken("epochs without end");
  attempt_begin(h, h.epoch + 1);
  h.busy = kPrepares;
  h.phase = Phase::kMaking;
}

/// A control thread has made the queue pairs, or connected the initiator's.
void Epochs::prepared(int x) {
  Half& h = c_.half[x];
  h.busy = kFree;
  if (h.asked) return attempt_drop(h);
  const bool makes = h.phase == Phase::kMaking;
  h.qp = x == 0 && makes ? kInit : kReady;
  if (!makes) {
    h.phase = Phase::kProbing;
    return;
  }
  h.phase = x == 0 ? Phase::kRequesting : Phase::kReplied;
  send(x, x == 0 ? PacketType::kRequest : PacketType::kReply, h.epoch);
}

/// The command that is under way destroys what it has made.
void Epochs::attempt_drop(Half& h) {
  if (h.busy == kPrepares) h.busy = kUnwanted;
  h.qp = kNoQp;
  h.asked = 0;
  h.phase = Phase::kClosed;
}

void Epochs::accept(int x, int epoch) {
  Half& h = c_.half[x];
  attempt_begin(h, epoch);
  h.connect_wanted = 1;
  h.busy = kPrepares;
  h.phase = Phase::kMaking;
}

void Epochs::go_up(int x) {
  Half& h = c_.half[x];
  if (h.foreign) broken("connected with a stranger");
  h.ever_up = h.announced = h.connect_wanted = 1;
  h.phase = Phase::kUp;
  rail_up(x, h.epoch);
  if (h.message == kAccepted) post(x, false);
}

void Epochs::packet(int x, PacketType type, int epoch) {
  Half& h = c_.half[x];
  const Phase before = h.phase;
  Answer a = engine::answer(type, x == 0, h.phase, static_cast<uint32_t>(epoch), h.epoch);
  if (a == Answer::kEndEpoch && type == PacketType::kRequest && off(Without::kRequestEndsEpoch)) return;
  if (a == Answer::kEndEpoch && type == PacketType::kSolicit && off(Without::kSolicitEndsEpoch)) return;
  if (a == Answer::kReadyAgain && off(Without::kReadyAgain)) return;
  if (off(Without::kReplyAfterFence) && before == Phase::kDraining && type == PacketType::kRequest &&
      epoch > h.epoch)
    a = Answer::kAccept;
  switch (a) {
    case Answer::kDrop:
      return;
    case Answer::kStart:
      if (h.busy != kFree) return;  // it solicits again
      h.epoch = std::max(h.epoch, static_cast<uint8_t>(epoch));
      if (h.phase == Phase::kIdle) h.connect_wanted = 1;
      if (h.connect_wanted) start(x);
      return;
    case Answer::kStartOver:
      attempt_drop(h);
      h.epoch = std::max(h.epoch, static_cast<uint8_t>(epoch));
      return;
    case Answer::kRequestAgain:
      return send(x, PacketType::kRequest, h.epoch);
    case Answer::kSolicit:
      return send(x, PacketType::kSolicit, h.epoch);
    case Answer::kAccept:
      return h.busy == kFree ? accept(x, epoch) : void();  // REQ comes again
    case Answer::kReplyAgain:
      return send(x, PacketType::kReply, h.epoch);
    case Answer::kProbe:
      h.busy = kPrepares;
      h.phase = Phase::kBinding;
      h.foreign = off(Without::kNonce) && !(c_.half[1].qp == kReady && c_.half[1].epoch == epoch);
      return;
    case Answer::kReadyAgain:
      return send(x, PacketType::kReady, h.epoch);
    case Answer::kEstablish:
      if (!h.announced) go_up(x);
      return;
    case Answer::kEndEpoch:
      return end_epoch(h, h.epoch);
    case Answer::kLeave:
      return;  // model M4
  }
}

/// Fragments wait for a rail that has never been up, and there is evidence that it will not come, or another
/// way.
void Epochs::give_up(int x) {
  Half& h = c_.half[x];
  if (h.phase == Phase::kReplied) {
    h.announced = 1;
    rail_up(x, h.epoch);
    return end_epoch(h, h.epoch);
  }
  if (engine::is_attempt(h.phase)) attempt_drop(h);
  h.connect_wanted = !h.device_dead;
  h.announced = 0;
  rail_down(x, h.epoch);
  return_queued(h);
  const bool again = h.any_closed && h.closed_epoch == h.epoch && !off(Without::kCountTwice);
  rail_closed(x, h.epoch, true, again ? h.closed_delivered : 0);
}

void Epochs::commands(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  if (h.busy == kUnwanted)
    step(from, out, "the unwanted queue pairs are gone", x, [](Half& c) { c.busy = kFree; });
  if (h.busy == kPrepares) step(from, out, "the queue pairs are prepared", x, [&](Half&) { prepared(x); });
}

void Epochs::handshake(const State& from, std::vector<Next>& out, int x) {
  const Half& h = from.half[x];
  const Half& peer = from.half[1 - x];
  const bool active = !h.port_down && !h.device_dead;
  if (active)
    for (int type = 1; type <= static_cast<int>(PacketType::kReady); ++type)
      for (int e = 0; e < kEpochs; ++e)
        if (from.packets[x][type] >> e & 1)
          step(from, out, "a packet arrives", x, [&](Half&) { packet(x, static_cast<PacketType>(type), e); });
  const bool between = h.phase == Phase::kIdle || h.phase == Phase::kClosed;
  const bool early = off(Without::kRequestAfterFence) && h.phase == Phase::kDraining && x == 0;
  if (active && h.connect_wanted && h.busy == kFree && (between || early))
    step(from, out, "starts", x, [&](Half&) { start(x); });
  if (active && !off(Without::kRepeat)) {
    if (h.phase == Phase::kSoliciting)
      step(from, out, "SOLICIT again", x, [&](Half&) { send(x, PacketType::kSolicit, h.epoch); });
    if (h.phase == Phase::kRequesting)
      step(from, out, "REQ again", x, [&](Half&) { send(x, PacketType::kRequest, h.epoch); });
    if (h.phase == Phase::kReplied)
      step(from, out, "REP again", x, [&](Half&) { send(x, PacketType::kReply, h.epoch); });
  }
  if (h.phase == Phase::kProbing) {
    const bool answered = h.foreign || (peer.qp == kReady && peer.epoch == h.epoch && !peer.dead);
    if (answered)
      step(from, out, "the probe succeeds", x, [&](Half& c) {
        send(x, PacketType::kReady, c.epoch);
        go_up(x);
      });
    if (!answered || from.faults < bounds_.faults)
      step(
          from, out, answered ? "THE PROBE FAILS" : "the probe fails", x,
          [&](Half& c) {
            if (answered) ++c_.faults;
            attempt_drop(c);
          },
          answered);
  }
  if (h.asked && engine::is_attempt(h.phase))
    step(from, out, "gives the attempt up", x, [&](Half& c) { attempt_drop(c); });
  const bool hopeless = !active || peer.dead || peer.device_dead || from.other;
  const bool trying = h.phase != Phase::kIdle || h.connect_wanted || !off(Without::kQueuedBeforeStart);
  if (h.message == kAccepted && !h.ever_up && trying && !(h.asked && h.phase == Phase::kReplied) &&
      hopeless && h.phase != Phase::kDraining && h.phase != Phase::kUnusable)
    step(from, out, "gives the rail up", x, [&](Half&) { give_up(x); });
}

}  // namespace bfo::closure::epoch
