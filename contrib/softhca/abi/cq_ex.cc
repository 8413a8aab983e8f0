// SPDX-License-Identifier: BSD-3-Clause
//
// The extended completion queue: start_poll, next_poll, end_poll and the read_* accessors.
#include "contrib/softhca/abi/cq_ex.h"

#include <cerrno>
#include <ctime>

#include "contrib/softhca/engine/cq.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kKnownWcFlags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                                   IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
                                   IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kStampFlags =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

int take(Cq& cq) {
  Process& process = Process::instance();
  if (process.waiting()) [[unlikely]]
    process.progress_now();
  if (cq.entry->error.load(std::memory_order_relaxed) != 0) return EIO;
  if (!poll_entry(process.fabric(), *cq.entry, cq.current)) {
    if (++cq.empties >= process.spin()) {
      cq.empties = 0;
      process.idle();
    }
    return ENOENT;
  }
  cq.base.status = static_cast<ibv_wc_status>(cq.current.status);
  cq.base.wr_id = cq.current.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  return attr->comp_mask != 0 ? EINVAL : take(*of(cq));
}
int next_poll(ibv_cq_ex* cq) {
  return take(*of(cq));
}
void end_poll(ibv_cq_ex* cq) {}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(of(cq)->current.opcode);
}
uint32_t read_vendor_err(ibv_cq_ex* cq) {
  return of(cq)->current.vendor_err;
}
uint32_t read_byte_len(ibv_cq_ex* cq) {
  return of(cq)->current.byte_len;
}
__be32 read_imm_data(ibv_cq_ex* cq) {
  return of(cq)->current.imm;
}
uint32_t read_qp_num(ibv_cq_ex* cq) {
  return of(cq)->current.qpn;
}
uint32_t read_src_qp(ibv_cq_ex* cq) {
  return of(cq)->current.src_qp;
}
uint32_t read_slid(ibv_cq_ex* cq) {
  return of(cq)->current.slid;
}
uint8_t read_sl(ibv_cq_ex* cq) {
  return of(cq)->current.sl;
}
uint8_t read_dlid_path_bits(ibv_cq_ex* cq) {
  return 0;
}
uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return of(cq)->current.stamp_ns;
}

unsigned read_wc_flags(ibv_cq_ex* cq) {
  uint8_t flags = of(cq)->current.flags;
  return ((flags & CqeFlags::kImm) != 0 ? unsigned{IBV_WC_WITH_IMM} : 0u) |
         ((flags & CqeFlags::kInv) != 0 ? unsigned{IBV_WC_WITH_INV} : 0u) |
         ((flags & CqeFlags::kGrh) != 0 ? unsigned{IBV_WC_GRH} : 0u);
}

uint64_t read_wallclock(ibv_cq_ex* cq) {
  timespec wall, steady;
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_MONOTONIC, &steady);
  uint64_t now =
      static_cast<uint64_t>(steady.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(steady.tv_nsec);
  uint64_t real = static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(wall.tv_nsec);
  return real - (now - of(cq)->current.stamp_ns);
}

}  // namespace

ibv_cq_ex* op_create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr uint32_t kKnownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((attr->comp_mask & ~kKnownMask) != 0 || (attr->wc_flags & ~kKnownWcFlags) != 0 ||
      ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr->flags & ~kKnownFlags) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  Cq* cq = new_cq(context, attr->cqe, attr->cq_context, attr->channel, static_cast<int>(attr->comp_vector));
  if (cq == nullptr) return nullptr;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 && attr->parent_domain != nullptr) {
    cq->parent = of(attr->parent_domain);
    cq->parent->refs.fetch_add(1);
  }
  cq->wc_flags = attr->wc_flags;
  cq->entry->stamp = (attr->wc_flags & kStampFlags) != 0 ? 1 : 0;
  ibv_cq_ex& base = cq->base;
  base.start_poll = start_poll;
  base.next_poll = next_poll;
  base.end_poll = end_poll;
  base.read_opcode = read_opcode;
  base.read_vendor_err = read_vendor_err;
  base.read_wc_flags = read_wc_flags;
  uint64_t flags = attr->wc_flags;
  if (flags & IBV_WC_EX_WITH_BYTE_LEN) base.read_byte_len = read_byte_len;
  if (flags & IBV_WC_EX_WITH_IMM) base.read_imm_data = read_imm_data;
  if (flags & IBV_WC_EX_WITH_QP_NUM) base.read_qp_num = read_qp_num;
  if (flags & IBV_WC_EX_WITH_SRC_QP) base.read_src_qp = read_src_qp;
  if (flags & IBV_WC_EX_WITH_SLID) base.read_slid = read_slid;
  if (flags & IBV_WC_EX_WITH_SL) base.read_sl = read_sl;
  if (flags & IBV_WC_EX_WITH_DLID_PATH_BITS) base.read_dlid_path_bits = read_dlid_path_bits;
  if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) base.read_completion_ts = read_completion_ts;
  if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
    base.read_completion_wallclock_ns = read_wallclock;
  return &base;
}

}  // namespace bfo::softhca
