// SPDX-License-Identifier: BSD-3-Clause
//
// other_end.h: the names of a rail's other end, for what is printed and logged: host, device and port.
#pragma once

#include "pml/bfo/glue/btl_port.h"
#include "pml/bfo/glue/event_log.h"

namespace bfo::glue {

struct OtherEnd {
  HostName host;
  char device[64] = "";  ///< empty: unknown
  unsigned port = 0;

  OtherEnd() = default;
  /// `rail`: to `peer`; may be nullptr.
  OtherEnd(const PeerHandle& peer, const RailHandle* rail);
  /// Puts them into `names`, which is valid as long as this is.
  void name(EventNames& names) const;
};

}  // namespace bfo::glue
