// SPDX-License-Identifier: BSD-3-Clause
//
// record.h: the record of each failover (P8): how much was sent again, when, and when the record is reported.
// The return of a rail that was lost has one, too, which is reported after that of the loss. Owns the records
// of losses and returns, whose memory is the port's: free() gives those of a rail back. Used under the
// engine's lock. Without memory a loss or return has no record; nothing else fails.
//
// A byte that is transferred a second time is counted when a rail accepts it, or when its READ ends. It is
// not counted when it is planned, because the plan may change. Each side counts what it transferred itself.
// If one side transferred a byte in vain and the other side transfers it again, only one of the two can know
// both facts:
//
//   sent in vain, then read   the sender, when the receiver says what it has (RESTARTACK) or that it has all
//   read in vain, then sent   the receiver, when it arrives
//
// With this rule, the bytes that all processes sent and read are equal to the bytes of the applications plus
// the bytes sent again, as soon as a message is complete. When a message ends with an error, the last report
// of the other side is missing, and such bytes are not counted.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>
#include <cstdio>
#include <new>

#include "common/clock.h"
#include "common/events.h"
#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/base/exit_work.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// What the messages of a peer have yet to send again.
struct Owed {
  bool in_restart = false;  ///< that is not known yet of one of them, and none was looked at
  SentBefore waiting;
  uint64_t looked_at = 0;  ///< requests that were
};

template <class P>
class FailoverRecords {
 public:
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  FailoverRecords(P& port, Counters& counters, ExitWork<P>& exit_work)
      : port_(port), counters_(counters), exit_work_(exit_work) {}

  // ---- the record of a rail's last loss
  /// The epoch of `ev` died; its rail is not used any more. The record before it was reported.
  void open(Rail<P>& rail, const RailEvent& ev);
  void close(Rail<P>& rail, const RailEvent& ev);
  /// The epoch of `ev` came up, and the rail is one of those that are used.
  void up(Rail<P>& rail, const RailEvent& ev);
  /// Reports the record of `rail`, complete or not. `requests`: its owed() says what a peer's have yet to
  /// send again, see Owed.
  void report(Rail<P>& rail, const auto& requests) {
    if (rail.event_open) emit(rail, requests.owed(*rail.peer, true).waiting);
  }
  /// Reports the records of `p` that are complete; `now`: all of them.
  void report(Peer<P>& p, bool now, const auto& requests);
  /// Is there a record that is not complete?
  static bool any_open(const Peer<P>& p);
  /// A record that waits only for what has to be sent again is looked at when the engine is left, after that
  /// was sent (RecordDue).
  bool any_due() const { return due_; }
  void report_due(Peer<P>* first, const auto& requests);
  /// Does the record of `rail` have to be looked at again?
  static bool needs_clock(const Rail<P>& rail) { return rail.event_open; }
  void free(Rail<P>& rail) {
    if (rail.event) port_.free(rail.event);
    if (rail.back) port_.free(rail.back);
  }

  // ---- what it says of a peer
  void note_restart(Peer<P>& p);
  void note_resumed(Peer<P>& p);
  void note_resent(Peer<P>& p, uint64_t bytes, bool whole_message);

  // ---- at the sender of a long message
  void note_segment(SendRequest& r, uint64_t offset, uint64_t n);
  void note_opened(SendRequest& r);
  void note_received(SendRequest& r, const SendInput<P>& in, bool by_get);
  void note_all_read(SendRequest& r);

  // ---- at its receiver
  bool arrived(RecvRequest& r, uint64_t begin, uint64_t end, bool by_read);
  void read_in_vain(RecvRequest& r, uint64_t begin, uint64_t end);

 private:
  using Waiting = SentBefore;
  bool fenced(const Rail<P>& rail, bool moving) const;
  void count_resent(Peer<P>& p, uint64_t bytes, bool whole_message);
  void segment_resent(SendRequest& r, uint64_t bytes);
  void found_again(RecvRequest& r, uint64_t begin, uint64_t end);
  void emit(Rail<P>& rail, const Waiting& waiting);
  void expect_return(Rail<P>& rail);
  void emit_return(Rail<P>& rail);

