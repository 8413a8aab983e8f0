// SPDX-License-Identifier: BSD-3-Clause
//
// packet.h: a packet between two devices of the fabric: a request of a reliable connection, its answer, or a
// datagram.
#pragma once

#include <cstdint>
#include <string>

#include "test/stack/device.h"

namespace bfo::stack {

struct Fabric::Packet {
  uint32_t from = 0;  // queue pair numbers
  uint32_t to = 0;
  uint64_t number = 0;
  ibv_wr_opcode opcode{};
  uint32_t imm = 0;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
  uint32_t qkey = 0;
  const Device* source = nullptr;
  const Device* target = nullptr;
  ibv_wc_status status{};
  bool rnr = false;
  bool answers_read = false;
  bool again = false;                    // a READ that was executed before
  bool unread = false;                   // see PacketFault::kUnread
  ibv_wc_status tells = IBV_WC_SUCCESS;  // the error that its requester hears instead of an answer
  uint64_t local = 0;
  std::string data;
};

}  // namespace bfo::stack
