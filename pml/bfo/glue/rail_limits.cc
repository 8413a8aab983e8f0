// SPDX-License-Identifier: BSD-3-Clause
//
// rail_limits.cc: see rail_limits.h.
#include "pml/bfo/glue/rail_limits.h"

#include <algorithm>
#include <limits>

#include "pml/bfo/glue/builds.h"
#include "pml/bfo/glue/stock_send.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::glue {
namespace {

constexpr size_t kLeastPipelineFrag = 4096;  // a shorter btl_NAME_rdma_pipeline_frag_size counts as this one

// From how many bytes on a contiguous message goes by RDMA. By default: what does not go at once, because
// that saves a copy. Through shared memory (get, and no epochs) copying a little more than an eager message
// is faster still.
size_t least_rdma_size(const mca_btl_base_module_t* btl, const xfer::RailLimits& l, const Params& params) {
  if (params.rdma_threshold > 0) return static_cast<size_t>(params.rdma_threshold);
  if (l.get_limit != 0 && find_failover(btl) == nullptr) return l.eager_limit + 1;
  return xfer::beyond_eager(l.eager_limit);
}

// Longest MATCH of a blocking send that is offered to sendi: its caller would wait for READ and FIN, which
// cost more than the two copies of such a message. 0: no longer one than any send offers.
size_t blocking_limit(const mca_btl_base_module_t* btl, const Params& params) {
  if (params.blocking_limit == 0 || find_failover(btl) == nullptr || btl->btl_sendi == nullptr) return 0;
  const bool by_rdma = params.rdma_threshold > 0;
  const int longest =
      by_rdma ? std::min(params.blocking_limit, params.rdma_threshold - 1) : params.blocking_limit;
  return static_cast<size_t>(longest) + sizeof(core::MatchHdr);
}

}  // namespace

xfer::RailLimits limits_of(const mca_btl_base_module_t* btl, const Params& params, bool rdma) {
  xfer::RailLimits l;
  l.eager_limit = btl->btl_eager_limit;
  l.inline_limit = StockSend::inline_limit(*btl);
  l.blocking_limit = blocking_limit(btl, params);
  l.rndv_eager_limit = btl->btl_rndv_eager_limit;
  l.max_send_size = btl->btl_max_send_size;
  const bool handle_fits = btl->btl_registration_handle_size <= core::kMaxHandle;
  if (rdma && handle_fits && (btl->btl_flags & MCA_BTL_FLAGS_PUT) != 0 && btl->btl_put != nullptr) {
    l.put_limit = btl->btl_put_limit;
  }
  if (rdma && handle_fits && (btl->btl_flags & MCA_BTL_FLAGS_GET) != 0 && btl->btl_get != nullptr) {
    l.get_limit = btl->btl_get_limit;
  }
  l.get_alignment = std::max<size_t>(btl->btl_get_alignment, 1);
  l.min_rdma_size = least_rdma_size(btl, l, params);
  // A failed rail leaves at most short fragments to be sent again. A BTL that cannot fail over gets all at
  // once, as from ob1 (vader's pipeline fragment of 4 KiB would be one system call each).
  l.rdma_frag_size = find_failover(btl) != nullptr
                         ? std::max<size_t>(btl->btl_rdma_pipeline_frag_size, kLeastPipelineFrag)
                         : std::numeric_limits<size_t>::max() / 2;
  // Of a port that is down it is 0 until it comes up.
  l.weight = std::max<uint32_t>(__atomic_load_n(&btl->btl_bandwidth, __ATOMIC_RELAXED), 1);
  return l;
}

}  // namespace bfo::glue
