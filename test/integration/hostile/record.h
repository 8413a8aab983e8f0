// SPDX-License-Identifier: BSD-3-Clause
//
// record.h: what eavesdrop.c writes and hostile.cc reads.
#pragma once

#include <stdint.h>

enum { kRecordBytes = 192 };

/// A datagram that was sent (length > 0), or a datagram queue pair (length 0).
struct Record {
  uint32_t qpn;  // of the receiver
  uint32_t qkey;
  uint32_t length;
  uint16_t lid;     // queue pairs only
  char device[66];  // queue pairs only
  unsigned char bytes[kRecordBytes];
};
