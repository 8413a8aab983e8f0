// SPDX-License-Identifier: BSD-3-Clause
//
// plan.h: the planner of long messages: how many keys an RGET offers, which rail moves the next piece, how
// long it is, or that the message waits. It is asked again for each piece, because rails that are not equal
// show that only on the way; a message that goes in one piece is its shortest answer. Pure: it reads what a
// message and its rails have in flight, and posts nothing, allocates nothing, and reads no clock.
//
// Which rail takes a short message is RailChoice's (rails/rail_choice.h).
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <algorithm>
#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/rails/rail_choice.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

/// What a failed rail may leave to be sent again (P4), of a message that is not longer than fifty times that.
inline constexpr uint64_t kMaxResent = 1 << 20;
/// What a message may have in flight over its only rail, in pieces as long as the rail wants. With one rail
/// P4 has nothing to keep: a message whose rail is lost waits for its return, much longer than it takes to
/// move these bytes again. And each READ costs some microseconds.
inline constexpr uint64_t kPiecesAlone = 16;

/// Bytes of a message of `length` bytes that one rail may have in flight when there are others (P4).
constexpr uint64_t at_risk(uint64_t length) {
  return std::max(kMaxResent, length / 50);
}

/// The same over its only rail, which wants pieces of `usual` bytes.
constexpr uint64_t most_over_one_rail(uint64_t usual) {
  return usual <= UINT64_MAX / kPiecesAlone ? usual * kPiecesAlone : usual;
}

/// Size of one of the equal pieces of a message of `length` bytes that `rails` rails share, each with `depth`
/// of them under way: as long as P4 and `usual`, which the rail wants, allow, and as many on each rail, so
/// that equal rails end together.
constexpr uint64_t equal_piece(uint64_t length, unsigned rails, uint64_t usual, uint32_t depth) {
  constexpr uint64_t kAlign = 4096;
  constexpr uint64_t kLeast = 16384;
  if (rails <= 1 || length < kUncut) return std::min(length, usual);
  const uint64_t share = at_risk(length) / std::max(depth, 1u) / kAlign * kAlign;
  const uint64_t longest = std::min(usual, std::max(kLeast, share));
  const auto shared = [](uint64_t bytes, uint64_t n) { return bytes / n + (bytes % n != 0); };
  const uint64_t on_each = shared(shared(length, rails), longest);
  const uint64_t n = shared(shared(length, rails * on_each), kAlign) * kAlign;
  return std::min(longest, std::max(kLeast, n));
}

/// The piece of a rail that moves `share.rate` where the fastest takes `n`: they end together. Rails that
/// move the same take the same. The first ones on a rail are short, of a message of `length` bytes that may
/// be cut.
constexpr uint64_t fair_piece(uint64_t n, const Share& share, uint64_t length = UINT64_MAX) {
  constexpr uint64_t kAlign = 4096;
  constexpr uint64_t kLeast = 16384;
  const uint64_t longest = share.proven ? share.longest : kTry;
  if (length >= kUncut && n > longest) {
    const uint64_t parts = n / longest + (n % longest != 0);
    n = std::min(longest, (n / parts + kAlign - 1) / kAlign * kAlign);
  }
  if (share.rate == share.best) return n;
  const uint64_t fair = n / share.best * share.rate + n % share.best * share.rate / share.best;
  return std::min(n, std::max(kLeast, std::min(fair, most_in_time(share.rate)) / kAlign * kAlign));
}

/// A message that moves in pieces.
struct Moving {
  uint64_t length = 0;      ///< of all of it
  uint64_t left = 0;        ///< of the range that is next
  uint64_t bytes_out = 0;   ///< in flight
  uint32_t pieces_out = 0;  ///< in flight
  uint32_t depth = 0;       ///< pieces that a rail may have under way
  unsigned rails = 0;       ///< that share it
  /// READs end on all of them as fast as they are posted: a queue would stay empty, and fewer, longer pieces
  /// cost less
  bool keep_up = false;
};

