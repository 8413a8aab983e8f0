// SPDX-License-Identifier: BSD-3-Clause
//
// The tables: handing out and taking back slots for queue pairs, queues, regions and open devices.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Each allocator returns the slot with every field zero except its name and owner, or nullptr when the table
/// or the heap is full. Each free function may be called by any process for a slot whose owner is gone.
QpEntry* allocate_qp(Fabric& fabric);
void free_qp(Fabric& fabric, QpEntry& qp);
CqEntry* allocate_cq(Fabric& fabric, uint32_t entries);
void free_cq(Fabric& fabric, CqEntry& cq);
SrqEntry* allocate_srq(Fabric& fabric, uint32_t max_wr, uint32_t max_sge);
void free_srq(Fabric& fabric, SrqEntry& srq);
MrEntry* allocate_mr(Fabric& fabric);
void free_mr(Fabric& fabric, MrEntry& mr);
/// Port events of that device on that node reach the context, through the pipe `wake`, from here on.
ContextEntry* allocate_context(Fabric& fabric, uint32_t node, uint32_t device, WakeName wake);
void free_context(Fabric& fabric, ContextEntry& context);

inline uint32_t index_of(Fabric& fabric, const QpEntry& qp) {
  return static_cast<uint32_t>(&qp - fabric.header().qps);
}
inline uint32_t index_of(Fabric& fabric, const CqEntry& cq) {
  return static_cast<uint32_t>(&cq - fabric.header().cqs);
}
inline uint32_t index_of(Fabric& fabric, const SrqEntry& srq) {
  return static_cast<uint32_t>(&srq - fabric.header().srqs);
}
inline uint32_t index_of(Fabric& fabric, const MrEntry& mr) {
  return static_cast<uint32_t>(&mr - fabric.header().mrs);
}
inline uint32_t index_of(Fabric& fabric, const ContextEntry& context) {
  return static_cast<uint32_t>(&context - fabric.header().contexts);
}

/// Bytes of one receive work request with room for `sges`.
constexpr uint32_t recv_stride(uint32_t sges) {
  return static_cast<uint32_t>((offsetof(RecvWqe, sge) + sizeof(Sge) * (sges == 0 ? 1 : sges) + 31) & ~31u);
}
/// Bytes of one send work request with room for `sges` or `inline_bytes`, whichever is more.
constexpr uint32_t send_stride(uint32_t sges, uint32_t inline_bytes) {
  uint32_t tail = static_cast<uint32_t>(sizeof(Sge)) * (sges == 0 ? 1 : sges);
  if (inline_bytes > tail) tail = inline_bytes;
  return static_cast<uint32_t>((offsetof(Wqe, sge) + tail + 63) & ~63u);
}

}  // namespace bfo::softhca
