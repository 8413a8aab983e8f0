// SPDX-License-Identifier: BSD-3-Clause
//
// The completion queue: written by whoever executes a message, polled by its owner.
#include "contrib/softhca/engine/cq.h"

#include <bit>
#include <cerrno>
#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

/// What fields that are not valid after an error hold, so that nobody gets used to reading them.
constexpr uint8_t kGarbage = 0xa5;

/// Copies a payload that travelled in the entry to where the receive request wants it.
void place_payload(Fabric& fabric, CqeEntry& entry) {
  if (entry.inline_len == 0) return;
  if (key_is_valid(fabric, entry.inline_lkey)) {
    std::memcpy(reinterpret_cast<void*>(entry.inline_dst), entry.payload, entry.inline_len);
  }
  entry.inline_len = 0;
}

/// A polled send completion gives the send queue slots up to it back.
void free_send_slots(Fabric& fabric, const CqeEntry& entry) {
  QpEntry& qp = fabric.header().qps[qp_slot(entry.qpn)];
  if (qp.qpn.load(std::memory_order_relaxed) == entry.qpn) {
    qp.sq_freed.store(entry.wqe, std::memory_order_release);
  }
}

void to_wc(const CqeEntry& entry, ibv_wc& wc) {
  if (entry.status != IBV_WC_SUCCESS) [[unlikely]] {
    std::memset(&wc, kGarbage, sizeof(wc));
    wc.wr_id = entry.wr_id;
    wc.status = static_cast<ibv_wc_status>(entry.status);
    wc.qp_num = entry.qpn;
    wc.vendor_err = entry.vendor_err;
    return;
  }
  wc.wr_id = entry.wr_id;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  wc.vendor_err = 0;
  wc.byte_len = entry.byte_len;
  wc.imm_data = entry.imm;
  wc.qp_num = entry.qpn;
  wc.src_qp = entry.src_qp;
  wc.wc_flags = ((entry.flags & CqeFlags::kImm) != 0 ? IBV_WC_WITH_IMM : 0) |
                ((entry.flags & CqeFlags::kInv) != 0 ? IBV_WC_WITH_INV : 0) |
                ((entry.flags & CqeFlags::kGrh) != 0 ? IBV_WC_GRH : 0);
  wc.pkey_index = entry.pkey_index;
  wc.slid = entry.slid;
  wc.sl = entry.sl;
  wc.dlid_path_bits = entry.dlid_path_bits;
}

/// One event on the completion channel; the queue is not armed any more.
void announce(CqEntry& cq, DeferredActions& deferred) {
  cq.armed.store(0, std::memory_order_relaxed);
  cq.events_raised.fetch_add(1);
  deferred.wake(cq.process, cq.wake);
}

}  // namespace

