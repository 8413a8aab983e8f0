// SPDX-License-Identifier: BSD-3-Clause
//
// Signs of lost packets, and the time of a retransmission.
#include "contrib/softhca/engine/packet_loss.h"

#include <algorithm>

namespace bfo::softhca {
namespace {

/// One lost packet costs a round trip, and where that is nothing the time of two devices.
uint64_t turns_ns(Fabric& fabric, uint32_t a, uint32_t b, uint32_t times) {
  constexpr uint64_t kDevicesNs = 10'000;
  const PortEntry* const ports = fabric.header().ports_table;
  uint64_t turn = ports[a].latency_ns.load(std::memory_order_relaxed);
  if (b != kNone) turn += ports[b].latency_ns.load(std::memory_order_relaxed);
  return times * std::max(turn, kDevicesNs);
}

}  // namespace

void note_loss(Fabric& fabric, uint32_t port, LossSign sign, uint32_t times) {
  if (port == kNone) return;
  PortEntry& at = fabric.header().ports_table[port];
  switch (sign) {
    case LossSign::kAckTimeout:
      at.ack_timeouts.fetch_add(times, std::memory_order_relaxed);
      return;
    case LossSign::kSequenceNak:
      at.sequence_naks.fetch_add(times, std::memory_order_relaxed);
      return;
    case LossSign::kEarlyResponse:
      at.early_responses.fetch_add(times, std::memory_order_relaxed);
      return;
    case LossSign::kEarlyRequest:
      at.early_requests.fetch_add(times, std::memory_order_relaxed);
      return;
  }
}

uint64_t repeat_request(Fabric& fabric, QpEntry& qp, uint32_t dst_port, uint32_t times) {
  if (times == 0) return 0;
  qp.retries += times;
  qp.tx_packets += times;
  note_loss(fabric, qp.port_index, LossSign::kSequenceNak, times);
  note_loss(fabric, dst_port, LossSign::kEarlyRequest, times);
  return turns_ns(fabric, qp.port_index, dst_port, times);
}

uint64_t repeat_response(Fabric& fabric, QpEntry& qp, uint32_t dst_port, uint32_t times) {
  if (times == 0) return 0;
  qp.retries += times;
  qp.tx_packets += times;  // it asks again
  note_loss(fabric, qp.port_index, LossSign::kEarlyResponse, times);
  return turns_ns(fabric, qp.port_index, dst_port, times);
}

}  // namespace bfo::softhca
