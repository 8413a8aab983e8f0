// SPDX-License-Identifier: BSD-3-Clause
//
// closure_seq.cc: the transitions of model M3. What the functions do is in pml/bfo/xfer: eager.h
// (note_resent_seq), window.h, match.h (arrive, take) and comm.h (communicators).
//
// H1..H23: contrib/doc/hazards.md
#include "test/sim/closure_seq.h"

#include <algorithm>
#include <cstring>

namespace bfo::closure::seq {

namespace {
constexpr uint8_t u8(int v) {
  return static_cast<uint8_t>(v);
}
/// The number of a message as the code sees it: eight of them go round.
constexpr Seq16 seq_of(int number) {
  return static_cast<Seq16>((number & 7) * (kSeqWindow / 2));
}
constexpr int kStep = kSeqWindow / 2;
}  // namespace

State Sequence::initial() const {
  State s;
  std::memset(&s, 0, sizeof s);
  s.stop = 1;
  return s;
}

std::string Sequence::describe(const State& s) const {
  std::string t = "S next " + std::to_string(s.next) + " stop " + std::to_string(s.stop) + " confirmed " +
                  std::to_string(s.confirmed) +
                  (s.resent ? " resent from " + std::to_string(s.resent_from) : "") + " again " +
                  std::to_string(s.again) + " opened " + std::to_string(s.open_done) + "; R accepted " +
                  std::to_string(s.accepted) + " out of sequence " + std::to_string(s.out_of_sequence) +
                  " first " + std::to_string(s.first);
  for (const Rail& r : s.rail) {
    t += std::string("; rail ") + (r.dead ? "dead" : "up") + (r.closed ? " closed" : "");
    for (const Flight& f : r.flight)
      if (f.used) t += " " + std::to_string(f.message) + (f.delivered ? "d" : "") + (f.acked ? "a" : "");
  }
  return t;
}

void Sequence::go(const State& from, std::vector<Next>& out, const char* what, int rail, bool fault) {
  for (Rail& r : c_.rail) {
    Flight kept[kDepth] = {};
    int n = 0;
    for (const Flight& f : r.flight)
      if (f.used && !(f.delivered && f.acked)) kept[n++] = f;
    std::memcpy(r.flight, kept, sizeof kept);
  }
  if (!c_.resent) c_.resent_from = 0;
  if (!c_.checkpoint_taken) c_.checkpoint = c_.left[0] = c_.left[1] = 0;
  if (std::memcmp(&c_, &from, sizeof c_) != 0) out.push_back(Next{c_, what, rail, fault});
}

void Sequence::successors(const State& from, std::vector<Next>& out) {
  sender(from, out);
  window(from, out);
  communicators(from, out);
  for (int x = 0; x < kRails; ++x) rails(from, out, x);
}

// ---- sender

void Sequence::post(int rail, int message, int number) {
  for (Flight& f : c_.rail[rail].flight) {
    if (f.used) continue;
    f.used = 1;
    f.message = u8(message);
    f.number = u8(number);
    return;
  }
}

/// The number may be under way twice until the dead epoch is closed at the receiver.
void Sequence::note_resent(int message) {
  if (!off(Without::kCheckpointAgain)) c_.checkpoint_taken = 0;
  if (off(Without::kHold)) return;
  if (off(Without::kHoldFreed) && c_.s_freed && message < kFirstComm && c_.next == kFirstComm) return;
  if (core::resent_earlier(c_.resent != 0, seq_of(c_.resent_from), seq_of(message)))
    c_.resent_from = u8(message);
  c_.resent = 1;
}

bool Sequence::unclosed(const State& s) const {
  if (off(Without::kHoldUntilClosed)) return false;
  for (const Rail& r : s.rail)
    if (r.dead && !r.told) return true;
  return false;
}

/// What was numbered before the checkpoint is on a rail, or has ended.
void Sequence::take_checkpoint() {
  c_.checkpoint_taken = 1;
  c_.checkpoint = c_.open_owed ? 0 : c_.next;
  for (int m = kMessages - 1; m >= 0; --m)
    if (c_.again >> m & 1) c_.checkpoint = u8(std::min<int>(c_.checkpoint, m));
  for (int x = 0; x < kRails; ++x) {
    c_.left[x] = 0;
    for (const Flight& f : c_.rail[x].flight) c_.left[x] = u8(c_.left[x] + (f.used && !f.acked ? 1 : 0));
    if (c_.rail[x].dead && c_.rail[x].returned) c_.left[x] = 0;
  }
}

bool Sequence::past_checkpoint() const {
  for (int x = 0; x < kRails; ++x) {
    const Rail& r = c_.rail[x];
    const bool down = r.dead && !r.returned;
    // The work of a rail that is down counts as ended.
    if (!core::rail_past_checkpoint(down && !off(Without::kCheckpointDown), !down && c_.left[x] != 0))
      return false;
  }
  return true;
}

void Sequence::note_ended() {
  if (off(Without::kCompletion)) {
    c_.acked = c_.next;
    return;
  }
  if (!c_.checkpoint_taken) take_checkpoint();
  if (!past_checkpoint()) return;
  c_.acked = std::max(c_.acked, c_.checkpoint);
  take_checkpoint();
}

/// The oldest flight of a rail has ended.
void Sequence::ended(int rail) {
  if (c_.left[rail] != 0) --c_.left[rail];
}

/// What was on the dead rail and not acknowledged is sent again; what was not delivered may still be.
void Sequence::returns(int rail) {
  Rail& r = c_.rail[rail];
  r.returned = 1;
  c_.left[rail] = 0;
  for (Flight& f : r.flight) {
    if (!f.used || f.acked) continue;
    f.acked = f.delivered;  // nothing more happens to a delivered one; the others are copies from now on
    if (f.message == 0) {
      if (!c_.open_done) c_.open_owed = 1;
      note_resent(0);
    } else {
      c_.again = static_cast<uint16_t>(c_.again | 1 << f.message);
      note_resent(f.message);
    }
  }
}

void Sequence::sender(const State& from, std::vector<Next>& out) {
  const bool may_send = from.next < kFirstComm || (from.s_freed && from.r_freed);
  for (int x = 0; x < kRails; ++x) {
    if (from.rail[x].dead || from.rail[x].flight[kDepth - 1].used) continue;
    if (from.open_owed) {
      c_ = from;
      c_.open_owed = 0;
      post(x, 0, 0);
      go(from, out, "S repeats the header", x);
    }
    int again = 0;
    while (again < kMessages && !(from.again >> again & 1)) ++again;
    if (again < kMessages) {
      c_ = from;
      c_.again = static_cast<uint16_t>(c_.again & ~(1 << again));
      post(x, again,
           off(Without::kSameNumber) ? c_.next - c_.base : again - (again < kFirstComm ? 0 : c_.base));
      go(from, out, "S sends again", x);
      continue;  // before everything that waits (H22)
    }
    const bool room = from.next != from.stop || off(Without::kWindow);
    if (from.next == kMessages || !may_send || !room) continue;
    c_ = from;
    post(x, from.next, from.next - from.base);
    ++c_.next;
    go(from, out, "S sends", x);
  }
}

core::SeqBounds Sequence::bounds() const {
  return {seq_of(c_.next), seq_of(c_.confirmed), seq_of(c_.acked), c_.resent != 0, seq_of(c_.resent_from)};
}

/// The next number is not free: is there room, and what does the receiver say?
void Sequence::window(const State& from, std::vector<Next>& out) {
  if (from.slow_answer) {
    c_ = from;
    c_.slow_answer = c_.slow_value = c_.slow_question = 0;
    answer(from.slow_value, from.slow_question);
    go(from, out, "an old answer comes", -1);
  }
  if (from.next != from.stop || from.next == kMessages) return;
  const bool path = !from.rail[0].dead || !from.rail[1].dead;
  c_ = from;
  if (c_.resent && !unclosed(c_)) c_.resent = 0;
  note_ended();
  const int used = core::window_used(bounds());
  if (core::window_allows(used)) {
    const int further = seq_distance(seq_of(c_.next), core::window_stop(seq_of(c_.next), used));
    c_.stop = u8(c_.next + further / kStep);
  }
  go(from, out, "the window is asked", -1);
  if (!path) return;
  c_ = from;
  answer(from.expected + from.base, from.question);
  go(from, out, "S asks and is answered", -1);
  if (from.slow || from.slow_answer) return;
  c_ = from;
  c_.slow = c_.slow_answer = 1;
  c_.slow_value = u8(from.expected + from.base);
  c_.slow_question = from.question;
  go(from, out, "AN ANSWER IS HELD UP", -1, true);
}

/// To the open question only, only forward, and not past what was sent. A header whose number is confirmed
/// says that it is known, and is called finished where it is not found: the receiver must have it (I9).
void Sequence::answer(int value, int question) {
  const auto asked = static_cast<uint16_t>(question);
  if (!core::answers_open_question(c_.question, asked) && !off(Without::kOldAnswer)) return;
  if (!core::answer_confirms(bounds(), seq_of(value))) return;
  const int step = seq_distance(seq_of(c_.confirmed), seq_of(value));
  c_.question = u8(seq_question(c_.question, seq_of(c_.confirmed), seq_of(value)));
  c_.confirmed = u8(c_.confirmed + step / kStep);
  if (c_.confirmed > c_.accepted) broken("a message is called known that the receiver has not");
}

// ---- receiver

/// A message is taken as the next one.
void Sequence::take(int message) {
  if (message != c_.accepted)
    broken(message < c_.accepted ? "a message was received twice" : "a message was lost");
  ++c_.accepted;
  ++c_.expected;
  if (message == 0) c_.first = 1;
}

void Sequence::drain_early() {
  for (int n = c_.accepted; n < kMessages && (c_.out_of_sequence >> n & 1); ++n) {
    c_.out_of_sequence = static_cast<uint16_t>(c_.out_of_sequence & ~(1 << n));
    take(n);
    if (c_.twice == n + 1) return;  // its copy is first in the list now and fits nowhere: nothing moves
  }
}

void Sequence::arrive(int message, int number) {
  const SeqPlace place = seq_place(seq_of(c_.expected), seq_of(number));
  const bool there = message < kFirstComm ? !c_.r_freed : c_.r_added;
  // Without a communicator only what was received in the last one is known.
  const bool open = c_.r_freed ? c_.r_added : true;
  if (!open && place != SeqPlace::kPast) {
    if (off(Without::kUnknownContext)) return;
    if (message < kFirstComm) return broken("a message of the freed communicator is kept for the next one");
    c_.out_of_sequence = static_cast<uint16_t>(c_.out_of_sequence | 1 << message);
    return;
  }
  switch (place) {
    case SeqPlace::kExpected:
      if (!there) broken("a message was received in another communicator");
      if (c_.twice && (c_.out_of_sequence || c_.twice <= c_.accepted)) return;
      take(message);
      return drain_early();
    case SeqPlace::kFuture:
      if (off(Without::kKeepEarly)) return;
      if (!there || message < c_.accepted) return broken("a copy is stored as a message to come");
      if (off(Without::kEarlyDuplicate) && (c_.out_of_sequence >> message & 1)) c_.twice = u8(message + 1);
      c_.out_of_sequence = static_cast<uint16_t>(c_.out_of_sequence | 1 << message);
      return;
    case SeqPlace::kPast:
      if (off(Without::kDuplicate)) return take(message);
      if (message >= c_.accepted) return broken("a new message was taken for a copy");
      if (message != 0) return;
      // A header that comes again: received, or still unmatched.
      if (c_.first == 1 && !off(Without::kNackProof)) return;
      if (c_.first == 2 && off(Without::kAnswerAgain)) return;
      if (c_.first != 2) broken("a message was called finished before it was received");
      c_.open_done = 1;
      c_.open_owed = 0;
      return;
    case SeqPlace::kOutside:
      if (message >= c_.accepted) broken("a new message was taken for garbage");
      return;
  }
}

/// Received, freed, agreed on, made again, each in its own time.
void Sequence::communicators(const State& from, std::vector<Next>& out) {
  const bool path = !from.rail[0].dead || !from.rail[1].dead;
  if (from.first == 1) {
    c_ = from;
    c_.first = 2;
    c_.open_done = 1;
    c_.open_owed = 0;
    if (path) go(from, out, "the first message is received", -1);
    c_.open_done = from.open_done;
    c_.open_owed = from.open_owed ? 1 : u8(!from.open_done);  // it is repeated until it is answered
    if (from.deaths < deaths_) {
      ++c_.deaths;
      go(from, out, "THE ANSWER TO THE FIRST IS LOST", -1, true);
    }
  }
  if (!from.s_freed && from.next == kFirstComm && from.open_done) {
    c_ = from;
    c_.s_freed = 1;
    c_.checkpoint_taken = 0;  // the numbering stays, the checkpoint does not
    go(from, out, "S frees the communicator", -1);
  }
  if (!from.r_freed && from.accepted == kFirstComm && from.first == 2) {
    c_ = from;
    c_.r_freed = 1;
    go(from, out, "R frees the communicator", -1);
  }
  if (from.s_freed && from.r_freed && !from.r_added) {
    c_ = from;
    c_.r_added = 1;
    if (off(Without::kNumberingGoesOn)) {
      c_.base = kFirstComm;
      c_.expected = 0;
    }
    drain_early();
    go(from, out, "R has the next communicator", -1);
  }
}

// ---- rails

void Sequence::rails(const State& from, std::vector<Next>& out, int x) {
  const Rail& r = from.rail[x];
  bool acked_waits = false;
  for (int i = 0; i < kDepth && r.flight[i].used; ++i)
    acked_waits = acked_waits || (r.flight[i].acked && !r.flight[i].delivered);
  for (int i = 0; i < kDepth && r.flight[i].used; ++i) {
    const Flight& f = r.flight[i];
    if (f.delivered) continue;
    if (!r.closed) {
      c_ = from;
      c_.rail[x].flight[i].delivered = 1;
      if (r.returned) c_.rail[x].flight[i].acked = 1;
      arrive(f.message, f.number);
      go(from, out, r.dead ? "R receives a late copy" : "R receives", x);
    }
    break;
  }
  for (int i = 0; i < kDepth && r.flight[i].used && !r.dead; ++i) {
    if (r.flight[i].acked) continue;
    if (!r.flight[i].delivered && !off(Without::kPollEvery)) break;
    c_ = from;
    c_.rail[x].flight[i].acked = 1;
    ended(x);
    go(from, out, "a completion", x);
    break;
  }
  if (!r.dead && from.deaths < deaths_) {
    c_ = from;
    ++c_.deaths;
    c_.rail[x].dead = 1;
    go(from, out, "THE RAIL DIES", x, true);
  }
  if (r.dead && !r.returned) {
    c_ = from;
    returns(x);
    go(from, out, "S has its messages back", x);
  }
  if (r.dead && !r.closed && !acked_waits) {
    c_ = from;
    c_.rail[x].closed = 1;
    for (Flight& f : c_.rail[x].flight) {
      if (!f.used) continue;
      f.delivered = 1;  // or never
      if (r.returned) f.acked = 1;
    }
    go(from, out, "R has closed the rail", x);
  }
  if (r.closed && !r.told) {
    c_ = from;
    c_.rail[x].told = 1;
    go(from, out, "S hears that it is closed", x);
  }
  if (r.closed && r.returned) {
    c_ = from;
    c_.rail[x].dead = c_.rail[x].closed = c_.rail[x].told = c_.rail[x].returned = 0;
    go(from, out, "the rail is up again", x);
  }
}

}  // namespace bfo::closure::seq
