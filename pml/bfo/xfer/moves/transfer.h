// SPDX-License-Identifier: BSD-3-Clause
//
// transfer.h: what every transfer protocol must offer. A protocol that cannot be reset for a new round, or
// does not say when a side of it has work, does not compile.
#pragma once

#include <concepts>

namespace bfo::xfer {

/// A protocol is a struct of static functions over an engine `E` and its requests.
///  - reset(): forget everything of the old round, nothing of it is in flight any more; ranges received stay.
///  - serve(): post what the state of this side requires in this round. False: no rail took it; called again.
template <class T, class E>
concept Transfer = requires(E& e, typename E::SendRequest& s, typename E::RecvRequest& r) {
  { T::reset(e, s) } -> std::same_as<void>;
  { T::reset(e, r) } -> std::same_as<void>;
  { T::serve(e, s) } -> std::same_as<bool>;
  { T::serve(e, r) } -> std::same_as<bool>;
};

}  // namespace bfo::xfer