  P& port_;
  Counters& counters_;
  ExitWork<P>& exit_work_;
  bool due_ = false;  ///< what a record waited for may have been sent
};

/// If several rails are lost together, the record of the last one counts the bytes: no byte is in two
/// records.
template <class P>
void FailoverRecords<P>::count_resent(Peer<P>& p, uint64_t bytes, bool whole_message) {
  counters_.bytes_resent += bytes;
  if (whole_message) ++counters_.messages_resent;
  Rail<P>* last = nullptr;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    Rail<P>& r = p.rails[i];
    if (r.event_open && r.event_pending) {
      r.due.sent(bytes, whole_message);
      due_ = due_ || r.due.now();
    }
    if (r.event_open && (!last || r.event->down_ns >= last->event->down_ns)) last = &r;
  }
  if (due_) exit_work_.wake();
  if (!last) return;
  last->event->bytes_resent += bytes;
  if (whole_message) ++last->event->messages_resent;
}

template <class P>
void FailoverRecords<P>::note_resent(Peer<P>& p, uint64_t bytes, bool whole_message) {
  count_resent(p, bytes, whole_message);
  note_resumed(p);
}

template <class P>
void FailoverRecords<P>::note_resumed(Peer<P>& p) {
  if (p.choice.empty()) return;
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open && p.rails[i].event->resumed_ns == 0)
      p.rails[i].event->resumed_ns = port_.now_ns();
}

// ---- at the sender of a long message

/// A rail accepted [offset, offset+n) of a long message. What a rail had accepted of it before is sent again.
template <class P>
inline void FailoverRecords<P>::note_segment(SendRequest& r, uint64_t offset, uint64_t n) {
  const uint64_t resent = n - r.xfer.rndv->sent_once.add(offset, offset + n);
  if (resent != 0) [[unlikely]]
    segment_resent(r, resent);
}

template <class P>
[[gnu::cold]] void FailoverRecords<P>::segment_resent(SendRequest& r, uint64_t bytes) {
  auto& x = r.xfer;
  x.rndv->resend_bytes -= bytes < x.rndv->resend_bytes ? bytes : x.rndv->resend_bytes;
  note_resent(*x.proc->peer, bytes, false);
}

/// A rail accepted the RNDV or RGET. In a later round only its bytes count as sent again, not the message.
template <class P>
[[gnu::always_inline]] inline void FailoverRecords<P>::note_opened(SendRequest& r) {
  auto& x = r.xfer;
  if (x.rndv->restarts != 0) return;
  if (x.rndv->opened) note_resent(*x.proc->peer, 0, true);
  x.rndv->opened = true;
}

/// RESTARTACK, and `todo` is set. In a round by RGET (`by_get`) this side sent no bytes: what the receiver
/// has gained it has read, also where this side had sent it before. What it has read counts as sent once
/// here, too.
template <class P>
[[gnu::cold]] void FailoverRecords<P>::note_received(SendRequest& r, const SendInput<P>& in, bool by_get) {
  auto& x = r.xfer;
  const uint64_t here = x.rndv->sent_once.bytes() - x.rndv->sent_once.bytes_in(x.rndv->todo);
  // If the receiver has nothing else, it has the first bytes, which came with the RNDV.
  const bool read =
      by_get && (x.rndv->restarts > 1 || x.sent_before || here != x.length - x.rndv->todo.bytes());
  if (by_get) {
    if (read && here > x.rndv->received) count_resent(*x.proc->peer, here - x.rndv->received, false);
    for (unsigned i = 0; i < in.restart->n; ++i) x.rndv->sent_once.add(in.ranges[i].begin, in.ranges[i].end);
  }
  x.rndv->resend_bytes = x.rndv->sent_once.bytes_in(x.rndv->todo);
  x.rndv->received = x.rndv->sent_once.bytes() - x.rndv->resend_bytes;
}

