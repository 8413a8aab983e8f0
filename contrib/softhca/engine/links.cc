// SPDX-License-Identifier: BSD-3-Clause
//
// The links of ports.
#include "contrib/softhca/engine/links.h"

#include <algorithm>

namespace bfo::softhca {

namespace {

constexpr uint64_t kPacket = 4096;  // bytes: the MTU
constexpr uint64_t kSecond = 1'000'000'000;

uint64_t time_of(uint64_t bytes, uint64_t rate) {
  return static_cast<uint64_t>(static_cast<__uint128_t>(bytes) * kSecond / rate);
}

uint64_t reserve(std::atomic<uint64_t>& free_at, uint64_t earliest, uint64_t busy) {
  uint64_t at = free_at.load(std::memory_order_relaxed);
  uint64_t end;
  do {
    end = (at > earliest ? at : earliest) + busy;
  } while (!free_at.compare_exchange_weak(at, end));
  return end;
}

}  // namespace

uint64_t occupy(Wire wire, uint64_t earliest, uint64_t bytes, uint64_t rate) {
  if (rate == 0) return earliest;
  const uint64_t busy = time_of(bytes, rate);
  const uint64_t end = reserve(wire.free_ns, earliest, busy);
  if (bytes > kPacket) return end;
  const uint64_t turn = std::min(end - busy - earliest, time_of(kPacket, rate));
  return std::min(end, reserve(wire.packet_ns, earliest + turn, busy));
}

uint64_t take_links(Fabric& fabric, uint64_t bytes, PortEntry& src, uint32_t dst_port) {
  uint64_t at = occupy(tx_of(src), fabric.now(), bytes, src.rate.load());
  if (dst_port != kNone) {
    PortEntry& dst = fabric.header().ports_table[dst_port];
    uint64_t rate = dst.rate.load();
    uint64_t busy = rate == 0 ? 0 : bytes * 1'000'000'000u / rate;
    uint64_t in = occupy(rx_of(dst), at > busy ? at - busy : 0, bytes, rate);
    if (in > at) at = in;
  }
  return at + src.latency_ns.load();
}

void note_coming(PortEntry& to, uint64_t bytes, uint64_t end_ns, uint64_t rate) {
  to.coming_rate.store(rate, std::memory_order_relaxed);
  to.coming_bytes.fetch_add(bytes, std::memory_order_relaxed);
  uint64_t at = to.coming_end_ns.load(std::memory_order_relaxed);
  while (at < end_ns && !to.coming_end_ns.compare_exchange_weak(at, end_ns)) {
  }
}

uint64_t received_bytes(Fabric& fabric, uint32_t port) {
  const PortEntry& p = fabric.header().ports_table[port];
  const uint64_t all = p.coming_bytes.load(std::memory_order_relaxed);
  const uint64_t end = p.coming_end_ns.load(std::memory_order_relaxed);
  const uint64_t now = fabric.now();
  if (end <= now) return all;
  const auto left = static_cast<__uint128_t>(end - now) * p.coming_rate.load(std::memory_order_relaxed);
  return all - static_cast<uint64_t>(std::min<__uint128_t>(left / 1'000'000'000u, all));
}

}  // namespace bfo::softhca