/// Is all of the range that is next one piece? A message is cut for the other rails; where these would only
/// delay it, a further piece costs this process time and saves none.
constexpr bool rest_is_one(const Moving& m, uint64_t usual, const Share& share) {
  const bool short_enough = share.rate == share.best || m.left <= most_in_time(share.rate);
  return share.alone && share.proven && short_enough && m.left <= std::min(usual, share.longest) &&
         m.bytes_out + m.left <= at_risk(m.length);
}

/// Size of the next piece over a rail that wants pieces of `usual` bytes and moves at most `limit` at once.
/// 0: the message waits until one of its pieces has ended. What all rails may have in flight is shared by
/// what they move, so that none has more than P4 allows.
constexpr uint64_t next_piece(const Moving& m, uint64_t usual, uint64_t limit, const Share& share) {
  uint64_t n;
  uint64_t most;
  if (m.rails <= 1) {
    most = most_over_one_rail(usual);
    n = m.length <= most ? m.length : most > usual ? most / 2 : usual;
  } else {
    n = m.keep_up ? std::min(kMaxResent, usual) : equal_piece(m.length, m.rails, usual, m.depth);
    n = fair_piece(n, share, m.length);
    if (share.rate == share.best && share.sum == m.rails * share.best) {
      most = m.rails * at_risk(m.length);
    } else {
      most = at_risk(m.length) / share.best * share.sum +
             at_risk(m.length) % share.best * share.sum / share.best;
      if (rest_is_one(m, usual, share)) n = m.left;
    }
  }
  n = std::min({n, m.left, limit});
  if (m.pieces_out == 0) return n;
  return m.pieces_out >= m.depth * m.rails || m.bytes_out + n > most ? 0 : n;
}

/// What a rail wants of a message that is read, or granted, over several.
template <class P>
uint64_t usual_read(const Rail<P>& rail) {
  return std::min<uint64_t>(rail.limits.rdma_frag_size, rail.limits.get_limit);
}
template <class P>
uint64_t usual_grant(const Rail<P>& rail) {
  return std::min<uint64_t>(rail.limits.rdma_frag_size, rail.limits.put_limit);
}

// ---- READs, by the receiver

/// Size of the next READ of `m` over `rail`. 0: it waits.
template <class P>
uint64_t next_read(const Moving& m, const Rail<P>& rail, const Share& share) {
  const uint64_t usual = m.rails <= 1 ? rail.limits.rdma_frag_size : usual_read(rail);
  return next_piece(m, usual, rail.limits.get_limit, share);
}

/// May one READ over `rail`, the only one with a key, bring all of `length` bytes?
template <class P>
bool reads_whole_alone(const Rail<P>& rail, uint64_t length) {
  return length <= rail.limits.get_limit && length <= most_over_one_rail(rail.limits.rdma_frag_size);
}

/// One READ for all of a message whose RGET has keys of several rails. It takes the rail over which the
/// header came while that keeps up: its READs end as fast as the processor posts them, so a second rail would
/// not move them sooner, and its queues and a second piece would cost. Else the rail with the least in flight
/// reads a short message, or one of which nothing is known, and a longer one is cut.
template <class P>
class OnlyRead {
 public:
  OnlyRead(const RailChoice<P>& choice, const Rail<P>* carrier, uint64_t length)
      : choice_(choice), carrier_(carrier), length_(length), ahead_(carrier && carrier->late == 0) {}
  /// False: the message is to be cut.
  bool possible() const { return length_ <= (ahead_ ? kMaxResent : kUncut - 1); }
  /// Is `rail` the best one until now?
  bool prefers(Rail<P>& rail) {
    if (length_ > usual_read(rail)) return false;
    if (best_ && choice_.uses(*best_) != choice_.uses(rail)) {
      if (choice_.uses(*best_)) return false;  // the other one is suspect
    } else if (best_) {
      const bool keeps = ahead_ ? best_ == carrier_ : tries(*best_, rail) || waits(rail, *best_);
      const bool takes = ahead_ ? &rail == carrier_ : tries(rail, *best_) || waits(*best_, rail);
      if (keeps || !(takes || choice_.sooner(rail, *best_, length_) ||
                     (&rail == carrier_ && !choice_.sooner(*best_, rail, length_))))
        return false;
    }
    best_ = &rail;
    return true;
  }
  Rail<P>* rail() const { return best_; }

