// SPDX-License-Identifier: BSD-3-Clause
//
// port_types.h: what the Port of the transfer engine calls a rail, a peer, a communicator, a buffer without a
// request, and a registration. A rail is one BTL module and its endpoint for one process. Both are kept by
// value, because the BML's arrays shift (D1).
//
// D1..D21: contrib/doc/design.md
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"
#include "pml/bfo/xfer/args.h"

namespace bfo::glue {

class Module;
class BtlPort;
struct EventNames;
struct SendRequest;
struct RecvRequest;
struct FragRecord;

using Comm = xfer::Comm<BtlPort>;
using Peer = xfer::Peer<BtlPort>;
using Rail = xfer::Rail<BtlPort>;

enum class Away : uint8_t;  // summary.h

/// One rail: module and endpoint, and the failover contract when its BTL speaks it.
struct RailHandle {
  mca_btl_base_module_t* btl = nullptr;
  mca_btl_base_endpoint_t* ep = nullptr;
  const bfo_failover_btl_t* failover = nullptr;
  bool carried = false;  ///< a descriptor was sent over it
  Away away{};
  bool whole_in_header = false;  ///< btl_sendi takes a whole message as its header
};

struct PeerHandle {
  ompi_proc_t* proc = nullptr;
  bool refused = false;  ///< it speaks other messages, which was said
};

struct CommHandle {
  ompi_communicator_t* comm = nullptr;
};

/// The user buffer of a blocking send that has no request.
struct InlineSource {
  const void* buffer;
  size_t count;
  ompi_datatype_t* datatype;
};

/// One user buffer, registered with one BTL that can reach the peer by RDMA, or with each.
struct Registration {
  struct One {
    mca_btl_base_module_t* btl;
    mca_btl_base_registration_handle_t* handle;  ///< nullptr where the BTL needs none
  };
  uint8_t size = 0;
  One one[xfer::kMaxRails] = {};

  /// False: not registered with that BTL.
  bool find(const mca_btl_base_module_t* btl, mca_btl_base_registration_handle_t*& handle) const {
    if (size == 0 || one[0].btl != btl) [[unlikely]]
      return find_other(btl, handle);
    handle = one[0].handle;
    return true;
  }
  /// The same behind the first one.
  [[gnu::noinline]] bool find_other(const mca_btl_base_module_t* btl,
                                    mca_btl_base_registration_handle_t*& handle) const {
    for (unsigned i = 1; i < size; ++i) {
      if (one[i].btl != btl) continue;
      handle = one[i].handle;
      return true;
    }
    return false;
  }
};

}  // namespace bfo::glue
