// SPDX-License-Identifier: BSD-3-Clause
//
// Memory windows: binding and invalidating them, as local operations of the send queue.
#include "contrib/softhca/engine/window.h"

#include <cerrno>

#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/fabric/copy.h"

namespace bfo::softhca {

int fill_bind(Wqe& wqe, const ibv_send_wr& request) {
  const ibv_mw_bind_info& info = request.bind_mw.bind_info;
  constexpr unsigned kAllowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
  if (request.bind_mw.mw == nullptr || (info.mw_access_flags & ~kAllowed) != 0) return EINVAL;
  if (info.length != 0 && info.mr == nullptr) return EINVAL;
  wqe.remote_addr = info.addr;
  wqe.compare_add = info.length;
  wqe.rkey = request.bind_mw.mw->rkey;  // as it is
  wqe.imm = request.bind_mw.rkey;       // as it shall be
  wqe.swap = info.mr != nullptr ? info.mr->lkey : 0;
  wqe.qkey = info.mw_access_flags;
  wqe.dst_qpn = request.bind_mw.mw->type;
  wqe.length = 0;
  return 0;
}

ibv_wc_status perform_local(Fabric& fabric, QpEntry& qp, const Wqe& wqe) {
  FabricHeader& h = fabric.header();
  uint32_t key = wqe.opcode == kOpLocalInv ? wqe.imm : wqe.rkey;
  uint32_t slot = mr_slot(key);
  if (slot == 0 || slot >= h.mr_fresh) return IBV_WC_MW_BIND_ERR;
  MrEntry& window = h.mrs[slot];
  bool type2 = (window.flags & MrFlags::kWindow2) != 0;
  if ((window.flags & (MrFlags::kWindow | MrFlags::kWindow2)) == 0 || window.pd != qp.pd ||
      window.process != qp.process) {
    return IBV_WC_MW_BIND_ERR;
  }
  if (wqe.opcode == kOpLocalInv) {
    if (!type2 || window.key.load() != key) return IBV_WC_MW_BIND_ERR;
    window.key.store(0);
    wait_for_copies(fabric, window.addr, window.length);
    return IBV_WC_SUCCESS;
  }
  if (type2 && window.key.load() != 0 && window.length != 0) return IBV_WC_MW_BIND_ERR;
  if (wqe.compare_add == 0) {  // a bind of length 0 takes the window back
    window.key.store(0);
    wait_for_copies(fabric, window.addr, window.length);
    window.length = 0;
    return IBV_WC_SUCCESS;
  }
  uint32_t parent = static_cast<uint32_t>(wqe.swap);
  if (!key_is_valid(fabric, parent)) return IBV_WC_MW_BIND_ERR;
  MrEntry& region = h.mrs[mr_slot(parent)];
  uint64_t offset = wqe.remote_addr - region.iova;
  if (region.pd != qp.pd || (region.access & IBV_ACCESS_MW_BIND) == 0 || offset > region.length ||
      wqe.compare_add > region.length - offset) {
    return IBV_WC_MW_BIND_ERR;
  }
  bool writes = (wqe.qkey & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (writes && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return IBV_WC_MW_BIND_ERR;
  window.key.store(0);
  window.addr = region.addr + offset;
  window.iova = (wqe.qkey & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wqe.remote_addr;
  window.length = wqe.compare_add;
  window.access = wqe.qkey;
  window.parent = parent;
  window.qpn = qp.qpn.load();
  window.key.store(wqe.imm, std::memory_order_release);
  return IBV_WC_SUCCESS;
}

}  // namespace bfo::softhca