CqePush::CqePush(Fabric& fabric, CqEntry& cq, DeferredActions& deferred)
    : fabric_(fabric), cq_(cq), deferred_(deferred), guard_(cq.push_lock, fabric.tag(), fabric) {
  if (cq.error.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return;
  uint32_t tail = cq.tail.load(std::memory_order_relaxed);
  if (tail - cq.head_seen >= cq.capacity) [[unlikely]] {
    cq.head_seen = cq.head.load(std::memory_order_acquire);
    if (tail - cq.head_seen >= cq.capacity) {
      deferred.fail_cq(index_of(fabric, cq));
      return;
    }
  }
  entry_ = &cqe_at(fabric, cq, tail);
  entry_->inline_len = 0;
}

void CqePush::commit(bool solicited) {
  if (cq_.stamp != 0) entry_->stamp_ns = fabric_.now();
  uint32_t tail = cq_.tail.load(std::memory_order_relaxed) + 1;
  cq_.tail.store(tail, std::memory_order_relaxed);
  entry_->seq.store(tail, std::memory_order_release);
  // Not by a locked instruction: that would wait until the owner, who polls this entry, gives its cache line
  // up.
  fabric_.light_fence();
  uint32_t armed = cq_.armed.load(std::memory_order_relaxed);
  if (armed != 0) [[unlikely]] {
    if (armed == 1 || solicited) announce(cq_, deferred_);
  }
}

int poll_cq(Fabric& fabric, CqEntry& cq, int count, ibv_wc* completions) {
  uint32_t head = cq.head.load(std::memory_order_relaxed);
  if (cqe_at(fabric, cq, head).seq.load(std::memory_order_acquire) != head + 1) [[likely]] {
    return cq.error.load(std::memory_order_relaxed) != 0 ? -1 : 0;
  }
  Guard guard(cq.poll_lock, fabric.tag(), fabric);
  if (cq.error.load(std::memory_order_relaxed) != 0) return -1;
  head = cq.head.load(std::memory_order_relaxed);
  int got = 0;
  while (got < count) {
    CqeEntry& entry = cqe_at(fabric, cq, head);
    if (entry.seq.load(std::memory_order_acquire) != head + 1) break;
    ++head;
    if ((entry.flags & CqeFlags::kVoid) != 0) continue;
    place_payload(fabric, entry);
    if ((entry.flags & CqeFlags::kSend) != 0) free_send_slots(fabric, entry);
    to_wc(entry, completions[got++]);
  }
  cq.head.store(head, std::memory_order_release);
  return got;
}

bool poll_entry(Fabric& fabric, CqEntry& cq, CqeEntry& out) {
  Guard guard(cq.poll_lock, fabric.tag(), fabric);
  for (;;) {
    uint32_t head = cq.head.load(std::memory_order_relaxed);
    CqeEntry& entry = cqe_at(fabric, cq, head);
    if (entry.seq.load(std::memory_order_acquire) != head + 1) return false;
    bool purged = (entry.flags & CqeFlags::kVoid) != 0;
    if (!purged) {
      place_payload(fabric, entry);
      if ((entry.flags & CqeFlags::kSend) != 0) free_send_slots(fabric, entry);
      std::memcpy(static_cast<void*>(&out), static_cast<void*>(&entry), offsetof(CqeEntry, payload));
      out.stamp_ns = entry.stamp_ns;
    }
    cq.head.store(head + 1, std::memory_order_release);
    if (!purged) return true;
  }
}

void arm_cq(Fabric& fabric, CqEntry& cq, bool solicited_only) {
  // Asking for less does not take back asking for more.
  if (!solicited_only || cq.armed.load() != 1) cq.armed.store(solicited_only ? 2 : 1);
  // A writer that has not seen this has made visible what the next poll finds. If that cannot be had, an
  // event says that there may be something.
  if (fabric.heavy_fence()) return;
  DeferredActions deferred(fabric);
  announce(cq, deferred);
}

void purge_cq(Fabric& fabric, CqEntry& cq, uint32_t qpn) {
  Guard polling(cq.poll_lock, fabric.tag(), fabric);
  Guard pushing(cq.push_lock, fabric.tag(), fabric);
  uint32_t tail = cq.tail.load(std::memory_order_acquire);
  for (uint32_t i = cq.head.load(); i != tail; ++i) {
    CqeEntry& entry = cqe_at(fabric, cq, i);
    if (entry.qpn == qpn) entry.flags |= CqeFlags::kVoid;
  }
}

int resize_cq(Fabric& fabric, CqEntry& cq, uint32_t entries) {
  uint32_t capacity = std::bit_ceil(entries);
  uint64_t fresh = fabric.allocate(uint64_t{capacity} * kCqeStride);
  if (fresh == 0) return ENOMEM;
  uint64_t old = cq.ring;
  uint64_t old_bytes = uint64_t{cq.mask + 1} * kCqeStride;
  {
    Guard polling(cq.poll_lock, fabric.tag(), fabric);
    Guard pushing(cq.push_lock, fabric.tag(), fabric);
    uint32_t head = cq.head.load(), tail = cq.tail.load();
    if (tail - head > entries) {
      old = fresh;
      old_bytes = uint64_t{capacity} * kCqeStride;
    } else {
      for (uint32_t i = head; i != tail; ++i) {
        std::memcpy(static_cast<void*>(&fabric.at<CqeEntry>(fresh)[i & (capacity - 1)]),
                    static_cast<void*>(&cqe_at(fabric, cq, i)), sizeof(CqeEntry));
      }
      cq.ring = fresh;
      cq.mask = capacity - 1;
      cq.capacity = entries;
    }
  }
  fabric.release(old, old_bytes);
  return old == fresh ? EINVAL : 0;
}

void settle_payload(Fabric& fabric, CqEntry& cq, uint32_t lkey) {
  if (cq.head.load() == cq.tail.load()) return;
  Guard polling(cq.poll_lock, fabric.tag(), fabric);
  for (uint32_t i = cq.head.load();; ++i) {
    CqeEntry& entry = cqe_at(fabric, cq, i);
    if (entry.seq.load(std::memory_order_acquire) != i + 1) break;
    if (entry.inline_len != 0 && entry.inline_lkey == lkey && (entry.flags & CqeFlags::kVoid) == 0)
      place_payload(fabric, entry);
  }
}

void fail_cq(Fabric& fabric, CqEntry& cq, DeferredActions& deferred) {
  if (cq.error.exchange(1) != 0) return;
  uint32_t index = index_of(fabric, cq);
  raise_cq_event(fabric, cq, IBV_EVENT_CQ_ERR, deferred);
  FabricHeader& h = fabric.header();
  for (uint32_t i = 0; i < h.qp_fresh; ++i) {
    QpEntry& qp = h.qps[i];
    if (qp.qpn.load() == 0 || qp.process != cq.process) continue;
    if (qp.send_cq != index && qp.recv_cq != index) continue;
    fail_qp(fabric, qp, IBV_EVENT_QP_FATAL, deferred);
  }
}

}  // namespace bfo::softhca