 private:
  /// Nothing is known of `rail`, and of the other one something: messages one at a time find both empty, and
  /// would take the same one for ever, however slow it is.
  bool tries(const Rail<P>& rail, const Rail<P>& other) const {
    return rail.inflight_bytes == 0 && !choice_.proven(rail) && choice_.proven(other) &&
           !choice_.withheld(rail, other);
  }

  /// The rail of another peer tries the port of `rail`, and not that of `other`.
  bool waits(const Rail<P>& rail, const Rail<P>& other) const {
    return choice_.withheld(rail, other) && !choice_.withheld(other, rail);
  }

  const RailChoice<P>& choice_;
  const Rail<P>* carrier_;
  uint64_t length_;
  bool ahead_;
  Rail<P>* best_ = nullptr;
};

/// The only rail that the receiver will read a message over, so that its key is enough; nullptr: all that it
/// may share the message among. A header that goes again offers all.
template <class P>
Rail<P>* reader_of(const RailChoice<P>& choice, uint64_t length, bool again) {
  if (length > kMaxResent || again || choice.leaves_out()) return nullptr;
  return choice.keeps_up() || choice.size() == 1 ? choice.preferred() : nullptr;
}

// ---- grants, by the receiver, and FRAGs, by the sender

/// Size of the next grant of `m` to `rail`. It cannot be taken back, so that it is short until one has ended
/// there, if there are other rails that could be lost or slow. The rest is cut as ever: longer pieces would
/// be what a rail that falls to a hundredth has to move before it is known.
template <class P>
uint64_t next_grant(const Moving& m, const Rail<P>& rail, Share share) {
  share.proven = share.proven || m.rails <= 1 || !rail.limits.failover || rail.goodput.grant_has_ended();
  if (m.rails <= 1 || !rail.limits.failover) share.longest = UINT64_MAX;
  const uint64_t usual = usual_grant(rail);
  return fair_piece(equal_piece(m.length, m.rails, usual, m.depth), share, m.length);
}

/// The rail that one grant moves all of `length` bytes over; nullptr: several may share them.
template <class P>
Rail<P>* grants_whole(RailChoice<P>& choice, uint64_t length) {
  if (choice.size() > 1 && length >= kUncut) return nullptr;
  Rail<P>* const rail = choice.size() == 1 ? &choice[0] : choice.lightest(0, length);
  return rail && length <= usual_grant(*rail) ? rail : nullptr;
}

/// Bytes of the next FRAG over `rail`, one of so many, of at most `most`: what the rail takes, or less of one
/// that is slower than others, so that they end together, or may be slower.
template <class P>
uint64_t next_frag(const Rail<P>& rail, uint64_t most, unsigned rails, Share share) {
  share.proven = share.proven || rails <= 1;
  if (rails <= 1) share.longest = UINT64_MAX;
  return std::min(most, fair_piece(rail.limits.max_send_size - sizeof(core::FragHdr), share));
}

/// Does a message that is granted in pieces wait until one of them has ended?
constexpr bool enough_out(uint32_t pieces_out, uint32_t depth, unsigned rails) {
  return pieces_out >= depth * rails;
}

/// The same of one that is sent in FRAGs, `depth` on the fastest rail, and in proportion on slower ones: more
/// would queue on the fastest, and what comes the other way waits for an ACK behind them.
constexpr bool enough_out(uint32_t pieces_out, uint32_t depth, const Share& share) {
  return pieces_out * share.best >= depth * share.sum;
}

}  // namespace bfo::xfer