/// The receiver has read everything that it did not have.
template <class P>
void FailoverRecords<P>::note_all_read(SendRequest& r) {
  auto& x = r.xfer;
  const uint64_t bytes = x.rndv->sent_once.bytes();
  if (bytes > x.rndv->received) [[unlikely]]
    count_resent(*x.proc->peer, bytes - x.rndv->received, false);
}

// ---- at its receiver

/// [begin, end) has arrived. Bytes that were here before were read again, or are a copy that the sender has
/// counted. False: no memory to note it.
template <class P>
[[gnu::always_inline]] inline bool FailoverRecords<P>::arrived(RecvRequest& r, uint64_t begin, uint64_t end,
                                                               bool by_read) {
  auto& x = r.xfer;
  if (!x.rndv->read_failed.empty()) [[unlikely]]
    found_again(r, begin, end);
  const uint64_t known = end - begin - x.rndv->received.add(begin, end);
  if (by_read && known != 0) [[unlikely]]
    count_resent(*x.proc->peer, known, false);
  return !x.rndv->received.incomplete();
}

template <class P>
[[gnu::cold]] void FailoverRecords<P>::found_again(RecvRequest& r, uint64_t begin, uint64_t end) {
  auto& x = r.xfer;
  count_resent(*x.proc->peer, x.rndv->read_failed.bytes_in(begin, end), false);
  x.rndv->read_failed.remove(begin, end);
}

/// A READ ended, and it is unknown whether it was executed.
template <class P>
[[gnu::cold]] void FailoverRecords<P>::read_in_vain(RecvRequest& r, uint64_t begin, uint64_t end) {
  auto& x = r.xfer;
  count_resent(*x.proc->peer,
               x.rndv->read_failed.bytes_in(begin, end) + x.rndv->received.bytes_in(begin, end), false);
  x.rndv->read_failed.add(begin, end);
  for (uint32_t i = 0; i < x.rndv->received.count(); ++i)
    x.rndv->read_failed.remove(x.rndv->received[i].begin, x.rndv->received[i].end);
}

// ---- the record

template <class P>
void FailoverRecords<P>::note_restart(Peer<P>& p) {
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open) ++p.rails[i].event->restarts;
}

template <class P>
bool FailoverRecords<P>::any_open(const Peer<P>& p) {
  bool open = false;
  for (unsigned i = 0; i < p.n_rails; ++i) open = open || p.rails[i].event_open;
  return open;
}

/// Is the rail of a record closed, or is the end of its fence not waited for any more?
template <class P>
bool FailoverRecords<P>::fenced(const Rail<P>& rail, bool moving) const {
  constexpr uint64_t kPatience = 500'000'000;
  return rail.event->closed_ns != 0 ||
         (!moving && time_since(rail.event->down_ns, port_.now_ns()) >= kPatience);
}

/// The record of a failover is complete when the rail is closed, no request of the peer is in a restart, and
/// everything that has to be sent again was sent. Without a rail nothing of that goes on: what waits is in
/// the record, and it is reported at once. `now`: report it as it is.
template <class P>
void FailoverRecords<P>::report(Peer<P>& p, bool now, const auto& requests) {
  constexpr uint64_t kLate = 100'000'000;
  const bool moving = !p.choice.empty() && p.choice[0].usable(p.choice[0].name.epoch);
  const auto looks = [&](const Rail<P>& r) {
    if (!r.event_open || now) return r.event_open;
    if (!fenced(r, moving)) return false;
    return !r.event_pending || !moving || r.due.now() || port_.now_ns() >= r.due.late_ns;
  };
  bool any = false;
  for (unsigned i = 0; i < p.n_rails; ++i) any = any || looks(p.rails[i]);
  if (!any) return;
  const Owed owed = requests.owed(p, now || !moving);
  counters_.looked_at += owed.looked_at;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    Rail<P>& r = p.rails[i];
    if (!r.event_open || (!now && !fenced(r, moving))) continue;
    if (!owed.in_restart) r.event_pending = !now && moving && !owed.waiting.none();
    if (r.event_pending)
      r.due = {owed.waiting.bytes, owed.waiting.messages, owed.looked_at / 8 + 1, port_.now_ns() + kLate};
    else if (!owed.in_restart)
      emit(r, owed.waiting);
  }
}

