// SPDX-License-Identifier: BSD-3-Clause
//
// peer_rails.h: what Rails keeps of a peer: its rails, which of them are usable, and what waits for one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/rails/backlog.h"
#include "pml/bfo/xfer/rails/completions.h"
#include "pml/bfo/xfer/rails/first_contact.h"
#include "pml/bfo/xfer/rails/rail_choice.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

template <class P>
struct PeerRails {
  uint8_t n_rails = 0;
  FirstContact first_contact;
  RailSet<P> rails;
  size_t eager_limit = 0;      ///< largest of its rails
  RailChoice<P> choice;        ///< of the rails that are usable now
  Completions<P> completions;  ///< under way
  Backlog<P> backlog;

  /// Rails that are up, suspect ones too. RailChoice has those that are used: fewer, or one that is not up.
  unsigned rails_up() const {
    unsigned n = 0;
    for (unsigned i = 0; i < n_rails; ++i)
      n += rails[i].state == RailState::kUp || rails[i].state == RailState::kSuspect;
    return n;
  }
};

}  // namespace bfo::xfer
