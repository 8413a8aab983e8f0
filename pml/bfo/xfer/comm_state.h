// SPDX-License-Identifier: BSD-3-Clause
//
// comm_state.h: a communicator and its ranks: sequence numbers, queues, and what waits for any source.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "common/seq.h"
#include "common/status.h"
#include "pml/bfo/core/seq_window.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/matching/unexpected.h"
#include "pml/bfo/xfer/moves/checkpoint.h"

namespace bfo::xfer {

/// Messages to a rank until the first look whether a short one is to be timed.
inline constexpr uint32_t kFirstLook = 16;

/// One rank of one communicator, made on first use.
template <class P>
struct Proc {
  Proc* next = nullptr;  ///< all ranks of the same peer, once the peer is known
  Proc* prev = nullptr;
  Comm<P>* comm = nullptr;
  Peer<P>* peer = nullptr;
  int32_t rank = 0;
  /// sending
  Seq16 next_seq = 0;
  Seq16 stop_seq = 0;   ///< the first number that needs a look: at the window (H5), or for a message to time
  Seq16 confirmed = 0;  ///< the peer has received every message before this one
  bool linked = false;  ///< in the list of its peer
  bool resent = false;  ///< messages from `resent_from` on were sent twice, and the dead epoch is not yet
                        ///< closed at both ends
  Seq16 resent_from = 0;
  /// receiving
  Seq16 expected = 0;
  Seq16 last_out_of_sequence = 0;  ///< the highest number in `out_of_sequence`
  /// SEQSYNC that waits for a rail, in the peer's Backlog::syncs
  bool syncs = false;    ///< in that list
  bool asks = false;     ///< the question
  bool answers = false;  ///< the answer to question `answer_to`
  uint16_t answer_to = 0;
  MessageQueue<P, SeqKey> out_of_sequence;  ///< out of sequence, as they came
  MessageQueue<P, TagKey> unexpected;       ///< in sequence, not matched
  /// rendezvous of it in `unexpected`, or held by matched probes: made by the first search for one of many
  OpenNames<P> open_names;
  PostedQueue<P> posted;
  List<typename P::SendRequest, XferLink> stalled;  ///< sends that wait for the sequence window (H5)
  Proc* next_stalled = nullptr;                     ///< list of all ranks with stalled sends
  bool in_stalled = false;
  // sending; used only when next_seq reaches stop_seq
  Seq16 window_seq = 0;  ///< the first number that needs a look at the window
  Seq16 looked_seq = 0;  ///< the last one that was looked at
  /// the rails have reported the end of all messages before this one: none of them is sent again
  Seq16 acked = 0;
  uint16_t question = 0;     ///< number of the open SEQSYNC question to the peer: see seq_question()
  Checkpoint<P> checkpoint;  ///< `acked` becomes its number when it is passed
  Proc* next_sync = nullptr;
  Proc* prev_sync = nullptr;

  core::SeqBounds bounds() const { return {next_seq, confirmed, acked, resent, resent_from}; }
  /// Which message does the peer expect next? Either side may ask at any time.
  core::SeqSyncHdr window_question() const {
    return {static_cast<uint8_t>(core::MsgType::kSeqSync), 0, comm->ctx, comm->my_rank, next_seq, question};
  }
  core::SeqSyncHdr window_answer() const {
    return {static_cast<uint8_t>(core::MsgType::kSeqSync),
            core::kFlagReply,
            comm->ctx,
            comm->my_rank,
            expected,
            answer_to};
  }
  /// `number` was asked. The answer to the newest question is enough: others do not count any more.
  void owe_answer(uint16_t number) {
    if (!answers || seq_before(answer_to, number)) answer_to = number;
    answers = true;
  }
};

template <class P>
struct Comm {
  Comm* next = nullptr;  ///< all communicators
  Comm* prev = nullptr;
  bool linked = false;
  bool inter = false;  ///< `my_rank` is none of its ranks
  /// not 0: a probe from any source found nothing, at most two calls of keep_alive() ago
  uint8_t probed = 0;
  bool wildcards_end = false;  ///< a receive from any source ends with `lost_outcome`
  Outcome lost_outcome = Outcome::kOk;
  typename P::CommHandle handle{};
  uint16_t ctx = 0;
  int32_t my_rank = 0;
  int32_t size = 0;
  int32_t n_lost = 0;     ///< members that have failed
  int32_t lost_rank = 0;  ///< the last member that failed, and with which outcome
  int32_t watch = 0;      ///< Wildcards::watch_all(): the next rank to look at
  bool has(int32_t rank) const { return rank >= 0 && rank < size; }
  /// Members that are not this process.
  int32_t others() const { return inter ? size : size - 1; }
  Proc<P>** procs = nullptr;
  PostedQueue<P> posted_any_source;     ///< posted with MPI_ANY_SOURCE
  CommQueue<P, TagKey> taken_by_probe;  ///< taken by a matched probe, not yet received
  CommQueue<P, TagKey> arrivals;        ///< all unexpected, in order of arrival
  uint64_t post_order = 0;              ///< of the next receive
  Refusal refusal;                      ///< revoked: which messages are for no receive any more
  uint32_t n_posted = 0;                ///< receives in any of its queues of posted ones
};

}  // namespace bfo::xfer