/// What a record waited for may have been sent.
template <class P>
[[gnu::cold]] void FailoverRecords<P>::report_due(Peer<P>* first, const auto& requests) {
  due_ = false;
  for (Peer<P>* p = first; p; p = p->next) {
    bool any = false;
    for (unsigned i = 0; i < p->n_rails; ++i) {
      const Rail<P>& r = p->rails[i];
      any = any || (r.event_open && r.event_pending && r.due.now());
    }
    if (any) report(*p, false, requests);
  }
}

template <class P>
void FailoverRecords<P>::emit(Rail<P>& r, const Waiting& waiting) {
  r.event_open = false;
  r.event->bytes_waiting = waiting.bytes;
  r.event->messages_waiting = waiting.messages;
  r.event->duplicates_dropped = counters_.duplicates - r.event->duplicates_dropped;
  port_.emit(*r.event);
  if (r.back && r.back->up_epoch != 0) emit_return(r);
}

/// The cause of the epoch's end, in words of `ev`.
inline void name_cause(FailoverEvent& e, const RailEvent& ev) {
  e.cause = ev.cause;
  e.code = ev.code;
  std::snprintf(e.text, sizeof e.text, "%s", ev.text ? ev.text : "");
}

template <class P>
void FailoverRecords<P>::open(Rail<P>& rail, const RailEvent& ev) {
  rail.event_open = rail.event_pending = false;
  if (!rail.event) rail.event = static_cast<FailoverEvent*>(port_.alloc(sizeof(FailoverEvent)));
  if (!rail.event) return;
  FailoverEvent& e = *::new (rail.event) FailoverEvent;
  rail.event_open = !ev.late && !ev.given_back;
  e.rail = rail.index;
  e.conn = ev.name.conn;
  e.epoch = ev.name.epoch;
  e.peer = &rail.peer->handle;
  e.rail_handle = &rail.handle;
  name_cause(e, ev);
  e.down_ns = port_.now_ns();
  e.evidence_ns = ev.evidence_ns ? ev.evidence_ns : e.down_ns;
  e.duplicates_dropped = counters_.duplicates;  // the difference is taken when the record is written
  e.rails_left = rail.peer->rails_up();
  if (!ev.late && !ev.left && !ev.given_back) expect_return(rail);
}

/// The rail's last record is that of its loss. If it had not come back since an earlier one, it stays away
/// since that one: attempts to connect it that failed have records, too.
template <class P>
void FailoverRecords<P>::expect_return(Rail<P>& rail) {
  if (rail.back) return;
  rail.back = static_cast<FailoverEvent*>(port_.alloc(sizeof(FailoverEvent)));
  if (!rail.back) return;
  FailoverEvent& e = *::new (rail.back) FailoverEvent(*rail.event);
  e.what = "rail_up";
  e.duplicates_dropped = 0;
  e.rails_left = 0;
}

template <class P>
void FailoverRecords<P>::up(Rail<P>& rail, const RailEvent& ev) {
  if (!rail.back) return;
  rail.back->up_ns = port_.now_ns();
  rail.back->up_epoch = ev.name.epoch;
  rail.back->rails_up = rail.peer->rails_up();
  if (!rail.event_open) emit_return(rail);
}

template <class P>
void FailoverRecords<P>::emit_return(Rail<P>& rail) {
  port_.emit(*rail.back);
  port_.free(rail.back);
  rail.back = nullptr;
}

/// The epoch of `ev` is over.
template <class P>
void FailoverRecords<P>::close(Rail<P>& rail, const RailEvent& ev) {
  if (!rail.event_open || rail.event->epoch != ev.name.epoch) return;
  rail.event->closed_ns = port_.now_ns();
  // What was a loss stays one, also when its peer has left in order meanwhile.
  if (ev.left || !ev.text || *ev.text == '\0') return;
  name_cause(*rail.event, ev);  // the cause is known better now
  if (rail.back && rail.back->epoch == ev.name.epoch) name_cause(*rail.back, ev);
}

}  // namespace bfo::xfer
