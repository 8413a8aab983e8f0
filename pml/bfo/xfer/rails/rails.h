// SPDX-License-Identifier: BSD-3-Clause
//
// rails.h: Rails, what the engine does with the rails of its peers: records of fragments, posting of control
// messages, messages that are stored until they are delivered, and which rail the user's messages take. It
// calls the port and its base only; what a message means, others know. Used under the engine's lock. The
// bodies are in posting.h and sending.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/rails/order.h"
#include "pml/bfo/xfer/rails/stored.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Rails {
 public:
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using Frag = typename P::Frag;

  /// `base` outlives it.
  explicit Rails(Base<P>& base) : base_(base), stored_(base.port) {}
  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;

  // ---- records of fragments
  /// A fresh record of a fragment over `rail`, which counts as under way; nullptr: there is none now.
  Frag* new_frag(FragKind kind, RailT& rail, PeerT& peer);
  /// The fragment has ended; its record stays.
  void ended(Frag& f);
  /// The fragment was not posted, or ended inside its call, and carried nothing that counts as load.
  void drop(Frag& f) {
    --frags_out_;
    base_.port.frag_free(f);
  }
  /// Fragments that have not ended.
  uint64_t frags_out() const { return frags_out_; }

  // ---- control messages that the state of a request gives back
  template <class Source>
  bool post_brief(RailT& rail, const void* hdr, size_t len, Source& source);
  bool post_on(RailT& rail, const void* hdr, size_t len, FragKind kind, Name own, bool to_sender,
               uint32_t grant = 0);
  bool post_control(PeerT& p, const void* hdr, size_t len, FragKind kind, Name own, bool to_sender,
                    uint32_t grant = 0);
  bool post_back(PeerT& p, RailT* rail, const void* hdr, size_t len, FragKind kind, Name own, bool to_sender);
  RailT* named(PeerT& p, uint64_t conn, uint32_t epoch, RailT* without_conn) const;

  // ---- messages that are stored until they are delivered
  Frag* send_stored(PeerT& p, const void* bytes, size_t len, RailT* pinned = nullptr, uint32_t epoch = 0);
  void send_completing(PeerT& p, const void* bytes, size_t len);
  bool post_stored(PeerT& p);
  Post post_notice(RailT& rail, Frag& f, const void* bytes, size_t len);
  void store_again(PeerT& p, Frag& f);
  /// No stored message of `p` is sent any more.
  void drop_stored(PeerT& p) { stored_.drop(p); }

  // ---- the user's messages
  /// The rail of an eager message. Short ones of a pair share one; longer ones are spread over the rails, if
  /// there are several and the peer does not answer at once. nullptr: the message waits.
  RailT* next_for(PeerT& p, size_t length) {
    if (RailT* const r = p.choice.for_short(length, base_.config.short_limit)) [[likely]]
      return r;
    return next_spread(p, length);
  }
  /// The same when RailChoice::for_short() has none. A call of its own: within what MPI calls for a short
  /// message it would take the registers of that one.
  [[gnu::noinline]] RailT* next_spread(PeerT& p, size_t length);
  unsigned for_user(PeerT& p);
  /// One of for_user() rails.
  RailT* next_for_user(PeerT& p) { return p.completions.any() ? p.completions.rail() : p.choice.next(); }

  /// The rails over one port, those for whose handle `over` is true, share long messages by `weight` from now
  /// on. Returns how many they are.
  template <class Over>
  unsigned reweigh(Over over, uint32_t weight) {
    unsigned n = 0;
    for (PeerT* p = base_.peers.front(); p; p = p->next) {
      for (unsigned i = 0; i < p->n_rails && !p->standing.failed(); ++i) {
        if (!over(p->rails[i].handle)) continue;
        p->rails[i].limits.weight = weight != 0 ? weight : 1;
        weighing_.ports.forget(p->rails[i].limits.port);
        ++n;
        if (!p->choice.fixed()) continue;
        p->choice.weigh();
        settle_preferred(*p);
      }
    }
    return n;
  }

  /// Common to the rails of all peers.
  Weighing& weighing() { return weighing_; }
  const Weighing& weighing() const { return weighing_; }
  Patience& patience() { return patience_; }
  const Patience& patience() const { return patience_; }

 private:
  RailT* next_behind(PeerT& p, size_t length);
  bool leaves_slow_rail(PeerT& p);
  static bool keeps_order(const Frag& f);
  bool brief_ended(PeerT& p);
  bool post_one_stored(PeerT& p, Frag& f);
  /// The control message `f` is posted over its rail: ended() takes it back.
  static void count(Frag& f) {
    f.xfer.counted = true;
    ++f.xfer.rail->control_out;
  }

  Base<P>& base_;
  StoredMessages<P> stored_;
  Weighing weighing_{base_.config.weights, {}};
  Patience patience_;
  uint64_t frags_out_ = 0;
};

}  // namespace bfo::xfer

#include "pml/bfo/xfer/rails/posting.h"
#include "pml/bfo/xfer/rails/sending.h"
