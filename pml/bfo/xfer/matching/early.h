// SPDX-License-Identifier: BSD-3-Clause
//
// early.h: messages for communicators that this process has not made yet: what is kept of them, what goes
// when there are too many, and whom that ends.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/matching/matching.h"

namespace bfo::xfer {

/// The sender of `a`, whom its BTL names, has no allowance left for it.
template <class P>
[[gnu::cold]] void Matching<P>::unknown_too_many(const Arrival& a) {
  if (a.rail)
    return base_.failing.too_much(*a.rail->peer, PeerLoss::Limit::kUnknown, base_.config.unknown_limit);
  base_.failing.no_memory(nullptr, a.epoch, a.size);
}

/// A message for a communicator that does not exist here. If this process has not made it yet, the message is
/// kept (KEPT). If it was freed, what was received in it is FINISHED, and a sender that missed the answer
/// gets it again (H11): true. A message that its sender knows to be here belongs to a communicator of the
/// past.
template <class P>
[[gnu::noinline]] bool Matching<P>::keep_unknown(const Opened& o, const Arrival& a) {
  const core::MatchHdr& h = o.match();
  PeerT* const peer = a.rail ? a.rail->peer : nullptr;
  const bool known = !o.is_match() && (h.flags & core::kFlagKnown) != 0;
  const PastSequence* const past = peer ? peer->past.find(h.ctx) : nullptr;
  if (past && (known || seq_place(past->expected, h.seq) == SeqPlace::kPast)) {
    ++base_.counters.duplicates;
    return !o.is_match();
  }
  if (known || h.src < 0) {
    ++base_.counters.malformed;
    return false;
  }
  const auto from = UnknownMessages<P>::Sender::of(a);
  if (Message* const m = unknown_.find(*this, h, from)) {
    ++base_.counters.duplicates;
    if (!renews(*m, o) || unknown_.fits_instead(*m, o.stored_size(), base_.config.unknown_limit)) {
      unknown_.uncount(*m);
      const bool over = replace(*m, o, a);
      unknown_.count(*m);
      return over;
    }
    if (from.named) {
      unknown_too_many(a);
      return false;
    }
    unknown_.remove(*this, m);
    free_message(m);
  }
  // A sender may be ahead of a process that is slow to make the communicator, but within a bound.
  if (!unknown_.fits(from, o.stored_size(), base_.config.unknown_limit)) {
    if (from.named) unknown_too_many(a);
    if (from.named || !make_room(o)) return false;
  }
  if (Message* const m = keep(nullptr, o, a)) unknown_.add(*this, m);
  return false;
}

/// Who fills the allowance of the senders that nobody knows is not known either. The oldest message goes:
/// what comes before its communicator is made waits for a moment, and what nobody will ever ask for stays.
/// If the communicator is made, the rank that the message named is given up. False: `o` is pushed out itself.
template <class P>
[[gnu::cold]] bool Matching<P>::make_room(const Opened& o) {
  constexpr typename UnknownMessages<P>::Sender kNobody;
  const uint64_t limit = base_.config.unknown_limit;
  if (sizeof(Message) + o.stored_size() > limit) {
    push_out(o.match());
    return false;
  }
  while (!unknown_.fits(kNobody, o.stored_size(), limit)) {
    Message* const m = unknown_.take_oldest_anonymous(*this);
    push_out(m->match);
    free_message(m);
  }
  return true;
}

template <class P>
[[gnu::cold]] void Matching<P>::push_out(const core::MatchHdr& h) {
  ++base_.counters.unknown_pushed_out;
  if (!pushed_out_.note(base_.port, h.ctx, h.src)) base_.failing.no_memory(nullptr, 0, sizeof h);
}

/// May messages of `p` come over a BTL that does not say who sends?
template <class P>
[[gnu::cold]] bool Matching<P>::sends_anonymously(const PeerT& p) {
  bool may = p.n_rails == 0;
  for (unsigned i = 0; i < p.n_rails; ++i) may = may || !p.rails[i].limits.failover;
  return may;
}

/// The message of rank `rank` of `c` was pushed out: it is given up, if it may have sent that.
template <class P>
[[gnu::cold]] void Matching<P>::end_for_pushed_out(CommT& c, int32_t rank) {
  if (rank == c.my_rank && !c.inter) return;
  ProcT* const p = proc_at(c, rank);
  PeerT* const peer = p ? peer_of(*p) : nullptr;
  if (!peer)
    base_.failing.no_memory(nullptr, 0, sizeof(core::MatchHdr));
  else if (sends_anonymously(*peer))
    base_.failing.too_much(*peer, PeerLoss::Limit::kPushedOut, base_.config.unknown_limit);
}

/// `c` has been made: who has sent a message in it that could not be kept is given up.
template <class P>
void Matching<P>::end_pushed_out(CommT& c) {
  if (pushed_out_.empty()) [[likely]]
    return;
  const auto lost = [this, &c](int32_t rank) { end_for_pushed_out(c, rank); };
  if (pushed_out_.take(base_.port, c.ctx, c.size, lost))
    for (int32_t rank = 0; rank < c.size; ++rank) lost(rank);
}

}  // namespace bfo::xfer
